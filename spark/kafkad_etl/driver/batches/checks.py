"""Checks that must hold before a batch is written."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from kafkad_etl.driver.batches.transform import OUT
from kafkad_etl.driver.failures import sql_failed
from kafkad_etl.driver.terms import DataFrame, JobFailed
from kafkad_etl.job import Check
from kafkad_etl.messages import Failed


def holds(found: Any, expected: Any) -> bool:
    """Compares a result with the expected value: numbers numerically, types unknown to YAML by their text."""
    if isinstance(expected, bool) or isinstance(found, bool) or found is None or expected is None:
        return type(found) is type(expected) and bool(found == expected)
    if isinstance(expected, int | float) and isinstance(found, int | float | Decimal):
        return Decimal(str(found)) == Decimal(str(expected))
    return str(found) == str(expected)


def check(out: DataFrame, checks: tuple[Check, ...], batch: int, warn: Callable[[str], None]) -> None:
    from pyspark.errors import AnalysisException

    out.createOrReplaceTempView(OUT)
    for number, each in enumerate(checks, start=1):
        try:
            rows = out.sparkSession.sql(each.sql).take(2)
        except AnalysisException as error:
            raise sql_failed(error, f"checks[{number - 1}]") from error
        found = rows[0][0] if rows else None
        if len(rows) == 1 and holds(found, each.expect):
            continue
        said = f"gives {found}" if len(rows) == 1 else "gives no row" if not rows else "gives more than one row"
        text = f"check {number} failed in batch {batch}: {each.sql.strip()} {said}, expected {each.expect}"
        if each.on_fail == "fail":
            raise JobFailed(Failed(kind="check", text=text, hints=["nothing from this batch was written"]))
        warn(text)
