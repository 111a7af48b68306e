"""How many rows were written, counted while they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkad_etl.driver.outcome import DataFrame


def counted(rows: DataFrame, write: Callable[[DataFrame], Any]) -> int:
    from pyspark.sql import Observation, functions

    observation = Observation()
    write(rows.observe(observation, functions.count(functions.lit(1)).alias("rows")))
    return int(observation.get["rows"])
