"""Whether a shard may still be answered from: what it remembers is old as soon as another broker leads its partition.

The controller may have elected another leader without this broker hearing of it: the links between them are cut, or
this process stood still. What is written here then is never committed, but what is known here could be told as if it
were so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from kafkad.clock import Clock
from kafkad.meta.readable import required
from kafkad.meta.store import MetaError, MetaStore
from kafkad.meta.znodes import Partition as PartitionNode
from kafkad.replica.partition import Partition
from kafkad.shard.shard import Shard
from kafkad.timers import Timers
from kafkad.together import cancelled

log = logging.getLogger(__name__)

SURE_MS: Final = 1_500
"""A follower that has nothing to fetch asks again after `replica.fetch.wait.max.ms`, usually 500: when a request of its
is here, the one before the last may be twice as old."""
_REMEMBERED_MS = 500
_PATIENCE_MS = 1_000
"""For the metadata store."""


class Leadership:
    """All of the ISR follow this broker, or else the metadata store says that it leads: for a follower that has died
    stays in the ISR for a while."""

    def __init__(self, store: MetaStore, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._confirmed: WeakKeyDictionary[Partition, tuple[int, float]] = WeakKeyDictionary()
        """The leader epoch in which the store has this broker as the leader, and until when that counts."""
        self._asking: dict[Partition, asyncio.Task[bool]] = {}
        self._confirming: set[asyncio.Task[bool]] = set()
        self._doubts: WeakKeyDictionary[Partition, str] = WeakKeyDictionary()
        """As the log has them."""

    def is_sure(self, shard: Shard[Any]) -> bool:
        """HOT. True if what was read from the shard until now may be told. Otherwise `confirm` says whether it may."""
        if not shard.serves:
            return False
        partition, now_ms = shard.partition, self._clock.monotonic_ms()
        if partition.is_followed(now_ms - SURE_MS):
            return True
        leader_epoch, until_ms = self._confirmed.get(partition, (-1, 0.0))
        return leader_epoch == partition.leader_epoch and now_ms < until_ms

    def when_sure(self, shard: Shard[Any], then: Callable[[bool], None]) -> None:
        """HOT. `then` is called with whether it may be told: before this returns, where nobody has to be asked."""
        if self.is_sure(shard):
            then(True)
        else:
            confirming = asyncio.ensure_future(self.confirm(shard))
            self._confirming.add(confirming)
            confirming.add_done_callback(partial(self._told, then))

    def _told(self, then: Callable[[bool], None], confirming: asyncio.Task[bool]) -> None:
        self._confirming.discard(confirming)
        then(not confirming.cancelled() and confirming.result())

    async def confirm(self, shard: Shard[Any]) -> bool:
        """The same by the metadata store, which is asked once for all who wait. It has a second to answer."""
        if not shard.serves:
            return False
        partition = shard.partition
        asking = self._asking.get(partition)
        if asking is None:
            asking = self._asking[partition] = asyncio.ensure_future(self._ask(partition))
        return await asyncio.shield(asking) and shard.serves

    async def stop(self) -> None:
        await cancelled((*self._confirming, *self._asking.values()))

    async def _ask(self, partition: Partition) -> bool:
        leader_epoch, asked_ms = partition.leader_epoch, self._clock.monotonic_ms()
        bug: Exception | None = None
        try:
            doubt = await self._doubt(partition, leader_epoch, asked_ms)
        except Exception as error:  # whoever waits is answered all the same
            doubt, bug = f"internal error while the metadata store was asked who leads it: {error!r}", error
        finally:
            del self._asking[partition]
        if not doubt:
            self._confirmed[partition] = leader_epoch, asked_ms + _REMEMBERED_MS
            self._doubts.pop(partition, None)
            return True
        if self._doubts.get(partition) != doubt:
            self._doubts[partition] = doubt
            text = "clients of %s are sent to look for another coordinator: %s"
            log.warning(text, partition.tp, doubt, exc_info=bug)
        return False

    async def _doubt(self, partition: Partition, leader_epoch: int, asked_ms: float) -> str:
        """Why it is not certain that this broker has led since the store was asked; empty if it is."""
        path = PartitionNode.path(*partition.tp)
        reading = asyncio.ensure_future(self._store.get(path))
        over = asyncio.Event()
        reading.add_done_callback(lambda read: over.set())
        timer = self._timers.at(asked_ms + _PATIENCE_MS, over.set)
        try:
            await over.wait()
            if not reading.done() or self._clock.monotonic_ms() - asked_ms >= _PATIENCE_MS:
                return "not all of its in-sync replicas fetch from here, and the metadata store does not answer in time"
            data, stat = reading.result()
            state = required(path, lambda: PartitionNode.decode(data, stat.version))
        except MetaError as error:
            return f"not all of its in-sync replicas fetch from here, and the metadata store cannot be asked: {error}"
        finally:
            timer.cancel()
            await cancelled([reading])
        if state.leader == partition.broker_id and state.leader_epoch in (leader_epoch, leader_epoch + 1):
            return ""  # nobody else led in between, if this broker has not been told of the later one yet
        return f"broker {state.leader} leads it in leader epoch {state.leader_epoch}, by the metadata store"
