"""The columns of frames, as SQL names them and their types."""

from __future__ import annotations

import re
from typing import Any

from kafkad_etl.driver.terms import DataFrame

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Names that SQL takes without back quotes."""


def named(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def columns_of(frame: DataFrame) -> list[tuple[str, str]]:
    """The names and types of a frame's columns."""
    return [(field.name, type_text(field.dataType)) for field in frame.schema.fields]


def type_text(kind: Any) -> str:
    """A type as Spark shows it, but with back quotes around the names in it that need them: it can be read again."""
    name = kind.typeName()
    if name == "struct":
        fields = (f"{_as_needed(field.name)}:{type_text(field.dataType)}" for field in kind.fields)
        return f"struct<{','.join(fields)}>"
    if name == "array":
        return f"array<{type_text(kind.elementType)}>"
    if name == "map":
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return str(kind.simpleString())


def _as_needed(name: str) -> str:
    return name if _BARE.fullmatch(name) else named(name)
