from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkad_etl import jars, java, spark_home
from kafkad_etl.errors import EtlError
from tests.kctl.conftest import approved, broker, kctl, no_settings_of_the_developer, on_broker

__all__ = ["approved", "broker", "kctl", "no_settings_of_the_developer", "on_broker"]

_CACHE = jars.cache_directory(os.environ)
"""The developer's, since tests have an XDG_CACHE_HOME of their own: jars are fetched once for all of them."""


class SparkReady(NamedTuple):
    version: str
    home: Path
    java_home: Path
    jars: tuple[Path, ...]
    """The connector, spark-avro and the JDBC drivers."""


@pytest.fixture(scope="session")
def _spark() -> SparkReady:
    try:
        spark = spark_home.find()
    except EtlError as error:
        pytest.skip(f"{error.what}; make test-spark installs it")
    found = java.find(spark.version, _CACHE, os.environ, bundled=java.bundled_home())
    there = jars.at_hand(jars.every_jar(spark.version), _CACHE / "jars", os.environ)
    return SparkReady(spark.version, spark.home, found.home, tuple(there))


@pytest.fixture
def spark_ready(_spark: SparkReady, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SparkReady:
    """Jobs can run: Java, PySpark and all jars are there. Skips where PySpark is not installed, which CI does not
    allow; anything else that is missing fails. The current directory, and so ./.etl, is the test's own."""
    monkeypatch.setenv("KAFKAD_ETL_CACHE", str(_CACHE))
    monkeypatch.chdir(tmp_path)
    return _spark
