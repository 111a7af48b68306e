"""The part of the audit log that says what was asked for and refused: logger `kafkad.audit`, in Kafka's words.

A refusal is INFO, a grant DEBUG. Whoever is refused again and again cannot fill the log: of one principal and resource
there are ten lines a second, and then one that counts the others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Final

from kafkad.security.authorizer import Operation, ResourceType

log = logging.getLogger("kafkad.audit")

_LINES_A_SECOND: Final = 10
_SECOND_MS: Final = 1_000
_MOST_KNOWN: Final = 1_000
"""Principals with resources, of which refusals are counted apart: names are made up by clients."""

Later = Callable[[float, Callable[[], None]], object]
"""Calls something at a time of the monotonic clock."""


class AccessLog:
    def __init__(self, monotonic_ms: Callable[[], float], later: Later, style: str = "text") -> None:
        """`style` is text or json."""
        self._monotonic_ms = monotonic_ms
        self._later = later
        self._as_json = style == "json"
        self._lines: dict[tuple[str, str], int] = {}
        """Refusals since the second began."""
        self._last: dict[tuple[str, str], str] = {}
        """Of those with more than are logged, the last one."""

    def note(
        self,
        allowed: bool,
        principal: str,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        request: str,
    ) -> None:
        if allowed:
            if log.isEnabledFor(logging.DEBUG):
                log.debug("%s", self._line(allowed, principal, host, operation, resource, name, request))
            return
        if not log.isEnabledFor(logging.INFO):
            return
        about = principal, f"{resource:d}{name}"
        if about not in self._lines and len(self._lines) >= _MOST_KNOWN:
            about = principal, ""
        if not self._lines:
            self._later(self._monotonic_ms() + _SECOND_MS, self._second_over)
        count = self._lines[about] = self._lines.get(about, 0) + 1
        line = self._line(allowed, principal, host, operation, resource, name, request)
        if count <= _LINES_A_SECOND:
            log.info("%s", line)
        else:
            self._last[about] = line

    def _second_over(self) -> None:
        for about, line in self._last.items():
            more = self._lines[about] - _LINES_A_SECOND
            if self._as_json:
                log.info("%s", json.dumps({**json.loads(line), "refusals": more}))
            else:
                log.info("%s; %d refusals like this within a second", line, more)
        self._lines.clear()
        self._last.clear()

    def _line(
        self,
        allowed: bool,
        principal: str,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
        request: str,
    ) -> str:
        outcome, what, kind = "Allowed" if allowed else "Denied", _words(operation), _words(resource)
        if self._as_json:
            return json.dumps(
                {
                    "principal": principal,
                    "outcome": outcome,
                    "operation": what,
                    "host": host,
                    "resource": kind,
                    "name": name,
                    "request": request,
                }
            )
        return (
            f"Principal = {_shown(principal)} is {outcome} Operation = {what} from host = {host} on resource = "
            f"{kind}:LITERAL:{_shown(name)} for request = {request} with resourceRefCount = 1"
        )


def _words(value: Operation | ResourceType) -> str:
    """In Kafka's spelling: ClusterAction, TransactionalId."""
    return value.name.title().replace("_", "")


def _shown(text: str) -> str:
    """Text from a client, escaped and cut: it must neither begin a new line in the log nor fill it."""
    short = text if len(text) <= 300 else f"{text[:300]}…"
    return short if short.isprintable() else short.encode("unicode_escape").decode()
