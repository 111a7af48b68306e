"""Text formats of a result's values, shared by files and topics."""

from __future__ import annotations

from typing import Any

TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's default formats truncate times to milliseconds."""


def nested(kind: str) -> bool:
    """True if csv does not support this type."""
    return kind.startswith(("array", "map", "struct", "binary", "variant"))


def column(name: str) -> Any:
    """A Spark column with any name."""
    from pyspark.sql import functions

    return functions.col(f"`{name.replace('`', '``')}`")
