"""Detects a cluster that provides no executor: Spark waits forever and says so only in its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 30.0


class Executors:
    """Warns once if tasks have waited too long for the first executor."""

    def __init__(self, spark: Any, warn: Callable[[str], None]) -> None:
        self._spark, self._warn = spark, warn
        self._waiting_since: float | None = None
        self._done = spark.sparkContext.master.startswith("local")

    def look(self, now: float) -> None:
        """Called while tasks are waiting or running."""
        if self._done:
            return
        if self._spark._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver is one
            self._done = True
        elif self._waiting_since is None:
            self._waiting_since = now
        elif now - self._waiting_since >= PATIENCE_SECONDS:
            self._done = True
            memory = self._spark.sparkContext.getConf().get("spark.executor.memory")
            self._warn(
                f"{self._spark.sparkContext.master} has not provided an executor for {PATIENCE_SECONDS:.0f} s: "
                "tasks wait "
                f"until it has room for {memory} (spark.executor_memory) plus Spark's overhead"
            )
