"""Columns of a result, and how their values are written as text, in files and in topics alike."""

from __future__ import annotations

from typing import Any

TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own formats cut times to milliseconds."""


def nested(kind: str) -> bool:
    """Whether csv cannot have a column of this type."""
    return kind.startswith(("array", "map", "struct", "binary", "variant"))


def column(name: str) -> Any:
    """Spark's, whatever its name has in it."""
    from pyspark.sql import functions

    return functions.col(f"`{name.replace('`', '``')}`")
