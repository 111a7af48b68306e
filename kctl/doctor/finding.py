"""The types of a check and of a finding."""

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
    """`items` are the names of what is concerned; `fix` is the command that shows more or mends it.

    Of what may be found many times over, `plural` says it without names, as in "groups are rebalancing".
    """

    severity: Severity
    summary: str
    items: tuple[str, ...] = ()
    fix: str = ""
    plural: str = ""


_TOLD_ONE_BY_ONE = 3


def folded(findings: Iterable[Finding]) -> list[Finding]:
    """Those of one check: more than a few of a kind become one, with their number and all their items."""
    kinds: dict[tuple[Severity, str], list[Finding]] = {}
    for number, finding in enumerate(findings):
        kinds.setdefault((finding.severity, finding.plural or str(number)), []).append(finding)
    told: list[Finding] = []
    for (severity, plural), same in kinds.items():
        if len(same) <= _TOLD_ONE_BY_ONE:
            told += same
        else:
            items = tuple(item for finding in same for item in finding.items)
            told.append(Finding(severity, f"{len(same):,} {plural}", items, same[0].fix))
    return told


class Check(NamedTuple):
    """`needs` are the facts beyond Metadata that it looks at: they are asked only if a check wants them.

    `changes`: its fixes change metadata, which a cluster cannot always do.
    """

    id: str
    doc: str
    find: Callable[[Facts], Iterable[Finding]]
    needs: Sequence[str] = ()
    changes: bool = False
