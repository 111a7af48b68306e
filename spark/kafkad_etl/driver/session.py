"""The Spark session of a job; most of its settings are in spark-submit's words."""

from __future__ import annotations

import os
from typing import Any

from kafkad_etl.driver.sinks.delta import SETTINGS
from kafkad_etl.messages import Plan, Started

RECENT_PROGRESS = "1000"
"""Batches whose progress Spark remembers until it has been told: short ones may come faster than we look."""


def session_of(plan: Plan) -> Any:
    """Of the job's settings those that hold a secret are in no words of spark-submit."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # else SparkConf would not know spark-submit's words
    given = SparkConf()
    builder = SparkSession.builder.config("spark.sql.streaming.numRecentProgressUpdates", RECENT_PROGRESS)
    defaults = SETTINGS if plan.job.sink.type == "delta" else {}
    for name, value in {**defaults, **plan.job.spark.conf}.items():
        if not given.contains(name):
            builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()


def started(spark: Any) -> Started:
    return Started(application=spark.sparkContext.applicationId, spark=spark.version, pid=os.getpid())
