from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkad_etl.driver.sinks.lake import delta
from kafkad_etl.errors import EtlError
from kafkad_etl.facts import S3A
from kafkad_etl.machine import class_archive, environment, jars, java, spark_home
from kafkad_etl.machine.cache import cache_directory
from kafkad_etl.machine.download import fetched
from kafkad_etl.process import warming
from tests.kctl.conftest import approved, broker, kctl, no_settings_of_the_developer, on_broker
from tests.oracle.kafka import Kafka, missing
from tests.spark import apicurio
from tests.spark.apicurio import Apicurio
from tests.spark.shared_spark import SharedSpark

__all__ = ["approved", "broker", "kctl", "no_settings_of_the_developer", "on_broker"]

CACHE = cache_directory(os.environ)
"""The developer's, since tests have an XDG_CACHE_HOME of their own: jars are fetched once for all of them."""


class SparkReady(NamedTuple):
    version: str
    home: Path
    java_home: Path
    jars: tuple[Path, ...]
    """The connector, spark-avro, the JDBC drivers, and those of tables."""
    archive: Path | None
    """The archive of Spark's classes; None where this Java makes none."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test of a worker is the first to need Spark waits for its jars, for its archive and for its start."""
    for item in items:
        if "_spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def _spark() -> SparkReady:
    try:
        spark = spark_home.find()
    except EtlError as error:
        pytest.skip(f"{error.what}; make test-spark installs it")
    found = java.find(spark.version, CACHE, os.environ, bundled=java.bundled_home())
    sets = [name for name in jars.set_names() if name != S3A]  # half a gigabyte: only tests of object stores fetch it
    there = fetched(jars.every_jar(spark.version, sets), CACHE / "jars", os.environ)
    warming.archive(environment.bare(os.environ), CACHE, os.environ)  # the first worker does, for all
    archive = class_archive.find(found, spark.home, CACHE)
    return SparkReady(spark.version, spark.home, found.home, tuple(there), archive)


@pytest.fixture(scope="session")
def spark(_spark: SparkReady) -> Iterator[Any]:
    """One Spark inside this process for all tests that look at rows, or at what a sink makes of them."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    before = dict(os.environ)
    os.environ |= {"JAVA_HOME": str(_spark.java_home), "SPARK_HOME": str(_spark.home), "SPARK_LOCAL_IP": "127.0.0.1"}
    if _spark.archive:
        os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:SharedArchiveFile={_spark.archive} -XX:+UseSerialGC"
    settings = {
        "spark.jars": ",".join(map(str, _spark.jars)),
        "spark.driver.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in {**settings, **delta.SETTINGS}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    gateway = SparkContext._gateway
    yield session
    session.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)
    SparkContext._gateway = SparkContext._jvm = None
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def spark_ready(_spark: SparkReady, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SparkReady:
    """Jobs can run: Java, PySpark and all jars are there. Skips where PySpark is not installed, which CI does not
    allow; anything else that is missing fails. The current directory, and so ./.etl, is the test's own. Their JVMs
    live for seconds, in which compiling a second time, for speed, takes half of the processor."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setenv("KAFKAD_ETL_CACHE", str(CACHE))
    monkeypatch.chdir(tmp_path)
    return _spark


@pytest.fixture
def shared_spark(
    spark: Any, spark_ready: SparkReady, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SharedSpark]:
    """Jobs that `kctl` runs in this process are carried out by that one Spark."""
    with SharedSpark(spark_ready.version, spark_ready.java_home, spark_ready.jars, tmp_path) as shared:
        monkeypatch.setattr(environment, "find", lambda *_: shared.environment)
        monkeypatch.setattr(spark, "stop", lambda: None)  # by the driver, at the end of each job
        yield shared


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """One real Kafka for all tests of a worker: use topics and groups of your own."""
    if why := missing("3.9"):
        pytest.skip(why)
    settings = {"auto.create.topics.enable": "false", "offsets.topic.num.partitions": "1"}
    with Kafka("3.9", heap="384m", settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def registry() -> Iterator[Apicurio]:
    if why := apicurio.missing():
        pytest.skip(why)
    with apicurio.running() as registry:
        registry.be_compatible()
        yield registry
