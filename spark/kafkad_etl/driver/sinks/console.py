"""Sink `console`: shows the first rows of each batch."""

from __future__ import annotations

from collections.abc import Callable

from kafkad_etl.driver.sinks.text_formats import column
from kafkad_etl.driver.terms import BatchId, DataFrame, Written
from kafkad_etl.messages import Event, Rows


class ConsoleSink:
    def __init__(self, limit: int, tell: Callable[[Event], None]) -> None:
        self._limit = limit
        self._tell = tell

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        """Accepts all columns."""

    def finished(self, batch: BatchId) -> Written | None:
        return None

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        ours = not rows.is_cached
        if ours:
            rows.persist()
        try:
            count = rows.count()
            if count:
                self._tell(Rows(rows.columns, shown(rows, self._limit)))
        finally:
            if ours:
                rows.unpersist()
        return Written(count)


def shown(rows: DataFrame, limit: int) -> list[list[str | None]]:
    """Values as Spark's `show` writes them, untruncated; bytes in hexadecimal."""
    from pyspark.sql import functions

    def text(name: str, kind: str) -> DataFrame:
        return functions.hex(column(name)) if kind == "binary" else column(name).cast("string")

    texts = rows.select(*(text(name, kind) for name, kind in rows.dtypes))
    return [list(row) for row in texts.take(limit)]
