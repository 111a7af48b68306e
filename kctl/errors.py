"""How a command fails: an exit code that scripts can rely on, and what a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class Exit(IntEnum):
    """What every command's exit code means."""

    DONE = 0
    FAILED = 1
    """A broker refused, or of several items some failed."""
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    """Nobody answered, or not in time."""
    UNAUTHORIZED = 5
    REFUSED = 6
    """By kctl itself: a conflict, or nobody confirmed."""
    FINDINGS = 7
    """The command did its work, and what it looked at is not in order."""
    INTERRUPTED = 130


class KctlError(Exception):
    """What is wrong and where, in one line; `code` as the broker names it; `hints` say what to do next."""

    def __init__(self, what: str, *, exit_code: Exit = Exit.FAILED, code: str = "", hints: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.exit_code = exit_code
        self.code = code
        self.hints = tuple(hints)


def did_you_mean(word: str, known: Sequence[str]) -> tuple[str, ...]:
    """A hint when `word` is close to something known."""
    from difflib import get_close_matches  # only a mistake pays for it

    close = [f'"{name}"' for name in get_close_matches(word, known, n=3, cutoff=0.6)]
    return (f"did you mean {' or '.join(close)}?",) if close else ()
