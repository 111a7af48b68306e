"""Notes of changes: whoever changes something in the metadata store adds a sequential node that names it, and brokers
read that again. As in Kafka, notes older than a quarter of an hour are removed by whoever comes across them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from kafkad.clock import Clock
from kafkad.meta.retrying import until_answered
from kafkad.meta.store import MetaStore, NoNode, WatchEvent
from kafkad.timers import Timers

KEPT_MS: Final = 15 * 60 * 1000
NO_NOTE: Final = -1
_DIGITS = 10
_REMOVED_AT_ONCE = 20


class Note(NamedTuple):
    path: str
    data: bytes | None
    """None if it has been removed meanwhile."""


class Notes:
    """The notes of one kind, and how far they have been taken in."""

    def __init__(self, store: MetaStore, prefix: str, clock: Clock, news: asyncio.Event) -> None:
        """`prefix` is a note's path without its number; `news` is set when there are others than at the last look."""
        self._store = store
        self.parent, _, name = prefix.rpartition("/")
        self._name = re.compile(re.escape(name) + rf"\d{{{_DIGITS}}}")
        self._clock = clock
        self._news = news
        self._last = NO_NOTE

    async def newest(self) -> int:
        """The number of the newest, or NO_NOTE: of what is read after this, it says nothing new."""
        return max(map(_number, await self._names()), default=NO_NOTE)

    def skip(self, upto: int) -> None:
        self._last = upto

    async def take(self, work: Callable[[list[Note]], Awaitable[None]]) -> None:
        """Has `work` done over those that are new, in their order; they are new again if it fails."""
        names = sorted(await self._names(), key=_number)
        new = [f"{self.parent}/{name}" for name in names if _number(name) > self._last]
        if new:
            nodes = await self._store.get_many(new)
            await work([Note(path, None if node is None else node[0]) for path, node in zip(new, nodes, strict=True)])
            self._last = _number(new[-1])
        await self._remove_old(names)

    async def _names(self) -> list[str]:
        return [name for name in await self._store.children(self.parent, self._noted) if self._name.fullmatch(name)]

    def _noted(self, event: WatchEvent) -> None:
        self._news.set()

    async def _remove_old(self, names: list[str]) -> None:
        """A few of the oldest at a time: there may be thousands."""
        paths = [f"{self.parent}/{name}" for name in names[:_REMOVED_AT_ONCE]]
        before = self._clock.now_ms() - KEPT_MS
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            if node is not None and node[1].ctime_ms < before:
                with contextlib.suppress(NoNode):
                    await self._store.delete(path)


async def follow(
    news: asyncio.Event, catch_up: Callable[[], Awaitable[Any]], what: str, clock: Clock, timers: Timers
) -> None:
    """Has `catch_up` done whenever there is news, and again until the store answers; `what` it does is for the log."""
    while True:
        await news.wait()
        news.clear()
        await until_answered(catch_up, what, clock, timers)


def _number(name: str) -> int:
    return int(name[-_DIGITS:])
