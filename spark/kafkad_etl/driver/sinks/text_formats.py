"""Text formats of a result's values, shared by files and topics."""

from __future__ import annotations

from typing import Any

from kafkad_etl.driver.source.csv_rows import QUOTES
from kafkad_etl.job import Csv
from kafkad_etl.messages import Failed

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


def casting(name: str, kind: str, into: str) -> list[str]:
    """The cast to another type, as a hint; none where Spark has no such cast."""
    one, other = kind.partition("<")[0], into.partition("<")[0]
    has_parts = {"array", "map", "struct"}
    if one != other and other != "string" and (other in has_parts or one in has_parts | {"binary", "variant"}):
        return []
    return [f"CAST({name} AS {into.upper()}) in the SQL"]


def csv_mistake(columns: list[tuple[str, str]]) -> Failed | None:
    bad = [f"{name} {kind}" for name, kind in columns if nested(kind)]
    if not bad:
        return None
    hints = ["convert it to text in the SQL with to_json(column) or base64(column)"]
    return Failed(kind="schema", text=f"csv does not support columns of these types: {', '.join(bad)}", hints=hints)


def column(name: str) -> Any:
    """A Spark column with any name."""
    from pyspark.sql import functions

    return functions.col(f"`{name.replace('`', '``')}`")
