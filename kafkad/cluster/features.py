"""The finalized features of the cluster as this broker knows them: what `/feature` says, watched (KIP-584), and the
level of transactions. That is never written there: a Kafka 3.9 broker that finds a feature it does not know does not
start.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from kafkad.clock import Clock
from kafkad.meta.readable import readable
from kafkad.meta.retrying import until_answered
from kafkad.meta.store import MetaStore, NoNode, Stat, WatchEvent
from kafkad.meta.znodes import BROKER_IDS, Broker, Features
from kafkad.timers import Timers

UNKNOWN_EPOCH = -1
TRANSACTION_VERSION: Final = "transaction.version"
LAST_TRANSACTION_VERSION: Final = 2


def registered(wanted_transaction_version: int) -> Mapping[str, Mapping[str, int]]:
    """What a broker's registration says, by which the others know how far it goes: all of them have to tell clients the
    same. One without a word of transactions is, or is to be, as a Kafka 3.9. Levels below 1 cannot be read by releases
    before that."""
    if not wanted_transaction_version:
        return {}
    return {TRANSACTION_VERSION: {"min_version": 1, "max_version": wanted_transaction_version}}


class FinalizedFeatures:
    """`epoch` grows with each change, -1 as long as nothing is known."""

    def __init__(
        self,
        store: MetaStore,
        clock: Clock,
        timers: Timers,
        *,
        alone: bool,
        wanted_transaction_version: int,
    ) -> None:
        """`alone`: there can be no other broker, whose level would have to be known."""
        self.levels: Mapping[str, int] = {}
        self.epoch = UNKNOWN_EPOCH
        self._store = store
        self._clock = clock
        self._timers = timers
        self._alone = alone
        self._wanted_transaction_version = wanted_transaction_version
        self.transaction_version = wanted_transaction_version if alone else 0
        """The cluster's: that of the broker which goes least far, and 0 for a Kafka 3.9."""
        self.on_lowered: list[Callable[[], None]] = []
        """Called when that has become less. A client asks on new connections only, and goes on as it was told."""
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._read_some_time()

    async def session_renewed(self) -> None:
        await self._read()

    async def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _changed(self, event: WatchEvent) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._reading = asyncio.create_task(self._read_some_time())

    async def _read_some_time(self) -> None:
        await until_answered(self._read, f"read {Features.path()}", self._clock, self._timers)

    async def _read(self) -> None:
        """The watch is set first, so that a write between the two is noticed."""
        levels: Mapping[str, int] = {}
        version = UNKNOWN_EPOCH
        if await self._store.exists(Features.path(), self._changed) is not None:
            with contextlib.suppress(NoNode):
                data, stat = await self._store.get(Features.path())
                features = readable(Features.path(), lambda: Features.decode(data))
                if features is not None:
                    levels, version = features.levels, stat.version
        before = self.transaction_version
        changes_of_brokers = 0 if self._alone else await self._read_brokers()
        # Clients take what comes with a higher epoch than they have seen, from whichever broker: all must count alike.
        self.levels, self.epoch = levels, version + 1 + changes_of_brokers
        if self.transaction_version < before:
            for tell in self.on_lowered:
                tell()

    async def _read_brokers(self) -> int:
        """How often brokers have come and gone, ever. Those that are here now decide on the level; while there is none,
        as when all sessions have ended, it stays as it was."""
        ids = [int(name) for name in await self._store.children(BROKER_IDS, self._changed) if name.isdecimal()]
        stat = await self._store.exists(BROKER_IDS)
        found = await self._store.get_many([Broker.path(broker) for broker in ids])
        told = [
            _transaction_version_of(broker, *one) for broker, one in zip(ids, found, strict=True) if one is not None
        ]
        supported = [version for version in told if version is not None]
        if supported:
            self.transaction_version = min([self._wanted_transaction_version, *supported])
        return 0 if stat is None else stat.cversion


def _transaction_version_of(broker: int, data: bytes, stat: Stat) -> int | None:
    """None if its registration cannot be read, and is ignored."""
    registration = readable(Broker.path(broker), lambda: Broker.decode(broker, data, stat.czxid))
    return None if registration is None else registration.features.get(TRANSACTION_VERSION, {}).get("max_version", 0)
