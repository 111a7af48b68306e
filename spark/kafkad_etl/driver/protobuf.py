"""Protobuf in Spark's JVMs: `Protobuf.java`, compiled by Janino, the compiler that comes with Spark.

Spark's own module for Protobuf is not used, as it is not in every repository that has the rest of Spark. The classes go
to a jar in the run's private directory, from which Spark gives them to executors as any other jar.
"""

from __future__ import annotations

import json
import tempfile
import threading
from base64 import b64decode
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Failed, Schema
from kafkad_etl.registry.protobuf import Compiled

_SOURCE = Path(__file__).with_name("Protobuf.java")
_CLASS = "kafkad.etl.Protobuf"
_compiled: dict[str, Any] = {}
"""An object of the class, by the id of the Spark application; jobs in one Spark share it."""
_compiling = threading.Lock()


def compiled(schema: Schema) -> Compiled:
    return Compiled(schema.files, schema.message)


def read(spark: Any, schema: Schema, struct: Any, column: Any) -> Any:
    """The column of a message's bytes as a struct; null for bytes that are no such message."""
    function = _conversion(spark).reader(b64decode(schema.files), schema.message, json.dumps(struct))
    return _applied(spark, function, column)


def written(spark: Any, schema: Schema, row: Any) -> Any:
    """The struct as a message's bytes."""
    return _applied(spark, _conversion(spark).writer(b64decode(schema.files), schema.message), row)


def _applied(spark: Any, function: Any, column: Any) -> Any:
    from pyspark.sql import Column

    return Column(function.apply(spark._jvm.PythonUtils.toSeq([column._jc])))


def _conversion(spark: Any) -> Any:
    """The object that makes conversions. Its class is compiled when it is first needed."""
    application = spark.sparkContext.applicationId
    with _compiling:
        if application not in _compiled:
            _compiled[application] = _made(spark)
        return _compiled[application]


def _made(spark: Any) -> Any:
    jvm = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass("com.google.protobuf.DynamicMessage")
    except Exception as error:
        raise JobFailed(_no_protobuf()) from error
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(_SOURCE.read_text(encoding="utf-8"))
    path = Path(tempfile.mkdtemp(prefix="protobuf-")) / "kafkad-etl-protobuf.jar"
    with ZipFile(path, "w") as jar:
        for name, code in compiler.getBytecodes().items():
            jar.writestr(ZipInfo(f"{name.replace('.', '/')}.class"), bytes(code))
    spark.sparkContext._jsc.addJar(str(path))  # for executors; here it is known by the compiler's own loader
    return compiler.getClassLoader().loadClass(_CLASS).newInstance()


def _no_protobuf() -> Failed:
    return Failed(
        kind="environment",
        text="the jar com.google.protobuf:protobuf-java is missing",
        hints=["run kctl etl jars fetch, or set spark.jars: [/path/to/protobuf-java.jar]"],
    )
