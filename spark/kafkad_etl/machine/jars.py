"""The jars that jobs need in addition to Spark's own, and the check whether a file is one of them.

Those of the connector, Avro, Protobuf and databases are fetched when a job needs them. Sets, such as iceberg and s3a,
are larger, and fetched only on request.

`jars.json` locks each jar by size and SHA-256, for every PySpark version whose set has been tested; the connector must
match Spark's exact version. Jars are downloaded once into a cache laid out like a Maven repository, so that one
machine's cache can serve as another's repository, and verified before every use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.facts import S3A, TABLES, paths_of
from kafkad_etl.job import Job

_SIGNS = {S3A: "hadoop-aws"}
"""Names by which jars of sets are known, where they are not the set's own."""
JDBC_URLS = {"jdbc:sqlite:": "sqlite", "jdbc:postgresql:": "postgresql"}


class Locked(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class Lock(msgspec.Struct, frozen=True):
    """The locked coordinates by Spark version or database, and each jar's checksum."""

    connector: dict[str, list[str]]
    avro: dict[str, list[str]]
    protobuf: dict[str, list[str]]
    jdbc: dict[str, list[str]]
    sets: dict[str, dict[str, list[str]]]
    """By Spark version and name."""
    jars: dict[str, Locked]


class Jar(NamedTuple):
    coordinate: str
    """group:name:version"""
    bytes: int
    sha256: str

    @property
    def path(self) -> str:
        """Path in a Maven repository."""
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
            f"the Kafka connector for PySpark {version} has no locked checksums",
            EtlExit.ENVIRONMENT,
            hints=(
                f"supported: {', '.join(f'pip install pyspark=={known}' for known in known_versions())}",
                "or spark.conf: {spark.jars.packages: …} in the job, and Spark downloads what you name there",
            ),
        )
    return jars_of(lock().connector[version])


def set_names() -> list[str]:
    return sorted({name for sets in lock().sets.values() for name in sets})


def set_of(name: str, version: str) -> list[Jar]:
    return jars_of(lock().sets.get(version, {}).get(name, ()))


def in_sets(names: Iterable[str], version: str) -> list[Jar]:
    return [jar for name in names for jar in set_of(name, version)]


def every_jar(version: str, sets: Sequence[str] = ()) -> list[Jar]:
    """All jars that any job may need, with those of the sets."""
    drivers = [name for names in lock().jdbc.values() for name in names]
    formats = [*lock().avro.get(version, []), *lock().protobuf.get(version, [])]
    found = [*connector(version), *jars_of([*formats, *drivers])]
    return found + in_sets(sets, version)


def for_programs(version: str) -> list[Jar]:
    """The jars that programs get: the connector and Avro. None takes the place of a driver that they may bring."""
    return [*connector(version), *jars_of(lock().avro[version])]


def needed(job: Job, version: str) -> list[Jar]:
    """The jars that this job needs; none if it leaves them to Spark."""
    if "spark.jars.packages" in job.spark.conf:
        return []
    found = connector(version)
    if "avro" in _formats(job):
        found += jars_of(lock().avro[version])
    if "protobuf" in _formats(job):
        found += jars_of(lock().protobuf[version])
    return found + jars_of(name for database in _databases(job) for name in lock().jdbc[database])


def sets_needed(job: Job) -> dict[str, str]:
    """The sets that this job needs and does not bring itself, each with the key that asks for it."""
    conf = job.spark.conf
    if "spark.jars.packages" in conf:
        return {}
    wanted: dict[str, str] = {job.sink.type: "sink.type"} if job.sink.type in TABLES else {}
    for key, path in paths_of(job):
        if path.startswith(f"{S3A}://") and "spark.hadoop.fs.s3a.impl" not in conf:
            wanted.setdefault(S3A, key)
    own = (*job.spark.jars, str(conf.get("spark.jars", "")))
    return {name: key for name, key in wanted.items() if not any(_SIGNS.get(name, name) in jar for jar in own)}


def missing_sets(sets: Mapping[str, str], version: str, directory: Path) -> Iterator[EtlError]:
    """An error for each of these sets that has not been fetched."""
    for name, key in sets.items():
        jars = set_of(name, version)
        faults = [f"{jar.coordinate} {what}" for jar in jars if (what := fault(jar, directory / jar.path))]
        if faults or not jars:
            size = sum(jar.bytes for jar in jars) / 1e6
            hints = (f"kctl etl jars fetch --with {name} ({size:,.0f} MB, once)",)
            what = "; ".join(faults) or f"there is none with locked checksums for PySpark {version}"
            yield EtlError(
                f"the jars of {name} are not in the cache: {what}", EtlExit.ENVIRONMENT, key=key, hints=hints
            )


def _formats(job: Job) -> set[str]:
    return {job.key.format, job.value.format} | ({job.sink.topic.format} if job.sink.topic else set())


def _databases(job: Job) -> list[str]:
    """Databases whose driver is needed and not supplied by the job."""
    urls = [str(lookup.options.get("url", "")) for lookup in job.transform.lookups.values() if lookup.format == "jdbc"]
    if job.sink.jdbc and not job.sink.jdbc.driver_jar:
        urls.append(job.sink.jdbc.url)
    if job.sink.iceberg:
        urls.append(job.sink.iceberg.catalog.url)
    return sorted({name for prefix, name in JDBC_URLS.items() for url in urls if url.startswith(prefix)})


def fault(jar: Jar, path: Path) -> str:
    """The fault in a file; empty if it is the locked jar."""
    try:
        there = path.stat()
        if there.st_size != jar.bytes:
            return f"has {there.st_size:,} bytes instead of {jar.bytes:,}"
        digest = _digest(path, there.st_mtime_ns, there.st_ino)
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if digest == jar.sha256 else f"has SHA-256 {digest} instead of {jar.sha256}"


@cache
def _digest(path: Path, _changed: int, _file: int) -> str:
    """The SHA-256 of a file, found out once while it does not change: half a gigabyte takes half a second or more."""
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
