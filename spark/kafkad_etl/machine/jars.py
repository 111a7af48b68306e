"""The jars that jobs need beside Spark's own: which, and whether a file is one of them.

`jars.json` locks each by its size and SHA-256, for every version of PySpark whose set has been tried; the connector has
to be of the very version of Spark. They are downloaded once into a cache laid out like a Maven repository, so that one
machine's cache can serve another one as its repository, and looked at again before every use.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.job import Job

JDBC_URLS = {"jdbc:sqlite:": "sqlite", "jdbc:postgresql:": "postgresql"}


class Locked(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Lock(msgspec.Struct, frozen=True):
    """Coordinates by version of Spark, or by database; and what each jar is."""

    connector: dict[str, list[str]]
    avro: dict[str, list[str]]
    jdbc: dict[str, list[str]]
    jars: dict[str, Locked]


class Jar(NamedTuple):
    coordinate: str
    """group:name:version"""
    bytes: int
    sha256: str

    @property
    def path(self) -> str:
        """In a Maven repository."""
        group, name, version = self.coordinate.split(":")
        return f"{group.replace('.', '/')}/{name}/{version}/{name}-{version}.jar"


@cache
def lock() -> Lock:
    return msgspec.json.decode(Path(__file__).with_name("jars.json").read_bytes(), type=Lock)


def known_versions() -> list[str]:
    return list(lock().connector)


def jars_of(coordinates: Iterable[str]) -> list[Jar]:
    return [Jar(name, lock().jars[name].bytes, lock().jars[name].sha256) for name in coordinates]


def connector(version: str) -> list[Jar]:
    if version not in lock().connector:
        raise EtlError(
            f"the Kafka connector for PySpark {version} is not among those that are locked with their checksums",
            EtlExit.ENVIRONMENT,
            hints=(
                f"supported: {', '.join(f'pip install pyspark=={known}' for known in known_versions())}",
                "or spark.conf: {spark.jars.packages: …} in the job, and Spark downloads what you name there",
            ),
        )
    return jars_of(lock().connector[version])


def every_jar(version: str) -> list[Jar]:
    """For any job."""
    drivers = [name for names in lock().jdbc.values() for name in names]
    return [*connector(version), *jars_of([*lock().avro.get(version, []), *drivers])]


def needed(job: Job, version: str) -> list[Jar]:
    """By this job. None, when it leaves them to Spark."""
    if "spark.jars.packages" in job.spark.conf:
        return []
    found = connector(version)
    if "avro" in _formats(job):
        found += jars_of(lock().avro[version])
    return found + jars_of(name for database in _databases(job) for name in lock().jdbc[database])


def _formats(job: Job) -> set[str]:
    return {job.key.format, job.value.format} | ({job.sink.topic.format} if job.sink.topic else set())


def _databases(job: Job) -> list[str]:
    """Of which a driver is needed that the job does not bring."""
    urls = [str(lookup.options.get("url", "")) for lookup in job.transform.lookups.values() if lookup.format == "jdbc"]
    if job.sink.jdbc and not job.sink.jdbc.driver_jar:
        urls.append(job.sink.jdbc.url)
    return sorted({name for prefix, name in JDBC_URLS.items() for url in urls if url.startswith(prefix)})


def fault(jar: Jar, path: Path) -> str:
    """What is wrong with the file; nothing if it is the jar that is locked. Ten megabytes take some 10 ms."""
    import hashlib

    try:
        size = path.stat().st_size
        if size != jar.bytes:
            return f"has {size:,} bytes and not {jar.bytes:,}"
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if digest == jar.sha256 else f"has the SHA-256 {digest} and not {jar.sha256}"
