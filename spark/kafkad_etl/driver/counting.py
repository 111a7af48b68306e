"""Counting rows while they pass, instead of reading them once more."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkad_etl.driver.terms import DataFrame

PATIENCE_MS = 10_000
"""Until Spark has told what it observed: it does so a moment after the action."""


class Counted(NamedTuple):
    rows: DataFrame
    observation: Any
    unobserved: DataFrame
    expressions: tuple[str, ...]
    whole: bool

    def total(self) -> int:
        return self.totals()[0]

    def totals(self) -> list[int]:
        """After the action. Where not all rows pass, because the SQL needs some or none, they are counted now."""
        if self.whole:
            self.unobserved.sparkSession.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(PATIENCE_MS)
            if self.observation._jo.future().isCompleted() and (found := self.observation.get):
                return [int(found[f"c{at}"]) for at in range(len(self.expressions))]
        return [int(each) for each in self.unobserved.selectExpr(*self.expressions).first()]


def counted(rows: DataFrame, *further: str, whole: bool = True) -> Counted:
    """Rows, and further aggregates that are whole numbers."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation, expressions = Observation(), ("count(*)", *further)
    named = [f.expr(each).alias(f"c{at}") for at, each in enumerate(expressions)]
    return Counted(rows.observe(observation, *named), observation, rows, expressions, whole)
