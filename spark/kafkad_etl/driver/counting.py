"""Counting rows while they pass, instead of reading them once more."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkad_etl.driver.outcome import DataFrame

PATIENCE_MS = 10_000
"""Until Spark has told what it observed: it does so a moment after the action."""


class Counted(NamedTuple):
    rows: DataFrame
    observation: Any
    unobserved: DataFrame
    whole: bool

    def total(self) -> int:
        """After the action. Where not all rows pass, because the SQL needs some or none, they are counted now."""
        if not self.whole:
            return int(self.unobserved.count())
        self.unobserved.sparkSession.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(PATIENCE_MS)
        found = self.observation.get if self.observation._jo.future().isCompleted() else {}
        return int(found["rows"]) if "rows" in found else int(self.unobserved.count())


def counted(rows: DataFrame, *, whole: bool = True) -> Counted:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation = Observation()
    return Counted(rows.observe(observation, f.count(f.lit(1)).alias("rows")), observation, rows, whole)
