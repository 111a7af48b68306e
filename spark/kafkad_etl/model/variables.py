"""Fills in `${…}` in a job file and its SQL files.

`${name}` is a variable from --var or the file's `vars`; `${env:NAME}` is a secret from the environment; `${NAME:-text}`
is the environment variable NAME, or the text if that is empty; `$${` is a literal `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from kctl.errors import did_you_mean

_USE = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Unfilled(Exception):
    """A `${…}` that cannot be filled in."""

    def __init__(self, text: str, *hints: str) -> None:
        super().__init__(text)
        self.text = text
        self.hints = hints


class Filled(NamedTuple):
    text: str
    secrets: frozenset[str] = frozenset()


class Variables:
    """The variables of a job. `declared` holds texts as written in the file, so variables may refer to others."""

    def __init__(self, declared: Mapping[str, str], given: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._declared = declared
        self._given = given
        self._environment = environment
        self._known: dict[str, Filled] = {}
        self.used: set[str] = set()
        self.secret_variables: set[str] = set()
        """Variables of the environment that secrets were asked for."""

    def fill(self, text: str) -> Filled:
        return self._fill(text, ())

    def _fill(self, text: str, inside: tuple[str, ...]) -> Filled:
        if "${" not in text:
            return Filled(text)
        parts: list[str] = []
        secrets: frozenset[str] = frozenset()
        end = 0
        for use in _USE.finditer(text):
            value = self._value(use, inside)
            parts += (text[end : use.start()], value.text)
            secrets |= value.secrets
            end = use.end()
        return Filled("".join([*parts, text[end:]]), secrets)

    def _value(self, use: re.Match[str], inside: tuple[str, ...]) -> Filled:
        if use[0] == "$${":
            return Filled("${")
        if use[1] is None:
            raise Unfilled("${ has no closing }", "write $${ for a literal ${")
        name, separator, default = use[1].partition(":-")
        if name.startswith("env:"):
            return self._secret(name.removeprefix("env:"), default if separator else None)
        if separator:
            return Filled(self._environment.get(name) or default)
        return self._variable(name, inside)

    def _secret(self, name: str, default: str | None) -> Filled:
        self.secret_variables.add(name)
        value = self._environment.get(name, default)
        if value is None:
            close = did_you_mean(name, sorted(self._environment))
            raise Unfilled(f"the environment variable {name} is not set", *close, f"set it: export {name}=…")
        return Filled(value, frozenset({value} - {""}))

    def _variable(self, name: str, inside: tuple[str, ...]) -> Filled:
        if not _NAME.fullmatch(name):
            raise Unfilled(f'"{name}" is not a valid variable name', "write ${name}, ${env:NAME} or ${NAME:-default}")
        self.used.add(name)
        if name in inside:
            raise Unfilled(
                f"variables refer to each other in a circle: {' → '.join((*inside[inside.index(name) :], name))}"
            )
        if name in self._given:
            return Filled(self._given[name])
        if name not in self._declared:
            raise Unfilled(f'there is no variable "{name}"', *self._hints(name))
        if name not in self._known:
            self._known[name] = self._fill(self._declared[name], (*inside, name))
        return self._known[name]

    def _hints(self, name: str) -> tuple[str, ...]:
        if name in self._environment:
            return (f"it is an environment variable: ${{env:{name}}}",)
        known = sorted({*self._declared, *self._given})
        return did_you_mean(name, known) or (f"declare it in `vars`, or pass --var {name}=…",)

    def unused(self) -> list[str]:
        """Variables that were passed but appear nowhere in the file."""
        return sorted(set(self._given) - set(self._declared) - self.used)
