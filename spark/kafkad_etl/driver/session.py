"""The Spark session of a job."""

from __future__ import annotations

from typing import Any

from kafkad_etl.messages import Plan, Started

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.enabled": "false",
    # Kafka's admin client finds offsets; the old consumer joined a group for it.
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
    # A failed batch ends the query; else batches that are stopped are called errors.
    "spark.sql.streaming.stopTimeout": "60s",
}
"""Unless `spark.conf` says otherwise."""

LOCAL_SHUFFLE = "spark.sql.shuffle.partitions"


def session_of(plan: Plan) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"kafkad-etl-{plan.job.name}")
    conf = {name: str(value) for name, value in plan.job.spark.conf.items()}
    for name, value in (SETTINGS | conf).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    context = spark.sparkContext
    if LOCAL_SHUFFLE not in conf and context.master.startswith("local"):
        spark.conf.set(LOCAL_SHUFFLE, str(max(2, context.defaultParallelism)))  # 200 tasks take seconds for nothing
    return spark


def started(spark: Any) -> Started:
    import os

    return Started(application=spark.sparkContext.applicationId, spark=spark.version, pid=os.getpid())
