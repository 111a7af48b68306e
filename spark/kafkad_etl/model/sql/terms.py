"""What all that looks at a job's SQL speaks of. Without sqlglot, whose import is half of what a command costs."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """`wrong` it is; a `doubt` is Spark's to decide, whose SQL is larger than what is known here; a `note` is no
    mistake."""

    level: Literal["wrong", "doubt", "note"]
    path: str
    text: str
    hints: tuple[str, ...] = ()
    line: int = 0
    column: int = 0


class Columns(NamedTuple):
    """`complete`: there are no others. Spark does not tell upper from lower case in names."""

    names: tuple[str, ...] = ()
    complete: bool = False

    def lacks(self, name: str) -> bool:
        return self.complete and name.lower() not in {known.lower() for known in self.names}


class Unparsed(Exception):
    """`line` and `column` count from 1; 0 is not known."""

    def __init__(self, text: str, line: int = 0, column: int = 0, hints: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        self.column = column
        self.hints = hints

    def at(self, path: str) -> Finding:
        return Finding("wrong", path, self.text, self.hints, self.line, self.column)


class Unknown(Unparsed):
    """It can be read, and is nothing that is looked at here."""

    def at(self, path: str) -> Finding:
        hint = "if Spark accepts it, `kctl etl run` runs it anyway"
        return Finding("doubt", path, self.text, (*self.hints, hint), self.line, self.column)
