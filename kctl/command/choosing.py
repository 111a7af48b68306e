"""Choice of the things that a command works on: by name, by pattern, or as lines of standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from typing import Any, TypeVar

import click

from kafkad.errors import ErrorCode
from kctl.command.cluster_names import broker_ids, group_names, topic_names
from kctl.command.options import literal_arguments
from kctl.errors import Exit, KctlError, did_you_mean
from kctl.texts.spelling import quote

R = TypeVar("R")


class Choice:
    """The names and patterns that were asked for. Names are literal: `a.b` is not a pattern."""

    def __init__(
        self,
        kind: str,
        names: Sequence[str],
        match: Sequence[str],
        regex: Sequence[str],
        *,
        takes_patterns: bool = True,
        decide: bool = False,
    ) -> None:
        """`takes_patterns`: whether the command has --match and --regex to advise for a name that looks like one.
        `decide`: names were asked for, though there may be none: they are the lines of standard input."""
        self.kind = kind
        self.takes_patterns = takes_patterns
        self.names = tuple(dict.fromkeys(names))
        self._has_names = decide or bool(names)
        self.match = tuple(match)
        self.regex = tuple(regex)
        self._patterns = _compiled(self.regex)

    def also(self, names: Sequence[str]) -> Choice:
        """These names as well."""
        return Choice(self.kind, [*self.names, *names], self.match, self.regex, decide=self._has_names)

    def __bool__(self) -> bool:
        return bool(self._has_names or self.match or self.regex)

    def required(self) -> None:
        if not (self.names or self.match or self.regex):
            hint = f"name {self.kind}s, or use --match GLOB or --regex RE"
            raise KctlError(f"no {self.kind} is named", exit_code=Exit.USAGE, hints=(hint,))

    @property
    def literal(self) -> bool:
        """True if names alone decide, so that the list of all things is not needed."""
        return self._has_names and not (self.match or self.regex)

    def of(self, known: Iterable[str], silent: Sequence[KctlError] = ()) -> tuple[list[str], list[KctlError]]:
        """The chosen ones of those that are (all, if nothing was asked for), and the names that are not. `silent`: why
        some may be missing from `known`, so that whether a name that is not there exists is not known."""
        known = list(known)
        if not self:
            return known, []
        there = set(known)
        wanted = [name for name in known if self._matches(name)]
        named = set(self.names)
        absent = [name for name in self.names if name not in there]
        patterns = "" if wanted else ", ".join((*self.match, *self.regex))
        if silent:
            missing = [silent[0].reason_of(f'whether {self.kind} "{name}" exists is not known') for name in absent]
            if patterns:
                missing.append(silent[0].reason_of(f"whether a {self.kind} matches {patterns} is not known"))
        else:
            missing = list(all_unknown(self.kind, absent, lambda: known, takes_patterns=self.takes_patterns).values())
            if patterns:
                missing.append(KctlError(f"no {self.kind} matches {patterns}", exit_code=Exit.NOT_FOUND))
        return [name for name in self.names if name in there] + [name for name in wanted if name not in named], missing

    def _matches(self, name: str) -> bool:
        from fnmatch import fnmatchcase

        return any(fnmatchcase(name, glob) for glob in self.match) or any(r.fullmatch(name) for r in self._patterns)


_CODES = {
    "topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name,
    "group": ErrorCode.GROUP_ID_NOT_FOUND.name,
}


_COMPLETING: dict[str, Callable[..., Any]] = {"topic": topic_names, "group": group_names, "broker": broker_ids}


def unknown(kind: str, name: str, known: Sequence[str], *, takes_patterns: bool = False) -> KctlError:
    """`kind` "name" does not exist, with those that look like it, or the option for patterns if the command has it."""
    hints = (pattern_hint(name) if takes_patterns else ()) or did_you_mean(name, known)
    code = _CODES.get(kind, "")
    return KctlError(f'{kind} "{name}" does not exist', exit_code=Exit.NOT_FOUND, code=code, hints=hints)


SUGGESTED = 10
"""Errors that say which names look like the one that is wrong: with many names on both sides that takes minutes."""


def all_unknown(
    kind: str, names: Sequence[str], known: Callable[[], Sequence[str]], *, takes_patterns: bool = False
) -> dict[str, KctlError]:
    """An error for each of these names; what is `known` is asked for once."""
    there = known() if names else ()
    return {
        name: unknown(kind, name, there if at < SUGGESTED else (), takes_patterns=takes_patterns)
        for at, name in enumerate(names)
    }


def pattern_hint(name: str) -> tuple[str, ...]:
    """For a name that looks like a pattern: which option takes patterns."""
    if not set(name) & set("*?[^$"):
        return ()
    option = "--regex" if set(name) & set("^$+|(") or ".*" in name else "--match"
    return (f"names are meant literally; this is a pattern: {option} {quote(name)}",)


def choosing(
    kind: str, complete: Callable[..., Any] | None = None, required: bool = False
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Arguments NAME…, --match and --regex; the command gets them as one `Choice`, named `chosen`.

    Names of topics, groups and brokers are completed in any case; `complete` is for those of other kinds.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        def command(*, names: Sequence[str], match: Sequence[str], regex: Sequence[str], **others: Any) -> R:
            chosen = Choice(kind, named_by(names), match, regex, decide=bool(names))
            if required:
                chosen.required()
            return function(chosen=chosen, **others)

        update_wrapper(command, function)
        argument = click.argument(
            "names", nargs=-1, metavar=f"[{kind.upper()}…]", shell_complete=complete or _COMPLETING.get(kind)
        )
        glob = click.option(
            "--match", multiple=True, metavar="GLOB", help=f"{kind.capitalize()}s that match this glob, as in 'web-*'."
        )
        pattern = click.option(
            "--regex",
            multiple=True,
            metavar="RE",
            help=f"{kind.capitalize()}s whose whole name matches this regular expression.",
        )
        decorated: Callable[..., R] = argument(glob(pattern(command)))
        return decorated

    return decorate


def named_by(arguments: Sequence[str]) -> tuple[str, ...]:
    """The names that arguments stand for, each once. `-` stands for the lines of standard input, unless literal."""
    literal_from = len(arguments) - literal_arguments()
    names: list[str] = []
    for at, argument in enumerate(arguments):
        if argument == "-" and at < literal_from:
            names += (line.strip() for line in sys.stdin if line.strip())
        else:
            names.append(argument)
    return tuple(dict.fromkeys(names))


def _compiled(patterns: Sequence[str]) -> list[Any]:
    import re

    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as error:
            raise KctlError(f'"{pattern}" is not a regular expression: {error}', exit_code=Exit.USAGE) from None
    return compiled
