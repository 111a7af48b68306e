"""Memory for what stands between the sockets and the handlers: incomplete requests, and replies not yet read.

It is counted over all connections together that are authenticated, or need not be: `net/lobby` has the others. When
requests hold as much as `queued.max.request.bytes`, of those that have a large one under way only the first in line is
read on; small requests are served as always, and large ones whose rest has arrived. While others wait, a request has to
come fast enough: the first in line is closed if it does not, and with it those that hold most. When replies hold as
much whose readers are slow, the connection that has taken nothing for longest is closed; when those do that only wait
for a turn of the loop, no more wait so.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

log = logging.getLogger(__name__)

_SHARE_OF_MEMORY: Final = 16
_LARGEST_DEFAULT: Final = 64 << 20
_LOOK_S: Final = 10.0
_MOST_LOOKS: Final = 3
"""From one look at the line to the next, the first has to receive such a part of its request; nobody stays in line for
more looks. A client has given up by then: `request.timeout.ms` is 30 s."""
_SHARE_FREED: Final = 4
"""So much of the limit is freed, by closing those who hold most, when the line does not move."""
_CGROUP_LIMIT: Final = "/sys/fs/cgroup/memory.max"


class Queuer(Protocol):
    """A connection, as it is seen from here."""

    @property
    def address(self) -> str: ...
    @property
    def held(self) -> int: ...
    @property
    def announced(self) -> int:
        """The size of its large request."""

    def resume(self) -> None: ...
    def close(self) -> None: ...


class Queued:
    """Bytes held by one server's connections. These check `full` before they read on."""

    __slots__ = (
        "_all_in_turn",
        "_all_unread",
        "_call_later",
        "_first_held",
        "_in_turn",
        "_looks",
        "_on_full",
        "_total",
        "_unread",
        "_waiting",
        "_watching",
        "full",
        "limit",
    )

    def __init__(
        self, limit: int, call_later: Callable[[float, Callable[[], None]], object], on_full: Callable[[bool], None]
    ) -> None:
        self.full = False
        self.limit = limit if limit > 0 else default_limit()
        self._total = 0
        self._waiting: dict[Queuer, int] = {}
        """The line: who waits, and since which look."""
        self._looks = 0
        self._unread: dict[Queuer, int] = {}
        """Unread bytes by connection, in the order in which they last took something."""
        self._all_unread = 0
        self._in_turn: dict[Queuer, int] = {}
        """Bytes of replies by connection that wait for a turn of the loop, as they were when that began."""
        self._all_in_turn = 0
        self._call_later = call_later
        self._on_full = on_full
        self._watching = False
        self._first_held: tuple[Queuer, int] | None = None
        """The first in line at the last look, and what it held."""

    # -- requests --------------------------------------------------------------------------------------------------

    def change(self, by: int) -> None:
        """Connections hold so many bytes more of requests, or fewer."""
        self._total += by
        full = self._total >= self.limit
        if full != self.full:
            self.full = full
            self._on_full(full)
        if by < 0 and self._waiting:
            self._let_go_on()

    def may_go_on(self, connection: Queuer) -> bool:
        """True unless the limit is reached and others are before it in line; it is then resumed when that changes."""
        self._waiting.setdefault(connection, self._looks)
        if not self._watching:
            self._watching = True
            self._call_later(_LOOK_S, self._watch)
        return next(iter(self._waiting)) is connection

    def leave(self, connection: Queuer) -> None:
        """Its large request is complete, or it has closed."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._let_go_on()

    def _let_go_on(self) -> None:
        waiting = list(self._waiting)
        if not self.full:
            self._waiting.clear()
        for connection in waiting[:1] if self.full else waiting:
            connection.resume()

    def _watch(self) -> None:
        self._looks += 1
        if len(self._waiting) > 1:
            self._close_the_slow()
        self._watching = bool(self._waiting)
        if self._watching:
            first = next(iter(self._waiting))
            self._first_held = first, first.held
            self._call_later(_LOOK_S, self._watch)
        else:
            self._first_held = None

    def _close_the_slow(self) -> None:
        first, since = next(iter(self._waiting.items()))
        before, held = self._first_held or (None, 0)
        was_first = first is before and since < self._looks - 1
        if was_first and (first.held - held) * _MOST_LOOKS < first.announced:
            closing = [first]
        elif self._looks - since > _MOST_LOOKS:
            closing = []
        else:
            return
        closing += sorted((each for each in self._waiting if each not in closing), key=lambda each: -each.held)
        freed = 0
        for connection in closing:
            freed += connection.held
            log.warning(
                "closing %s: %d of %d bytes of its request have come, too slowly while requests hold "
                "queued.max.request.bytes=%d and others wait",
                connection.address,
                connection.held,
                connection.announced,
                self.limit,
            )
            connection.close()
            if freed * _SHARE_FREED >= self.limit:
                return

    # -- replies ---------------------------------------------------------------------------------------------------

    def unread(self, connection: Queuer, size: int) -> None:
        """Notes the bytes of its replies that have not left; called each time it has taken some."""
        self._all_in_turn -= self._in_turn.pop(connection, 0)
        self._all_unread += size - self._unread.pop(connection, 0)
        if not size:
            return
        self._unread[connection] = size
        while len(self._unread) > 1 and self._all_unread > self.limit:
            slowest = next(iter(self._unread))
            self._all_unread -= self._unread.pop(slowest)
            log.warning(
                "closing %s: it does not read its replies, and replies hold %d bytes", slowest.address, self.limit
            )
            slowest.close()

    def takes_turns(self, connection: Queuer) -> bool:
        return connection in self._in_turn

    def may_take_turns(self, connection: Queuer, size: int) -> bool:
        """Notes that its replies wait for turns of the loop, unless such ones hold as much as the limit."""
        if self._in_turn and self._all_in_turn + size > self.limit:
            return False
        self.unread(connection, 0)  # it is not its reader who is slow
        self._in_turn[connection] = size
        self._all_in_turn += size
        return True


def default_limit() -> int:
    """A sixteenth of the memory that this machine, or its control group, has; at most 64 MB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError), open(_CGROUP_LIMIT, "rb") as limit:  # no control group, or "max"
        memory = min(memory, int(limit.read()))
    return min(memory // _SHARE_OF_MEMORY, _LARGEST_DEFAULT)
