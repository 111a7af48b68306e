"""The sinks, one module per kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkad_etl.driver.terms import Sink
from kafkad_etl.messages import Event, Plan


def sink_of(spark: Any, plan: Plan, tell: Callable[[Event], None]) -> Sink:
    """The sink of a job. `tell` reports what its methods do not return: warnings, and rows for the console."""
    kind = plan.job.sink.type
    if kind in ("parquet", "json", "csv"):
        from kafkad_etl.driver.sinks.files.sink import FileSink

        return FileSink(spark, plan, tell)
    if kind == "console":
        from kafkad_etl.driver.sinks.console import ConsoleSink

        return ConsoleSink(plan.job.sink.console.limit, tell)
    if kind == "none":
        from kafkad_etl.driver.sinks.noop import NoopSink

        return NoopSink()
    if kind == "topic" and plan.job.sink.topic is not None:
        if plan.job.sink.topic.delivery == "exactly-once":
            from kafkad_etl.driver.sinks.transactional import TransactionalSink

            return TransactionalSink(spark, plan, plan.job.sink.topic)
        from kafkad_etl.driver.sinks.topic import TopicSink

        return TopicSink(spark, plan, plan.job.sink.topic)
    if kind == "jdbc" and plan.job.sink.jdbc is not None:
        from kafkad_etl.driver.sinks.jdbc.sink import JdbcSink

        return JdbcSink(spark, plan, plan.job.sink.jdbc)
    if kind == "iceberg" and plan.job.sink.iceberg is not None:
        from kafkad_etl.driver.sinks.lake.iceberg import IcebergTable
        from kafkad_etl.driver.sinks.lake.sink import TableSink

        return TableSink(spark, plan, IcebergTable(spark, plan.job.sink, plan.job.sink.iceberg))
    if kind == "delta":
        from kafkad_etl.driver.sinks.lake.delta import DeltaTable
        from kafkad_etl.driver.sinks.lake.sink import TableSink

        return TableSink(spark, plan, DeltaTable(spark, plan.job.sink))
    raise AssertionError(f"sink.type {kind} needs its block")
