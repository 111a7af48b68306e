"""Checks whether Spark supports the file systems of a job's paths: object stores need jars that do not come with
Spark. Those of s3a:// are a set that kctl fetches: see `jars`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import paths_of
from kafkad_etl.job import Job
from kafkad_etl.machine import spark_home
from kafkad_etl.machine.environment import BRING_JARS, comes_with, own_jars, spark_adds_jars


class Store(NamedTuple):
    artifact: str
    """In Maven; its version is that of Spark's own Hadoop, unless it has one here."""
    contains: str
    version: str = ""


_HADOOP = "org/apache/hadoop/fs"
_AZURE = Store("org.apache.hadoop:hadoop-azure", f"{_HADOOP}/azurebfs/AzureBlobFileSystem.class")
_GOOGLE = Store("com.google.cloud.bigdataoss:gcs-connector", "com/google/cloud/hadoop/fs/gcs/", "hadoop3-2.2.26")
STORES = {"abfs": _AZURE, "abfss": _AZURE, "gs": _GOOGLE}
_WORDS = ("--packages", "--jars", "--driver-class-path", "--properties-file", "spark.jars", "extraClassPath")


def faults(
    job: Job, words: Sequence[str] = (), environ: Mapping[str, str] = os.environ, home: Path | None = None
) -> Iterator[EtlError]:
    """Errors for object stores without their jar. `words` are spark-submit options. Packages, class paths and jars
    from URLs are assumed to be sufficient."""
    asked = {scheme: key for key, path in paths_of(job) if (scheme := path.partition("://")[0]) in STORES}
    if not asked:
        return
    home = home or _home()
    if _may_be_brought(job, words, environ, home):
        return
    for scheme, key in asked.items():
        store = STORES[scheme]
        name = store.artifact.partition(":")[2]
        if not any(_has(Path(jar), store.contains) for jar in own_jars(job)) and not comes_with(home, name):
            package = f"{store.artifact}:{store.version or hadoop_version(home)}"
            what = f"{scheme}:// needs a jar that does not come with Spark: {name}"
            hint = f'spark.conf: {{spark.jars.packages: "{package}"}} makes Spark download it'
            yield EtlError(what, EtlExit.ENVIRONMENT, key=key, hints=(hint, "or list the files in spark.jars"))


def check(job: Job, words: Sequence[str] = ()) -> None:
    for fault in faults(job, words):
        raise fault


def _may_be_brought(job: Job, words: Sequence[str], environ: Mapping[str, str], home: Path | None) -> bool:
    settings = any(job.spark.conf.get(name) for name in BRING_JARS) or any(
        name.startswith("spark.hadoop.fs.") and name.endswith(".impl") for name in job.spark.conf
    )
    given = any(word in text for text in words for word in _WORDS)
    return settings or given or any("://" in jar for jar in own_jars(job)) or spark_adds_jars(environ, home)


def _home() -> Path | None:
    try:
        return spark_home.find().home
    except EtlError:
        return None


def _has(jar: Path, name: str) -> bool:
    try:
        with ZipFile(jar) as file:
            return any(each.startswith(name) for each in file.namelist())
    except (OSError, BadZipFile):
        return False  # that it is not there is told elsewhere


def hadoop_version(home: Path | None) -> str:
    names = [path.name for path in (home / "jars").glob("hadoop-client-api-*.jar")] if home else []
    found = re.fullmatch(r"hadoop-client-api-(.+)\.jar", names[0]) if names else None
    return found[1] if found else "3.4.1"
