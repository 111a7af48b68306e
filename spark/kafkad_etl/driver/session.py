"""The Spark session of a job; most of its settings are in spark-submit's words."""

from __future__ import annotations

import os
from typing import Any

from kafkad_etl.messages import Plan, Started

RECENT_PROGRESS = "1000"
"""Batches whose progress Spark remembers until it has been told: short ones may come faster than we look."""


def session_of(plan: Plan) -> Any:
    """Sets the job's settings once more: those that hold a secret are in no words of spark-submit."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config("spark.sql.streaming.numRecentProgressUpdates", RECENT_PROGRESS)
    for name, value in plan.job.spark.conf.items():
        builder = builder.config(name, str(value).lower() if isinstance(value, bool) else str(value))
    return builder.getOrCreate()


def started(spark: Any) -> Started:
    return Started(application=spark.sparkContext.applicationId, spark=spark.version, pid=os.getpid())
