"""Text formats of a result's values, shared by files and topics."""

from __future__ import annotations

from typing import Any

from kafkad_etl.driver.source.csv_rows import QUOTES
from kafkad_etl.job import Csv
from kafkad_etl.messages import Failed
from kafkad_etl.sql_text import named

TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's default formats truncate times to milliseconds."""


def csv_options(csv: Csv) -> dict[str, str]:
    """Options to write lines of CSV. Spark's own would cut off blanks."""
    blanks = {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
    return {"sep": csv.delimiter, "nullValue": csv.null, **QUOTES, **blanks, **TIMES}


def nested(kind: str) -> bool:
    """True if csv does not support this type."""
    return kind.startswith(("array", "map", "struct", "binary", "variant"))


def csv_mistake(columns: list[tuple[str, str]]) -> Failed | None:
    bad = [f"{name} {kind}" for name, kind in columns if nested(kind)]
    if not bad:
        return None
    hints = ["convert it to text in the SQL with to_json(column) or base64(column)"]
    return Failed(kind="schema", text=f"csv does not support columns of these types: {', '.join(bad)}", hints=hints)


def column(name: str) -> Any:
    """A Spark column with any name."""
    from pyspark.sql import functions

    return functions.col(named(name))
