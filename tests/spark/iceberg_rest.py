"""Iceberg's own server of a REST catalog, which is among its test fixtures. Hadoop's classes come with PySpark."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.oracle import kafka as oracle

JARS = "iceberg-rest"
MAIN = "org.apache.iceberg.rest.RESTCatalogServer"


def missing() -> str | None:
    return oracle.missing(JARS, "iceberg-open-api")


@contextmanager
def running(spark_home: Path, directory: Path) -> Iterator[str]:
    """The URL of a catalog whose tables are in the directory."""
    port = oracle.free_port()
    jars = _fetched()
    classes = f"{jars}/*:{':'.join(map(str, (spark_home / 'jars').glob('hadoop-client-*.jar')))}"
    settings = {"WAREHOUSE": directory, "URI": f"jdbc:sqlite:{directory}/catalog.db", "REST_PORT": port}
    variables = [f"CATALOG_{name}={value}" for name, value in settings.items()]
    java = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    directory.mkdir(parents=True, exist_ok=True)
    server = oracle.Server(["env", *variables, *java, "-cp", classes, MAIN], port)
    try:
        server.wait_ready()
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()


def _fetched() -> Path:
    """The directory with its jars, which one worker fetches for all."""
    cache = oracle.jars_directory(JARS).parent
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{JARS}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return oracle.fetch(JARS, "iceberg-open-api")
