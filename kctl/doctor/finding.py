"""What a check finds, and what a check is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kctl.doctor.facts import Facts


class Severity(IntEnum):
    INFO = 1
    """Worth knowing."""
    WARN = 2
    """One more failure away from harm, or harm for some."""
    ERROR = 3
    """Something does not work, or data are lost."""


class Finding(NamedTuple):
    """`items` are the names of what is concerned; `fix` is the command that shows more or mends it."""

    severity: Severity
    summary: str
    items: tuple[str, ...] = ()
    fix: str = ""


class Check(NamedTuple):
    """`needs` are the facts beyond Metadata that it looks at: they are asked only if a check wants them."""

    id: str
    doc: str
    find: Callable[[Facts], Iterable[Finding]]
    needs: Sequence[str] = ()
