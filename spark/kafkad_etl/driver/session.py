"""The Spark session of a job. Most settings are passed on spark-submit's command line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kafkad_etl.driver.sinks.lake import delta, iceberg
from kafkad_etl.job import Scalar, Sink
from kafkad_etl.messages import Plan, Started

RECENT_PROGRESS = "1000"
"""Number of progress reports Spark keeps until they are read; short batches may come faster than we poll."""


def session_of(plan: Plan) -> Any:
    """The session. It adds settings that contain secrets, which spark-submit's command line does not have."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # else SparkConf would not know spark-submit's words
    given = SparkConf()
    builder = SparkSession.builder.config("spark.sql.streaming.numRecentProgressUpdates", RECENT_PROGRESS)
    for name, value in {**session_settings(plan.job.sink), **plan.job.spark.conf}.items():
        if not given.contains(name):
            builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()


def session_settings(sink: Sink) -> dict[str, str]:
    """Settings that the sink's tables need."""
    if sink.type == "iceberg":
        return iceberg.session_settings(sink)
    return delta.SETTINGS if sink.type == "delta" else {}


def configured(session: Any, conf: Mapping[str, Scalar]) -> Any:
    """A further session of the same Spark, with those of a job's settings that may change while Spark runs."""
    for name, value in conf.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, str(value).lower() if isinstance(value, bool) else str(value))
    return session


def started(spark: Any) -> Started:
    return Started(application=spark.sparkContext.applicationId, spark=spark.version, pid=os.getpid())
