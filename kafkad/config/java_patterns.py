"""Java's regular expressions as settings have them, and what replaces their matches."""

from __future__ import annotations

import re
import warnings

_NAMED_GROUP = re.compile(r"\(\?<(?=[A-Za-z])")


def compiled(pattern: str) -> re.Pattern[str]:
    """As Java: letters and digits of classes are those of ASCII, and `(?<name>…)` is a group. What Python would read
    otherwise is a ValueError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return re.compile(_NAMED_GROUP.sub("(?P<", pattern), re.ASCII)
    except (re.error, FutureWarning, DeprecationWarning) as error:
        raise ValueError(f"the pattern {pattern} cannot be read: {error}") from error


def expanded(replacement: str, match: re.Match[str]) -> str:
    """`$1` is a group, `\\x` is x. A group that the pattern does not have stays as it is written."""
    result, at, groups = [], 0, match.re.groups
    while at < len(replacement):
        char = replacement[at]
        at += 1
        if char == "\\" and at < len(replacement):
            result.append(replacement[at])
            at += 1
        elif char == "$" and replacement[at : at + 1].isdecimal() and int(replacement[at]) <= groups:
            number = int(replacement[at])
            at += 1
            while replacement[at : at + 1].isdecimal() and number * 10 + int(replacement[at]) <= groups:
                number = number * 10 + int(replacement[at])
                at += 1
            result.append(match[number] or "")
        else:
            result.append(char)
    return "".join(result)
