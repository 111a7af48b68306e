"""Types shared by the modules that inspect a job's SQL. They avoid sqlglot, whose import takes half of a command's
time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

NESTED = ("ARRAY", "MAP", "STRUCT")


class Finding(NamedTuple):
    """A finding: definitely `wrong`; a `doubt`, which only Spark can decide; or a `note`, which is no mistake."""

    level: Literal["wrong", "doubt", "note"]
    path: str
    text: str
    hints: tuple[str, ...] = ()
    line: int = 0
    column: int = 0


class Columns(NamedTuple):
    """Column names, all of them if `complete`. Spark ignores their case."""

    names: tuple[str, ...] = ()
    complete: bool = False
    types: Mapping[str, str] = {}
    """The first word of types in DDL, by names in lower case; of those that are known from here."""

    @property
    def nested(self) -> tuple[str, ...]:
        """Names of those that are known to be arrays, maps or structs."""
        return tuple(name for name in self.names if self.type_of(name) in NESTED)

    def lacks(self, name: str) -> bool:
        return self.complete and name.lower() not in {known.lower() for known in self.names}

    def type_of(self, name: str) -> str:
        """Empty if it is not known."""
        return self.types.get(name.lower(), "")


class Unparsed(Exception):
    """SQL that cannot be parsed. `line` and `column` count from 1; 0 is unknown."""

    def __init__(self, text: str, line: int = 0, column: int = 0, hints: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        self.column = column
        self.hints = hints

    def at(self, path: str) -> Finding:
        return Finding("wrong", path, self.text, self.hints, self.line, self.column)


class Unknown(Unparsed):
    """SQL that can be parsed but is of a kind not checked here."""

    def at(self, path: str) -> Finding:
        hint = "if Spark accepts it, `kctl etl run` runs it anyway"
        return Finding("doubt", path, self.text, (*self.hints, hint), self.line, self.column)
