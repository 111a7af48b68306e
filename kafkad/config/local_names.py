"""`sasl.kerberos.principal.to.local.rules`: which user a Kerberos principal is here.

Rules are `DEFAULT`, the first part of a principal of the broker's own realm, or `RULE:[n:format](match)s/from/to/gL`
for principals of n parts: `$1` and `$2` of the format are these, `$0` is the realm. All behind the format may be left
out; g replaces every match, L and U write the name in small and in capital letters. The first rule that fits decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafkad.config.java_patterns import compiled, expanded

_PRINCIPAL = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(r"RULE:\[(\d+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?", re.ASCII)
_PART = re.compile(r"\$(\d*)", re.ASCII)


class _Rule(NamedTuple):
    """One that is not DEFAULT."""

    parts: int
    format: str
    match: re.Pattern[str] | None
    replaced: re.Pattern[str] | None
    replacement: str
    everywhere: bool
    case: str

    def name_of(self, parts: tuple[str, ...]) -> str | None:
        """`parts` begin with the realm. None where the rule does not fit."""
        if len(parts) - 1 != self.parts:
            return None
        name = _PART.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and self.match.fullmatch(name) is None:
            return None
        if self.replaced is not None:
            count = 0 if self.everywhere else 1
            name = self.replaced.sub(lambda match: expanded(self.replacement, match), name, count)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


@dataclass(frozen=True, slots=True)
class LocalNames:
    realm: str
    """The broker's own, which DEFAULT is about."""
    rules: tuple[_Rule | None, ...]
    """None is DEFAULT."""

    @classmethod
    def of(cls, rules: Iterable[str], realm: str) -> LocalNames:
        """Raises ValueError."""
        return cls(realm, tuple(None if text == "DEFAULT" else _parsed(text) for text in rules))

    def user_of(self, principal: str) -> str:
        """Raises ValueError if no rule fits, or if what it gives is no simple name."""
        found = _PRINCIPAL.fullmatch(principal)
        if found is None:
            raise ValueError(f"{principal} is no principal that rules are about: NAME@REALM or NAME/HOST@REALM")
        parts = (found[3], found[1]) if found[2] is None else (found[3], found[1], found[2])
        for rule in self.rules:
            if rule is None:
                name = found[1] if found[3] == self.realm else None
            else:
                name = rule.name_of(parts)
            if name is not None:
                return _simple(name, principal)
        raise ValueError(f"none of sasl.kerberos.principal.to.local.rules fits {principal}")


def _simple(name: str, principal: str) -> str:
    if not name or "/" in name or "@" in name:
        raise ValueError(
            f"sasl.kerberos.principal.to.local.rules make {name!r} of {principal}, which is no simple name"
        )
    return name


def _parsed(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ValueError(f"Invalid rule: {text}; expected DEFAULT or RULE:[n:format](match)s/from/to/")
    parts, form = int(found[1]), found[2]
    wrong = [number for number in _PART.findall(form) if not number or int(number) > parts]
    if wrong:
        raise ValueError(f"Invalid rule: {text}: ${wrong[0]} is none of $0 to ${parts}")
    match, replaced = (None if each is None else compiled(each) for each in (found[3], found[4]))
    return _Rule(parts, form, match, replaced, found[5] or "", found[6] is not None, found[7] or "")
