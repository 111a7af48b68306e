"""Finds what a job needs on this machine: Java, PySpark, jars, memory and disk space."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import S3A, heap_bytes, local_path
from kafkad_etl.job import Job
from kafkad_etl.machine import class_archive, jars, java, spark_home
from kafkad_etl.machine.cache import cache_directory
from kafkad_etl.machine.download import fetched
from kafkad_etl.machine.java import Java
from kafkad_etl.machine.spark_home import SparkHome

MB = 1 << 20
_BESIDES_HEAP = 300 * MB
"""Minimum memory that a JVM uses in addition to its heap."""
BRING_JARS = ("spark.jars.packages", "spark.jars", "spark.driver.extraClassPath", "spark.driver.userClassPathFirst")
"""Settings of Spark that add jars."""
_LEAST_DISK = 200 * MB
_ENOUGH_DISK = 2048 * MB


class Environment(NamedTuple):
    java: java.Java
    spark_home: Path
    version: str
    """PySpark's version."""
    python: str
    jars: tuple[str, ...]
    """Our jars, then the job's own: files, or URLs that the job names."""
    warnings: tuple[str, ...] = ()
    archive: Path | None = None
    """The archive of Spark's classes, if one was made."""


class Machine(NamedTuple):
    """A machine's resources in bytes; None if unknown."""

    memory: int | None
    available: int | None
    disk: int


def find(job: Job, java_home: str = "", environ: Mapping[str, str] | None = None, repository: str = "") -> Environment:
    """Finds everything, downloading missing jars. EtlError says what is missing and how to fix it."""
    environ = os.environ if environ is None else environ
    spark, chosen = _tools(environ, java_home)
    warnings = room(job.spark.driver_memory, machine(Path(temporary(environ))))
    directory = cache_directory(environ) / "jars"
    sets = sets_needed(job, spark, environ)
    for error in jars.missing_sets(sets, spark.version, directory):
        raise error
    wanted = [*jars.needed(job, spark.version), *jars.in_sets(sets, spark.version)]
    ours = fetched(wanted, directory, environ, repository)
    every = (*map(str, ours), *map(_own_jar, own_jars(job)))
    archive = class_archive.find(chosen, spark.home, cache_directory(environ))
    return Environment(chosen, spark.home, spark.version, sys.executable, every, tuple(warnings), archive)


def find_for_program(
    heap: str, java_home: str, environ: Mapping[str, str], *, brings_connector: bool = False
) -> Environment:
    """The same for a program, whose own jars Spark looks for. One that brings the connector does not get ours."""
    spark, chosen = _tools(environ, java_home)
    warnings = room(heap, machine(Path(temporary(environ))), "--driver-memory")
    wanted = [] if brings_connector else jars.for_programs(spark.version)
    ours = fetched(wanted, cache_directory(environ) / "jars", environ)
    archive = class_archive.find(chosen, spark.home, cache_directory(environ))
    return Environment(chosen, spark.home, spark.version, sys.executable, (*map(str, ours),), tuple(warnings), archive)


def tools(environ: Mapping[str, str], java_home: str = "") -> dict[str, str]:
    """Java and PySpark, as environment variables of spark-submit."""
    return tool_variables(bare(environ, java_home))


def bare(environ: Mapping[str, str], java_home: str = "") -> Environment:
    """Java and PySpark alone."""
    spark, chosen = _tools(environ, java_home)
    return Environment(chosen, spark.home, spark.version, sys.executable, ())


def tool_variables(environment: Environment) -> dict[str, str]:
    return {
        "JAVA_HOME": str(environment.java.home),
        "SPARK_HOME": str(environment.spark_home),
        "PYSPARK_PYTHON": environment.python,
        "PYSPARK_DRIVER_PYTHON": environment.python,
    }


def _tools(environ: Mapping[str, str], java_home: str) -> tuple[SparkHome, Java]:
    spark = spark_home.find()
    return spark, java.find(spark.version, cache_directory(environ), environ, java_home, java.bundled_home())


def outlook(job: Job, java_home: str = "", environ: Mapping[str, str] | None = None) -> Environment:
    """The environment that a run would use. Unlike `find`, it downloads nothing and requires nothing to exist."""
    environ = os.environ if environ is None else environ
    cache = cache_directory(environ)
    spark = found_or_assumed()
    try:
        chosen = java.find(spark.version, cache, environ, java_home, java.bundled_home())
    except EtlError:
        chosen = Java(Path("java"), "", "")
    sets = sets_needed(job, spark, environ)
    wanted = [*jars.needed(job, spark.version), *jars.in_sets(sets, spark.version)]
    ours = (str(cache / "jars" / jar.path) for jar in wanted)
    return Environment(chosen, spark.home, spark.version, sys.executable, (*ours, *own_jars(job)))


