"""`ssl.principal.mapping.rules`: which user a certificate's name stands for.

Rules are `DEFAULT`, the name as it is, or `RULE:pattern/replacement/` with L or U behind it for small or capital
letters. The first whose pattern fits the whole name decides. Patterns are Java's; those that Python reads otherwise are
refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from kafkad.config.java_patterns import compiled, expanded

_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_PARSER = re.compile(_RULE)
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)")


class Rule(NamedTuple):
    """`pattern` is None for DEFAULT."""

    text: str
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def name_of(self, subject: str) -> str | None:
        """None where the rule does not fit."""
        pattern = self.pattern
        if pattern is None:
            return subject
        if pattern.fullmatch(subject) is None:
            return None
        name = pattern.sub(lambda match: expanded(self.replacement, match), subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


@dataclass(frozen=True, slots=True)
class PrincipalMapping:
    rules: tuple[Rule, ...]

    @classmethod
    def of(cls, text: str) -> PrincipalMapping:
        """Raises ValueError, in Kafka's words where Kafka refuses it too."""
        return cls(tuple(rule for part in _SPLITTER.finditer(text.strip()) for rule in _parsed(part[1])))

    def user_of(self, subject: str) -> str:
        """Raises ValueError if no rule fits."""
        for rule in self.rules:
            name = rule.name_of(subject)
            if name is not None:
                return name
        raise ValueError(f"No rules apply to {subject}, rules [{', '.join(rule.text for rule in self.rules)}]")


def _parsed(text: str) -> tuple[Rule, ...]:
    match = _PARSER.match(text)
    end = match.end() if match else 0
    if match is None or end != len(text):
        raise ValueError(f"Invalid rule: `{text}`, unmatched substring: `{text[end:]}`")
    if match[1]:
        return (Rule("DEFAULT"),)
    if match[2] is None:
        return ()
    shown = f"RULE:{match[2]}/{match[4]}" + (f"/{match[6]}" if match[6] else "")
    return (Rule(shown, compiled(match[2]), match[4], match[6]),)
