"""Notes of changes: whoever changes something in the metadata store adds a sequential node that names it, and brokers
read that again. As in Kafka, notes older than a quarter of an hour are removed by whoever comes across them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Final, NamedTuple

from kafkad.clock import Clock
from kafkad.meta.retrying import until_answered
from kafkad.meta.store import MetaStore, NoNode, Refused, WatchEvent
from kafkad.timers import Pauses, Timers, sleep

log = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60 * 1000
NO_NOTE: Final = ""
_DIGITS = 10
_REMOVED_AT_ONCE = 20
_FIRST_PAUSE_MS = 1_000


class Note(NamedTuple):
    path: str
    data: bytes | None
    """None if it has been removed meanwhile."""


class Notes:
    """The notes of one kind, and how far they have been taken in. There may be tens of thousands at each look."""

    def __init__(self, store: MetaStore, prefix: str, clock: Clock, news: asyncio.Event) -> None:
        """`prefix` is a note's path without its number; `news` is set when there are others than at the last look."""
        self._store = store
        self.parent, _, name = prefix.rpartition("/")
        self._name = re.compile(re.escape(name) + rf"\d{{{_DIGITS}}}")
        self._clock = clock
        self._news = news
        self._last = NO_NOTE
        self._may_remove = True

    async def newest(self) -> str:
        """The name of the newest, or NO_NOTE: of what is read after this, it says nothing new."""
        return max(filter(self._name.fullmatch, await self._children()), default=NO_NOTE)

    def skip(self, upto: str) -> None:
        self._last = upto

    async def take(self, work: Callable[[list[Note]], Awaitable[None]]) -> None:
        """Calls `work` with the new notes, in their order. If it fails, they stay new."""
        names = sorted(await self._children())  # their numbers have the same width
        new = list(filter(self._name.fullmatch, names[bisect_right(names, self._last) :]))
        if new:
            paths = [f"{self.parent}/{name}" for name in new]
            nodes = await self._store.get_many(paths)
            await work([Note(path, None if node is None else node[0]) for path, node in zip(paths, nodes, strict=True)])
            self._last = new[-1]
        await self._remove_old(list(islice(filter(self._name.fullmatch, names), _REMOVED_AT_ONCE)))

    async def _children(self) -> list[str]:
        return await self._store.children(self.parent, self._noted)

    def _noted(self, event: WatchEvent) -> None:
        self._news.set()

    async def _remove_old(self, names: list[str]) -> None:
        """A few of the oldest at a time. If the store refuses that, nobody is harmed."""
        paths = [f"{self.parent}/{name}" for name in names]
        before = self._clock.now_ms() - KEPT_MS
        for path, node in zip(paths, await self._store.get_many(paths), strict=True):
            if node is not None and node[1].ctime_ms < before:
                try:
                    await self._store.delete(path)
                except NoNode:
                    pass
                except Refused as error:
                    if self._may_remove:
                        log.warning("old notes of changes cannot be removed: %s", error)
                    self._may_remove = False
                    return


async def follow(
    news: asyncio.Event, catch_up: Callable[[], Awaitable[Any]], what: str, clock: Clock, timers: Timers
) -> None:
    """Calls `catch_up` whenever there is news, and again until it succeeds. `what` it does is for the log."""
    pauses = Pauses(_FIRST_PAUSE_MS)
    while True:
        await news.wait()
        news.clear()
        try:
            await until_answered(catch_up, what, clock, timers)
            pauses.succeeded()
        except Exception as error:
            pause_ms, is_news = pauses.after(error)
            if is_news:
                log.exception("internal error: cannot %s; trying again", what)
            await sleep(pause_ms, clock, timers)
            news.set()
