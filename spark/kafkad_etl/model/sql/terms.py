"""Types shared by the modules that inspect a job's SQL. They avoid sqlglot, whose import takes half of a command's
time."""

from __future__ import annotations

from typing import Literal, NamedTuple


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
    nested: tuple[str, ...] = ()
    """Names of those that are arrays, maps or structs, where a schema says so."""

    def lacks(self, name: str) -> bool:
        return self.complete and name.lower() not in {known.lower() for known in self.names}


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
