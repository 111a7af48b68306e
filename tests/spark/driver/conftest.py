from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.conftest import SparkReady


@pytest.fixture(scope="session")
def session(_spark: SparkReady) -> Iterator[Any]:
    """A Spark inside this process, for whatever needs no broker."""
    from pyspark.sql import SparkSession

    before = dict(os.environ)
    os.environ |= {"JAVA_HOME": str(_spark.java_home), "SPARK_HOME": str(_spark.home), "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        "spark.jars": ",".join(map(str, _spark.jars)),
        "spark.driver.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    yield spark
    spark.stop()
    os.environ.clear()
    os.environ.update(before)
