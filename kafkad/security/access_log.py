"""The part of the audit log that says what was allowed and refused: logger `kafkad.audit`, in Kafka's words.

A refusal is logged at INFO, a grant at DEBUG. A client that is refused again and again cannot fill the log: for one
principal and resource there are ten lines a second, and then one that counts the rest.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kafkad.loggers import Later, LinesPerSecond
from kafkad.security.authorizer import Operation, ResourceType, kafka_name

log = logging.getLogger("kafkad.audit")

_LONGEST: Final = 300


class Access(NamedTuple):
    """What somebody wanted to do: an operation on the resource of that name, by a request of that API."""

    principal: str
    host: str
    operation: Operation
    resource: ResourceType
    name: str
    request: str


class AccessLog:
    def __init__(self, monotonic_ms: Callable[[], float], later: Later, style: str = "text") -> None:
        """`style` is text or json."""
        self._as_json = style == "json"
        self._refusals = LinesPerSecond(monotonic_ms, later, self._say_rest)

    def wants(self, allowed: bool) -> bool:
        """HOT. Whether grants (or refusals) are logged at all. If not, `note` need not be called."""
        return log.isEnabledFor(logging.DEBUG if allowed else logging.INFO)

    def note(self, access: Access, *, allowed: bool) -> None:
        line = self._line(access, "Allowed" if allowed else "Denied")
        if allowed:
            log.debug("%s", line)
        elif self._refusals.admits(access.principal, f"{access.resource:d}{_cut(access.name)}", line):
            log.info("%s", line)

    def _say_rest(self, lines: Sequence[str], number: int) -> None:
        line = lines[-1]
        if self._as_json:
            log.info("%s", json.dumps({**json.loads(line), "refusals": number}))
        else:
            log.info("%s; %d refusals like this within a second", line, number)

    def _line(self, access: Access, outcome: str) -> str:
        operation, resource = kafka_name(access.operation), kafka_name(access.resource)
        if self._as_json:
            return json.dumps(
                {
                    "principal": _cut(access.principal),
                    "outcome": outcome,
                    "operation": operation,
                    "host": access.host,
                    "resource": resource,
                    "name": _cut(access.name),
                    "request": access.request,
                }
            )
        return (
            f"Principal = {_shown(access.principal)} is {outcome} Operation = {operation} from host = {access.host} on "
            f"resource = {resource}:LITERAL:{_shown(access.name)} for request = {access.request} with "
            "resourceRefCount = 1"
        )


def _cut(text: str) -> str:
    """Text from a client, which may have 32 KB: it must not fill the log."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _shown(text: str) -> str:
    """The same, escaped: nor must it begin a new line in the log."""
    short = _cut(text)
    return short if short.isprintable() else short.encode("unicode_escape").decode()
