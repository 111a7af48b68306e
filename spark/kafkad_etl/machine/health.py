"""Checks that jobs can run on this machine, one thing at a time: what is missing does not hide the rest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafkad_etl.errors import EtlError
from kafkad_etl.job import Job, Spark
from kafkad_etl.machine import class_archive, hadoop, jars, java, spark_home
from kafkad_etl.machine.cache import cache_directory
from kafkad_etl.machine.environment import found_or_assumed, machine, own_jars, room, sets_needed, temporary
from kafkad_etl.machine.jars import Jar
from kafkad_etl.machine.reachability import unreachable
from kafkad_etl.machine.spark_home import SparkHome
from kctl.errors import KctlError
from kctl.texts.output import counted, size_text


class Finding(NamedTuple):
    check: str
    state: str
    """ok, warn or error."""
    what: str
    fix: str = ""


def findings(job: Job | None, java_home: str, reach: Callable[[], str] | None) -> Iterator[Finding]:
    """All findings. `reach` contacts the cluster and describes it; None if there is none to contact."""
    spark = found_or_assumed()
    try:
        yield Finding("pyspark", "ok", f"{spark_home.find().version} in {spark.home}")
    except EtlError as error:
        yield _wrong("pyspark", error)
    yield _java(spark.version, java_home)
    yield from _archive(java_home)
    yield _jars(job, spark)
    yield from _room(job)
    yield from _hadoop(job.spark if job else Spark())
    if reach is not None:
        yield _cluster(reach)


def _wrong(check: str, error: KctlError) -> Finding:
    return Finding(check, "error", error.what, "; ".join(error.hints))


def _java(version: str, java_home: str) -> Finding:
    try:
        found = java.find(version, cache_directory(os.environ), os.environ, java_home, java.bundled_home())
    except EtlError as error:
        return _wrong("java", error)
    passed_over = f"; not used: {'; '.join(found.refused)}" if found.refused else ""
    return Finding("java", "ok", f"{found.version} from {found.origin}, {found.home}{passed_over}")


def _archive(java_home: str) -> Iterator[Finding]:
    """Whether runs start from an archive of Spark's classes, on a Java and a Spark that are there."""
    cache = cache_directory(os.environ)
    try:
        spark = spark_home.find()
        chosen = java.find(spark.version, cache, os.environ, java_home, java.bundled_home())
    except EtlError:
        return
    if found := class_archive.find(chosen, spark.home, cache):
        yield Finding("archive", "ok", f"Spark's classes are in {found} ({size_text(found.stat().st_size)})")
    elif why := class_archive.unfit(chosen):
        yield Finding("archive", "ok", f"no archive of Spark's classes: {why}")
    else:
        yield Finding("archive", "ok", "no archive of Spark's classes: runs start slower", "kctl etl jars archive")


def _jars(job: Job | None, spark: SparkHome) -> Finding:
    directory, version = cache_directory(os.environ) / "jars", spark.version
    sets = sets_needed(job, spark, os.environ) if job else {}
    try:
        wanted = jars.needed(job, version) if job else jars.connector(version)
        wanted += jars.in_sets(sets, version)
    except EtlError as error:
        return _wrong("jars", error)
    faults = {jar: what for jar in wanted if (what := jars.fault(jar, directory / jar.path))}
    gone = [name for name in (own_jars(job) if job else []) if "://" not in name and not Path(name).is_file()]
    if gone:
        return Finding("jars", "error", f"no such file, named by the job: {', '.join(gone)}")
    if faults:
        return _missing(faults, len(wanted), list(sets))
    return Finding("jars", "ok", f"{counted(len(wanted), 'jar')} in {directory}")


def _missing(faults: dict[Jar, str], wanted: int, sets: list[str]) -> Finding:
    told = "; ".join(f"{jar.coordinate} {what}" for jar, what in faults.items())
    size = size_text(sum(jar.bytes for jar in faults))
    return Finding(
        "jars",
        "error",
        f"{len(faults)} of {wanted}: {told}",
        f"{' --with '.join(['kctl etl jars fetch', *sets])} ({size})",
    )


def _room(job: Job | None) -> Iterator[Finding]:
    directory = Path(temporary(os.environ))
    there = machine(directory)
    heap = (job.spark if job else Spark()).driver_memory
    try:
        warnings = room(heap, there)
    except EtlError as error:
        yield _wrong("room", error)
        return
    if not os.access(directory, os.W_OK):
        yield Finding("room", "error", f"{directory} cannot be written", "set TMPDIR to another directory")
        return
    memory = "unknown" if there.available is None else size_text(there.available)
    what = f"memory: {memory} free for a heap of {heap}; {directory}: {size_text(there.disk)} free"
    yield Finding("room", "warn" if warnings else "ok", "; ".join(warnings) or what)


def _hadoop(spark: Spark) -> Iterator[Finding]:
    """Checks Hadoop's configuration if it is wanted or set."""
    wanted = spark.master == "yarn"
    if not wanted and not any(os.environ.get(name) for name in hadoop.VARIABLES):
        return
    try:
        found = hadoop.find(os.environ, spark.conf)
        if wanted:
            hadoop.need_yarn(os.environ, found)
    except EtlError as error:
        yield _wrong("hadoop", error)
        return
    managers = hadoop.resource_managers(found.settings)
    yarn = ", ".join(f"{host}:{port}" for host, port in managers) or "not known"
    files = ", ".join(map(str, found.files)) or "no file"
    what = f"YARN: {yarn}; fs.defaultFS: {found.settings.get('fs.defaultFS', 'not set')}; by {files}"
    if wanted and (reasons := unreachable(managers)):
        yield Finding("hadoop", "error", f"YARN's ResourceManager is not responding at {reasons}")
    else:
        yield Finding("hadoop", "ok" if found.files else "warn", what)


def _cluster(reach: Callable[[], str]) -> Finding:
    try:
        return Finding("cluster", "ok", reach())
    except KctlError as error:
        return _wrong("cluster", error)