def missing_jars(job: Job, environ: Mapping[str, str] = os.environ) -> Iterator[EtlError]:
    """Errors for jars that the job names, and for those that a run would not download by itself."""
    for name in own_jars(job):
        try:
            _own_jar(name)
        except EtlError as error:
            yield error
    spark = found_or_assumed()
    yield from jars.missing_sets(sets_needed(job, spark, environ), spark.version, cache_directory(environ) / "jars")


def found_or_assumed() -> SparkHome:
    """PySpark, or where it would be."""
    try:
        return spark_home.find()
    except EtlError:
        return SparkHome(Path("pyspark"), jars.known_versions()[-1])


def sets_needed(job: Job, spark: SparkHome, environ: Mapping[str, str]) -> dict[str, str]:
    """The sets that neither the job nor Spark itself brings, each with the key that asks for it."""
    wanted = jars.sets_needed(job)
    if S3A in wanted and (comes_with(spark.home, "hadoop-aws") or spark_adds_jars(environ, spark.home)):
        del wanted[S3A]
    return wanted


def comes_with(home: Path | None, name: str) -> bool:
    """True if a jar of this name is among Spark's own."""
    return home is not None and any((home / "jars").glob(f"*{name}*.jar"))


def spark_adds_jars(environ: Mapping[str, str], home: Path | None) -> bool:
    """True if this machine's own Spark configuration adds jars."""
    text = spark_configuration(environ, home)
    return bool(environ.get("SPARK_DIST_CLASSPATH")) or any(name in text for name in BRING_JARS)


def spark_configuration(environ: Mapping[str, str], home: Path | None) -> str:
    """What Spark and its shell read at start, from $SPARK_CONF_DIR or Spark's own directory; empty if there is none."""
    directory = Path(environ.get("SPARK_CONF_DIR") or (home or Path("/nonexistent")) / "conf")
    files = [directory / name for name in ("spark-defaults.conf", "spark-env.sh")]
    return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())


def own_jars(job: Job) -> list[str]:
    """Jars that the job itself names."""
    drivers = [job.sink.jdbc.driver_jar] if job.sink.jdbc and job.sink.jdbc.driver_jar else []
    return [*job.spark.jars, *drivers]


def _own_jar(name: str) -> str:
    if "://" in name:
        return name
    path = Path(local_path(name)).absolute()
    if not path.is_file():
        raise EtlError(f"{path}: no such jar; spark.jars and driver_jar must name files", EtlExit.ENVIRONMENT)
    return str(path)


def temporary(environ: Mapping[str, str]) -> str:
    """The directory for temporary files."""
    import tempfile

    return environ.get("TMPDIR") or tempfile.gettempdir()


def room(heap: str, machine: Machine, key: str = "spark.driver_memory") -> list[str]:
    """Checks memory and disk space. Returns warnings; raises EtlError if the job cannot work. `key` is where the heap
    is set."""
    needed = size_of(heap, key) + _BESIDES_HEAP
    if machine.memory is not None and machine.memory < needed:
        raise EtlError(
            f"{key} {heap} needs {needed // MB:,} MB, but this machine has only {machine.memory // MB:,} MB",
            EtlExit.ENVIRONMENT,
            hints=(f"lower {key}: 600m is enough for small batches",),
        )
    if machine.disk < _LEAST_DISK:
        raise EtlError(
            f"only {machine.disk // MB:,} MB are free in the directory for temporary files",
            EtlExit.ENVIRONMENT,
            hints=("set TMPDIR to another directory",),
        )
    found = []
    if machine.available is not None and machine.available < needed:
        found.append(
            f"only {machine.available // MB:,} MB of memory are free, and a heap of {heap} may need {needed // MB:,} MB"
        )
    if machine.disk < _ENOUGH_DISK:
        found.append(f"only {machine.disk // MB:,} MB are free for temporary files; large sorts and joins need more")
    return found


def machine(directory: Path) -> Machine:
    memory, available = _memory()
    return Machine(memory, available, _free_bytes(directory))


def _memory() -> tuple[int | None, int | None]:
    """Total and available memory, within the container's limit; unknown on systems other than Linux."""
    try:
        found = dict(re.findall(r"^(\w+): +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE))
    except OSError:
        return None, None
    memory, available = int(found["MemTotal"]) * 1024, int(found["MemAvailable"]) * 1024
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no such limit, or `max`
        return memory, available
    return min(memory, limit), max(min(available, limit - used), 0)


def size_of(text: str, key: str = "spark.driver_memory") -> int:
    """The bytes of a heap size; `key` gave it."""
    try:
        return heap_bytes(text)
    except ValueError as error:
        raise EtlError(f"{key} {error}; use a value such as 700m or 2g", EtlExit.USAGE) from error


def _free_bytes(directory: Path) -> int:
    """Free space on the disk of a directory that may not exist yet."""
    while not directory.exists():
        directory = directory.parent
    there = os.statvfs(directory)
    return there.f_bavail * there.f_frsize
