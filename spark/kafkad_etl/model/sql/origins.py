"""Traces a column of the result back to the source, if every source row appears in the result."""

from __future__ import annotations

from typing import NamedTuple

from sqlglot import exp

from kafkad_etl.job import Job
from kafkad_etl.model.sql.columns import Node, argument
from kafkad_etl.model.sql.parsing import query_of
from kafkad_etl.model.sql.queries import steps_of
from kafkad_etl.model.sql.terms import Unparsed

_LEAVES_OUT_ROWS = ("where", "joins", "having", "group", "limit", "offset", "distinct", "qualify", "laterals", "sample")


class _Place(NamedTuple):
    view: str
    column: str


def origin(job: Job, column: str) -> str:
    """The column of `source` that reaches `column` of the result unchanged for every row; empty if unknown."""
    steps = {step.view: step.sql for step in steps_of(job)}
    place: _Place | None = _Place(next(reversed(steps), "source"), column)
    while place is not None and place.view != "source":
        sql = steps.pop(place.view, "")
        place = _before(sql, place.column) if sql else None
    return place.column if place else ""


def _before(sql: str, column: str) -> _Place | None:
    try:
        select = query_of(sql)
    except Unparsed:
        return None
    table = argument(select, "from")
    if not isinstance(select, exp.Select) or table is None or not isinstance(table.this, exp.Table):
        return None
    if select.ctes or any(argument(select, name) for name in _LEAVES_OUT_ROWS):
        return None
    explicit_first = sorted(select.selects, key=lambda each: isinstance(each, exp.Star))
    name = next((found for each in explicit_first if (found := _projected(each, column))), "")
    return _Place(table.this.name.lower(), name) if name else None


def _projected(projection: Node, column: str) -> str:
    """The name of the column that this projection makes `column` of; empty if it is another expression."""
    if isinstance(projection, exp.Star):
        left_out = {each.name.lower() for each in argument(projection, "except") or ()}
        return "" if column.lower() in left_out else column
    if projection.alias_or_name.lower() != column.lower():
        return ""
    inner = projection.this if isinstance(projection, exp.Alias) else projection
    return str(inner.name) if isinstance(inner, exp.Column) and len(inner.parts) < 3 else ""
