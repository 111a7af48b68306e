"""Connections of a listener that are not authenticated yet: not many, not for long, and not with much memory.

A connection that says nothing costs its client nothing. So each has a deadline, from when it was accepted until it is
authenticated; and when there are too many, the oldest one that kafkad waits for is closed to make room for the next.
One that kafkad has wait on purpose, until it is told how its login ended, has no deadline; it, too, is closed to make
room.

Their incomplete requests have a memory limit of their own, and take nothing from authenticated clients. Beyond it, the
connection that has sent most is closed: a login is short.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from kafkad.clock import Clock
from kafkad.timers import Timer, Timers

log = logging.getLogger(__name__)

_SILENT_MS = 1_000
"""A connection younger than this is never closed to make room."""


class Newcomer(Protocol):
    """A handshake, or a connection before its login."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def quiet(self) -> bool:
        """True if it waits for its peer, and not for its turn here."""

    def close(self) -> None:
        """Leaves the lobby too."""


class _Wait(NamedTuple):
    since_ms: float
    deadline: Timer
    kept_why: str = ""
    """Why kafkad has it wait; empty where it waits for its peer."""


class Lobby:
    """`most` at a time, and `most_of_host` of one address; `patience_ms` from the first byte to the login; `most_bytes`
    of all of them together."""

    def __init__(
        self, clock: Clock, timers: Timers, *, patience_ms: int, most: int, most_of_host: int, most_bytes: int
    ) -> None:
        self.patience_ms = patience_ms
        self.most = most
        self.most_of_host = most_of_host
        self.most_bytes = most_bytes
        self.held = 0
        """Bytes of incomplete requests and handshakes."""
        self.late = 0
        self.displaced = 0
        self._clock = clock
        self._timers = timers
        self._waits: dict[Newcomer, _Wait] = {}
        self._of_host: dict[str, dict[Newcomer, None]] = {}
        self._held: dict[Newcomer, int] = {}

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, newcomer: object) -> bool:
        return newcomer in self._waits

    def has_room(self) -> bool:
        """Makes some if need be."""
        return len(self._waits) < self.most or self._displace(self._waits)

    def has_room_for(self, host: str) -> bool:
        """Makes some if need be, at the expense of the same host."""
        there = self._of_host.get(host, {})
        return len(there) < self.most_of_host or self._displace(there)

    def enter(self, newcomer: Newcomer) -> None:
        self._admit(newcomer, self._clock.monotonic_ms())

    def go_on_as(self, before: Newcomer, newcomer: Newcomer) -> None:
        """The same client, one step further; its time goes on."""
        since_ms = self._waits[before].since_ms
        self.leave(before)
        self._admit(newcomer, since_ms)

    def _admit(self, newcomer: Newcomer, since_ms: float) -> None:
        deadline = self._timers.at(since_ms + self.patience_ms, lambda: self._is_late(newcomer))
        self._waits[newcomer] = _Wait(since_ms, deadline)
        self._of_host.setdefault(newcomer.host, {})[newcomer] = None

    def refused(self, newcomer: Newcomer) -> None:
        """It may not log in. Nothing if it is not here."""
        self._keep(newcomer, "may not log in")
        self.hold(newcomer, 0)

    def put_off(self, newcomer: Newcomer) -> None:
        """What it has said is answered when others have been. Nothing if it is not here."""
        self._keep(newcomer, "waits for others that log in as it does")

    def _keep(self, newcomer: Newcomer, why: str) -> None:
        wait = self._waits.get(newcomer)
        if wait is not None:
            wait.deadline.cancel()
            self._waits[newcomer] = wait._replace(kept_why=why)

    def leave(self, newcomer: Newcomer) -> None:
        """It is known now, or gone. Nothing if it is not here."""
        wait = self._waits.pop(newcomer, None)
        if wait is None:
            return
        wait.deadline.cancel()
        self.held -= self._held.pop(newcomer, 0)
        there = self._of_host[newcomer.host]
        del there[newcomer]
        if not there:
            del self._of_host[newcomer.host]

    def hold(self, newcomer: Newcomer, size: int) -> None:
        """So many bytes of it are kept now. Closes the largest ones, which may be this one, if all hold too much."""
        if newcomer not in self._waits:
            return
        self.held += size - self._held.pop(newcomer, 0)
        if size:
            self._held[newcomer] = size
        while self.held > self.most_bytes and len(self._held) > 1:
            largest = max(self._held, key=self._held.__getitem__)
            self.displaced += 1
            log.info(
                "closing %s:%d, which has sent %d bytes and is not authenticated: such connections hold %d bytes",
                *(largest.host, largest.port, self._held[largest], self.held),
            )
            largest.close()

    def _is_late(self, newcomer: Newcomer) -> None:
        self.late += 1
        seconds = self.patience_ms / 1000
        log.info("closing %s:%d: not authenticated after %g s", newcomer.host, newcomer.port, seconds)
        newcomer.close()

    def _displace(self, among: dict[Newcomer, _Wait] | dict[Newcomer, None]) -> bool:
        """The oldest is first."""
        silent_since_ms = self._clock.monotonic_ms() - _SILENT_MS
        for newcomer in among:
            wait = self._waits[newcomer]
            if wait.since_ms > silent_since_ms:
                return False
            if wait.kept_why or newcomer.quiet:
                self.displaced += 1
                why = wait.kept_why or "says nothing"
                log.info("closing %s:%d, which %s, to make room for others", newcomer.host, newcomer.port, why)
                newcomer.close()
                return True
        return False
