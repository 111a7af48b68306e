"""The sinks, one module per kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkad_etl.driver.terms import Sink
from kafkad_etl.facts import TABLES
from kafkad_etl.job import Sink as Settings
from kafkad_etl.messages import Event, Plan

if TYPE_CHECKING:
    from kafkad_etl.driver.sinks.lake.sink import Table


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
    if kind in TABLES:
        from kafkad_etl.driver.sinks.lake.sink import TableSink

        return TableSink(spark, plan, table_of(spark, plan.job.sink))
    raise AssertionError(f"sink.type {kind} needs its block")


def table_of(spark: Any, sink: Settings) -> Table:
    """The table of a lake that a job writes to."""
    if sink.iceberg is not None:
        from kafkad_etl.driver.sinks.lake.iceberg import IcebergTable

        return IcebergTable(spark, sink, sink.iceberg)
    from kafkad_etl.driver.sinks.lake.delta import DeltaTable

    return DeltaTable(spark, sink)
