"""Parses SQL into sqlglot's trees, with positions."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from kafkad_etl.model.sql.terms import Unknown, Unparsed

_WINDOW = re.compile(r"\bwindow(?=\s*\()", re.IGNORECASE)
TIME_WINDOWS = ("win_ow", "session_window")
"""Replacement for Spark's function `window`, which sqlglot takes for a clause; it has the same length."""


_CHANGES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter)
_AFTER_NO_COMMA = {"COMMA", "FROM", "WHERE", "R_PAREN", "GROUP_BY", "ORDER_BY", "HAVING", "LIMIT"}
_PIECE = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|[^'\"`/-]+|.", re.DOTALL)
"""Matches quoted text, a comment, or anything else; a quote that stands alone is unterminated."""


class Position(NamedTuple):
    line: int = 0
    column: int = 0


def query_of(sql: str) -> exp.Query:
    """Parses exactly one SELECT."""
    text = _WINDOW.sub(TIME_WINDOWS[0], sql)
    trees = [tree for tree in _parsed(text) if tree is not None]
    if len(trees) != 1:
        raise Unparsed("must be a single SELECT" if trees else "is empty", 1, 1)
    if isinstance(trees[0], _CHANGES):
        raise Unparsed("must be a SELECT: jobs cannot change data with SQL", 1, 1)
    if not isinstance(trees[0], exp.Query):
        raise Unknown("is not a SELECT", 1, 1)
    _need_between_commas(text)
    return trees[0]


def _parsed(text: str) -> list[Any]:
    try:
        return sqlglot.parse(text, read="spark")
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        near = first.get("highlight") or ""
        said = f'cannot be parsed near "{near}"' if near else "cannot be parsed"
        where = Position(first.get("line") or 0, max((first.get("col") or 0) - len(near) + 1, 0))
        if near and where == _where(text, len(text.rstrip()) - len(near)):
            said = f'ends too early, after "{near}"'
        raise Unparsed(said, *where) from error
    except SqlglotError as error:
        raise Unparsed("cannot be parsed: unterminated quote or comment", *_where(text, _unclosed(text))) from error
    except RecursionError as error:
        raise Unparsed("is nested too deeply") from error


def _unclosed(text: str) -> int:
    """The position of the unterminated quote or comment."""
    for piece in _PIECE.finditer(text):
        if piece[0] in ("'", '"', "`") or (piece[0] == "/" and text.startswith("/*", piece.start())):
            return piece.start()
    return 0


def _need_between_commas(text: str) -> None:
    """Rejects a superfluous comma, which sqlglot ignores and Spark does not."""
    tokens = sqlglot.tokenize(text, read="spark")
    for comma, after in pairwise(tokens):
        if comma.token_type.name == "COMMA" and after.token_type.name in _AFTER_NO_COMMA:
            where = _where(text, after.start)
            raise Unparsed(f'cannot be parsed near "{after.text}": nothing follows the comma', *where)


def _where(text: str, at: int) -> Position:
    return Position(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))


def position(node: Any, sql: str) -> Position:
    """The position of the first name in `node`."""
    starts = [one.meta["start"] for one in node.walk() if "start" in one.meta]
    if not starts:
        return Position()
    return _where(sql, min(starts))
