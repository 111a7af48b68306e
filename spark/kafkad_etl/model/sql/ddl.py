"""Parses columns in Spark's DDL: `id BIGINT NOT NULL, tags ARRAY<STRING> COMMENT 'as typed'`.

It accepts what Spark accepts; sqlglot knows many more types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kafkad_etl.facts import PRECISION
from kafkad_etl.model.sql.terms import NESTED, Columns, Unparsed
from kctl.errors import did_you_mean

_TOKEN = r"""(?xs)
    (?P<blank> \s+ | --[^\n]* | /\*.*?\*/ )
  | (?P<text> [rR]?'(?:[^'\\]|\\.)*' | [rR]?"(?:[^"\\]|\\.)*" )
  | (?P<name> `(?:[^`]|``)+` )
  | (?P<number> [0-9]+\b )
  | (?P<word> [A-Za-z0-9_]+ )
  | (?P<sign> [<>(),:] )
"""
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_SIZED = ("CHAR", "CHARACTER", "VARCHAR")
_SIMPLE = (
    *("BOOLEAN", "BYTE", "TINYINT", "SHORT", "SMALLINT", "INT", "INTEGER", "LONG", "BIGINT", "FLOAT", "REAL", "DOUBLE"),
    *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "BINARY", "VOID", "VARIANT"),
)
_LARGEST = 2**31 - 1
_UNITS = (("YEAR", "MONTH"), ("DAY", "HOUR", "MINUTE", "SECOND"))
"""Units of an INTERVAL, which may range from one TO a later one in the same group."""


class _Column(NamedTuple):
    name: str
    kind: str
    """The first word of its type."""


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def columns_of_ddl(ddl: str) -> Columns:
    """All columns. Raises Unparsed where Spark would stop."""
    reader = _Reader(ddl)
    try:
        found = reader.columns()
    except RecursionError as error:
        raise Unparsed("is nested too deeply") from error
    reader.need("end", "")
    return Columns(tuple(column.name for column in found), True, {column.name.lower(): column.kind for column in found})


class _Reader:
    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = self._read()
        self._token = next(self._tokens)

    def _read(self) -> Iterator[_Token]:
        at, match = 0, re.compile(_TOKEN).match
        while at < len(self._ddl):
            found = match(self._ddl, at)
            if found is None:
                raise self._wrong(at, self._ddl[at:].split(maxsplit=1)[0])
            if found.lastgroup != "blank":
                yield _Token(str(found.lastgroup), found[0], at)
            at = found.end()
        yield _Token("end", "", at)

    def _wrong(self, at: int, near: str, *hints: str) -> Unparsed:
        text = f'cannot be parsed near "{near}"' if near else "cannot be parsed: it ends too early"
        return Unparsed(text, self._ddl.count("\n", 0, at) + 1, at - self._ddl.rfind("\n", 0, at), hints)

    def _taken(self) -> _Token:
        token = self._token
        self._token = next(self._tokens, token)
        return token

    def takes(self, *texts: str) -> str:
        """Consumes and returns the next token if it is one of these words or signs."""
        text = self._token.text.upper()
        return self._taken().text.upper() if text and text in texts else ""

    def need(self, kind: str, *texts: str) -> str:
        token = self._token
        if token.kind != kind or (texts and token.text.upper() not in texts):
            raise self._wrong(token.at, token.text)
        return self._taken().text

    def columns(self, between: str = "") -> list[_Column]:
        """Column definitions; `between` is an optional sign between a name and its type."""
        found = [self._column(between)]
        while self.takes(","):
            found.append(self._column(between))
        return found

    def _column(self, between: str) -> _Column:
        quoted = self._token.kind == "name"
        name = self.need("name" if quoted else "word")
        self.takes(between)
        kind = self._token.text.upper()
        self._type()
        if self.takes("NOT"):
            self.need("word", "NULL")
        if self.takes("COMMENT"):
            self.need("text")
        return _Column(name[1:-1].replace("``", "`") if quoted else name, kind)

    def _type(self) -> None:
        token = self._token
        name = self.need("word").upper()
        if name in NESTED:
            self._nested(name)
        elif name in _SIZED:
            self._size(_LARGEST)
        elif name in _DECIMALS:
            if self._token.text == "(":
                self._decimal()
        elif name == "INTERVAL":
            self._interval()
        elif name not in _SIMPLE:
            known = [*_SIMPLE, *_DECIMALS, *_SIZED, *NESTED, "INTERVAL"]
            raise self._wrong(token.at, token.text, *did_you_mean(name, known))
        elif name == "STRING" and self.takes("COLLATE"):
            self.need("word")

    def _nested(self, name: str) -> None:
        self.need("sign", "<")
        if name == "STRUCT":
            if self._token.text != ">":
                self.columns(between=":")
        else:
            self._type()
        if name == "MAP":
            self.need("sign", ",")
            self._type()
        self.need("sign", ">")

    def _size(self, most: int) -> None:
        self.need("sign", "(")
        self._number(most, "at most")
        self.need("sign", ")")

    def _decimal(self) -> None:
        """A precision and a scale in parentheses."""
        self.need("sign", "(")
        precision = self._number(PRECISION, "DECIMAL has a precision of at most")
        if self.takes(","):
            self._number(precision, "the scale is at most the precision,")
        self.need("sign", ")")

    def _number(self, most: int, hint: str) -> int:
        token = self._token
        text = self.need("number").lstrip("0") or "0"
        if len(text) > len(str(most)) or int(text) > most:
            raise self._wrong(token.at, token.text, f"{hint} {most}")
        return int(text)

    def _interval(self) -> None:
        units = next((units for units in _UNITS if self._token.text.upper() in units), ())
        first = self.takes(*units)
        later = units[units.index(first) + 1 :] if first else ()
        if later and self.takes("TO"):
            self.need("word", *later)
