"""The columns of frames and their types, as SQL writes them."""

from __future__ import annotations

from typing import Any

from kafkad_etl.driver.terms import DataFrame
from kafkad_etl.sql_text import as_needed


def columns_of(frame: DataFrame) -> list[tuple[str, str]]:
    """The names and types of a frame's columns."""
    return [(field.name, type_text(field.dataType)) for field in frame.schema.fields]


def type_text(kind: Any) -> str:
    """A type as Spark shows it, but with back quotes around the names in it that need them: it can be read again."""
    name = kind.typeName()
    if name == "struct":
        fields = (f"{as_needed(field.name)}:{type_text(field.dataType)}" for field in kind.fields)
        return f"struct<{','.join(fields)}>"
    if name == "array":
        return f"array<{type_text(kind.elementType)}>"
    if name == "map":
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return str(kind.simpleString())
