"""Compares a result's columns with those of a table of a lake. Pure.

Types are written as Spark writes them. A table's column may be wider than the result's; whatever else differs is
refused before anything is written, since each table format would convert it in its own way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Failed
from kafkad_etl.sql_text import as_needed, casting, named

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_FRACTIONS = ("float", "double")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class Column(NamedTuple):
    name: str
    type: str
    nullable: bool = True


class Name(NamedTuple):
    """A table's name as people read it, and in SQL."""

    shown: str
    sql: str


class Fit(NamedTuple):
    """How a result's columns become rows of the table."""

    selected: tuple[str, ...]
    """An expression for each column of the table, in its order."""
    added: tuple[Column, ...] = ()
    """Columns that the table must get first."""


def fit(columns: Sequence[tuple[str, str]], table: Sequence[Column], name: Name, *, adds: bool) -> Fit:
    """Matches columns by name, ignoring case as Spark does. Raises JobFailed if the result does not fit the table."""
    given = {column.lower(): (column, kind) for column, kind in columns}
    there = {column.name.lower() for column in table}
    added = tuple(Column(column, kind) for column, kind in columns if column.lower() not in there)
    if added and not adds:
        raise _refused(
            f"table {name.shown} has no column {', '.join(column.name for column in added)}",
            f"ALTER TABLE {name.sql} ADD COLUMNS "
            f"({', '.join(f'{as_needed(column.name)} {column.type}' for column in added)})",
            "or sink.schema_changes: add_columns",
        )
    selected = []
    for column in (*table, *added):
        source, kind = given.get(column.name.lower(), ("", ""))
        if not source and not column.nullable:
            raise _refused(
                f"table {name.shown} needs a value in {column.name}, which the result does not have",
                f"add a column {column.name} to the SQL",
            )
        if source and not widens(kind, column.type):
            raise _refused(
                f"{source} is {kind}, but {column.name} of table {name.shown} is {column.type}",
                *casting(source, kind, column.type),
            )
        expression = named(source) if source else "NULL"
        selected.append(f"CAST({expression} AS {column.type}) AS {named(column.name)}")
    return Fit(tuple(selected), added)


def widens(kind: str, into: str) -> bool:
    """True if every value of a type is one of the other type as well."""
    if kind == into or kind == "void":
        return True
    for family in (_WHOLE, _FRACTIONS):
        if kind in family and into in family:
            return family.index(kind) <= family.index(into)
    one, other = _DECIMAL.fullmatch(kind), _DECIMAL.fullmatch(into)
    if one and other:
        return one[2] == other[2] and int(one[1]) <= int(other[1])
    return False


def need_partitions(columns: Sequence[tuple[str, str]], partition_by: Sequence[str]) -> None:
    _need("sink.partition_by", partition_by, columns)


def need_keys(columns: Sequence[tuple[str, str]], keys: Sequence[str]) -> None:
    _need("sink.keys", keys, columns)


def _need(key: str, wanted: Sequence[str], columns: Sequence[tuple[str, str]]) -> None:
    names = [name for name, _ in columns]
    unknown = [name for name in wanted if name.lower() not in (each.lower() for each in names)]
    if unknown:
        text = f"{key} names {unknown[0]}, which the result does not have: {', '.join(names)}"
        raise JobFailed(Failed(kind="schema", text=text))


def _refused(text: str, *hints: str) -> JobFailed:
    return JobFailed(Failed(kind="schema", text=text, hints=list(hints)))
