"""SQL to sqlglot's trees, with positions."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from kafkad_etl.model.sql.terms import Unparsed

_WINDOW = re.compile(r"\bwindow(?=\s*\()", re.IGNORECASE)
TIME_WINDOWS = ("win_ow", "session_window")
"""sqlglot takes Spark's function `window` for a clause, so it gets another name, as long as the old one."""


class Position(NamedTuple):
    line: int = 0
    column: int = 0


def query_of(sql: str) -> exp.Query:
    """Exactly one SELECT."""
    trees = [tree for tree in _parsed(_WINDOW.sub(TIME_WINDOWS[0], sql)) if tree is not None]
    if len(trees) != 1:
        raise Unparsed("has to be one SELECT" if trees else "is empty")
    if not isinstance(trees[0], exp.Query):
        raise Unparsed("has to be a SELECT", 1, 1)
    return trees[0]


def _parsed(text: str) -> list[Any]:
    try:
        return sqlglot.parse(text, read="spark")
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = first.get("highlight") or ""
        said = f'cannot be read near "{near}"' if near else "cannot be read"
        raise Unparsed(said, first.get("line") or 0, max((first.get("col") or 0) - len(near) + 1, 0)) from error
    except SqlglotError as error:
        raise Unparsed("cannot be read: a quote or a comment has no end") from error
    except RecursionError as error:
        raise Unparsed("is nested too deeply") from error


def position(node: Any, sql: str) -> Position:
    """Where the first name in `node` stands."""
    starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
    if not starts:
        return Position()
    before = sql[: min(starts)]
    return Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
