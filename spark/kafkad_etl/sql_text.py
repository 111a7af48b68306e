"""Names, texts and casts as Spark's SQL writes them."""

from __future__ import annotations

import re

_NUMBERS = (
    *("byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint"),
    *("float", "real", "double", "decimal", "dec", "numeric"),
)
_TIMES = ("date", "timestamp", "timestamp_ltz", "timestamp_ntz")
_WITH_PARTS = ("array", "map", "struct")
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names that SQL takes without back quotes."""


def named(column: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + column.replace("`", "``") + "`"


def as_needed(column: str) -> str:
    """A column's name for people, with back quotes only if it needs them."""
    return column if _BARE.fullmatch(column) else named(column)


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def casting(name: str, kind: str, into: str) -> list[str]:
    """The cast of a column to another type, as a hint; none where Spark has no such cast, or only a strange one."""
    one, other = (re.split(r"\W", text.lower(), maxsplit=1)[0] for text in (kind, into))
    is_there = (
        other in (one, "string")
        or (one == "string" and other not in _WITH_PARTS)
        or (one in _NUMBERS and other in _NUMBERS)
        or (one in _TIMES and other in _TIMES)
        or (one in ("timestamp", "timestamp_ltz") and other in _NUMBERS)
    )
    written = into if "struct<" in into else into.upper()  # names of fields stay as they are
    return [f"CAST({as_needed(name)} AS {written}) in the SQL"] if is_there else []
