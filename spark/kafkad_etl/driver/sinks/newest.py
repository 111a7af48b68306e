"""The newest row of each key of a batch, by the place in the topic that the row came from."""

from __future__ import annotations

from kafkad_etl.driver.terms import DataFrame
from kafkad_etl.facts import POSITION
from kafkad_etl.sql_text import named


def last_of_each_key(rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Keeps the last row of each key by offset; all records of a key are in one partition."""
    if "_offset" not in rows.columns:
        return rows
    from pyspark.sql import Window, functions

    newest = [functions.col(name).desc() for name in reversed(POSITION) if name in rows.columns]
    place = functions.row_number().over(Window.partitionBy(*map(named, keys)).orderBy(*newest))
    return rows.withColumn("_place", place).where("_place = 1").drop("_place")
