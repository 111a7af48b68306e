"""The finalized features of the cluster as this broker knows them: what `/feature` says, watched (KIP-584)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from kafkad.clock import Clock
from kafkad.meta.readable import readable
from kafkad.meta.retrying import until_answered
from kafkad.meta.store import MetaStore, NoNode, WatchEvent
from kafkad.meta.znodes import Features
from kafkad.timers import Timers

UNKNOWN_EPOCH = -1


class FinalizedFeatures:
    """`epoch` is the version of the node, -1 as long as there is none."""

    def __init__(self, store: MetaStore, clock: Clock, timers: Timers) -> None:
        self.levels: Mapping[str, int] = {}
        self.epoch = UNKNOWN_EPOCH
        self._store = store
        self._clock = clock
        self._timers = timers
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._read()

    async def session_renewed(self) -> None:
        await self._read()

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _changed(self, event: WatchEvent) -> None:
        if self._reading is not None:
            self._reading.cancel()
        reading = until_answered(self._read, f"read {Features.path()}", self._clock, self._timers)
        self._reading = asyncio.create_task(reading)

    async def _read(self) -> None:
        """The watch is set first, so that a write between the two is noticed."""
        levels: Mapping[str, int] = {}
        epoch = UNKNOWN_EPOCH
        if await self._store.exists(Features.path(), self._changed) is not None:
            with contextlib.suppress(NoNode):
                data, stat = await self._store.get(Features.path())
                features = readable(Features.path(), lambda: Features.decode(data))
                if features is not None:
                    levels, epoch = features.levels, stat.version
        self.levels, self.epoch = levels, epoch
