"""Counts rows as they pass instead of reading them again."""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkad_etl.driver.terms import DataFrame

PATIENCE_MS = 10_000
"""Time to wait for Spark to report an observation, which it does shortly after the action."""


class Counted(NamedTuple):
    rows: DataFrame
    observation: Any
    unobserved: DataFrame
    expressions: tuple[str, ...]
    whole: bool

    def total(self) -> int:
        return self.totals()[0]

    def total_of(self, execution: Any) -> int:
        """The total after an execution of these rows that Spark reports to nobody."""
        found = execution.observedMetrics().get(self.observation._name)
        return int(found.get().getLong(0)) if found.isDefined() else self.unobserved.count()

    def totals(self) -> list[int]:
        """Totals after the action. If not all rows passed, because the SQL needs only some, they are counted now."""
        if self.whole:
            self.unobserved.sparkSession.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(PATIENCE_MS)
            if self.observation._jo.future().isCompleted() and (found := self.observation.get):
                return [int(found[f"c{at}"]) for at in range(len(self.expressions))]
        return [int(each) for each in self.unobserved.selectExpr(*self.expressions).first()]


def counted(rows: DataFrame, *further: str, whole: bool = True) -> Counted:
    """Rows that count themselves, and further integer aggregates, as they pass."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation, expressions = Observation(), ("count(*)", *further)
    named = [f.expr(each).alias(f"c{at}") for at, each in enumerate(expressions)]
    return Counted(rows.observe(observation, *named), observation, rows, expressions, whole)
