"""Java of ours in Spark's JVMs, compiled by Janino, the compiler that comes with Spark.

The classes go to a jar in the run's private directory, from which Spark gives them to executors as any other jar.
"""

from __future__ import annotations

import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

_PACKAGE = "kafkad.etl"
_objects: dict[tuple[str, str], Any] = {}
"""By the id of the Spark application, whose jobs share them, and the name of the class."""
_compiling = threading.Lock()


def object_of(spark: Any, source: Path) -> Any:
    """An object of the class that a file is named after. It is compiled when it is first needed."""
    key = (spark.sparkContext.applicationId, source.stem)
    with _compiling:
        if key not in _objects:
            _objects[key] = _made(spark, source)
        return _objects[key]


def applied(spark: Any, function: Any, column: Any) -> Any:
    """The column that a function in the JVM makes of another."""
    from pyspark.sql import Column

    return Column(function.apply(spark._jvm.PythonUtils.toSeq([column._jc])))


@cache
def loaded(spark: Any, source: str, name: str) -> Any:
    """A class of this text, for the driver alone. Compiled once: Py4J takes all classes of one name for the same."""
    return _compiled(spark, source).getClassLoader().loadClass(name)


def _compiled(spark: Any, source: str) -> Any:
    """Janino's compiler, which has the classes of this text."""
    jvm = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler


def _made(spark: Any, source: Path) -> Any:
    compiler = _compiled(spark, source.read_text(encoding="utf-8"))
    path = Path(tempfile.mkdtemp(prefix="compiled-")) / f"kafkad-etl-{source.stem.lower()}.jar"
    with ZipFile(path, "w") as jar:
        for name, code in compiler.getBytecodes().items():
            jar.writestr(ZipInfo(f"{name.replace('.', '/')}.class"), bytes(code))
    spark.sparkContext._jsc.addJar(str(path))  # for executors; here it is known by the compiler's own loader
    return compiler.getClassLoader().loadClass(f"{_PACKAGE}.{source.stem}").newInstance()
