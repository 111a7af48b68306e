"""Where rows go: one module for each kind of sink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkad_etl.driver.outcome import Sink
from kafkad_etl.messages import Event, Plan


def sink_of(spark: Any, plan: Plan, tell: Callable[[Event], None]) -> Sink:
    """`tell`: what the user hears of it beside what the methods return: warnings, and the rows of a console."""
    kind = plan.job.sink.type
    if kind in ("parquet", "json", "csv"):
        from kafkad_etl.driver.sinks.files import FileSink

        return FileSink(spark, plan, tell)
    if kind == "console":
        from kafkad_etl.driver.sinks.console import ConsoleSink

        return ConsoleSink(plan.job.sink.console.limit, tell)
    if kind == "none":
        from kafkad_etl.driver.sinks.nothing import NothingSink

        return NothingSink()
    raise NotImplementedError(kind)
