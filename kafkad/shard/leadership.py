"""Whether a shard may still be answered from: what it remembers is old as soon as another broker leads its partition.

The controller may have elected another leader without this broker hearing of it: the links between them are cut, or
this process stood still. What is written here then is never committed, but what is known here could be told as if it
were so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, Final
from weakref import WeakKeyDictionary

from kafkad.clock import Clock
from kafkad.meta.readable import required
from kafkad.meta.store import MetaError, MetaStore
from kafkad.meta.znodes import Partition as PartitionNode
from kafkad.model import PartitionState
from kafkad.replica.partition import Partition
from kafkad.shard.shard import Shard
from kafkad.timers import Timers
from kafkad.together import cancelled

log = logging.getLogger(__name__)

SURE_MS: Final = 1_500
"""A follower that has nothing to fetch asks again after `replica.fetch.wait.max.ms`, usually 500. By then its request
before the last is as old; where that is more, it is asked earlier."""
_REMEMBERED_MS = 500
_PATIENCE_MS = 5_000
"""Of those who wait: clients wait for 30 s."""
_FOLLOWERS_MS = 250
"""For some round trips to followers, where the metadata store cannot be asked."""
_LOOK_MS = 20


class _Doubt:
    """Of a partition: who wait to hear whether this broker led it when they had read from it, and the metadata store
    being asked."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.waiting: deque[tuple[float, asyncio.Future[bool]]] = deque()
        """By the time of the reading, the first ones first."""
        self.stirred = asyncio.Event()
        self.asking: asyncio.Task[PartitionState] | None = None
        self.asked_ms = -inf
        self.asked_in = -1
        """The leader epoch."""
        self.failed_ms = -inf
        """When the store was asked that could not be."""
        self.failure = ""

    def tell(self, led: bool, until_ms: float = inf) -> bool:
        """Those that had read by then. Whether there are any."""
        waiting, told = self.waiting, False
        while waiting and waiting[0][0] <= until_ms:
            _, each = waiting.popleft()
            if not each.done():
                each.set_result(led)
                told = True
        return told


class Leadership:
    """All of the ISR follow this broker, or else the metadata store says that it leads: for a follower that has died
    stays in the ISR for a while. Who is not sure asks both, and goes by the first that says so."""

    def __init__(self, store: MetaStore, clock: Clock, timers: Timers) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._confirmed: WeakKeyDictionary[Partition, tuple[int, float]] = WeakKeyDictionary()
        """The leader epoch in which the store has this broker as the leader, and until when that counts."""
        self._doubts: dict[Partition, _Doubt] = {}
        self._settling: set[asyncio.Task[None]] = set()
        self._warned: WeakKeyDictionary[Partition, str] = WeakKeyDictionary()

    def is_sure(self, shard: Shard[Any]) -> bool:
        """HOT. True if what was read from the shard until now may be told. Otherwise `confirm` says whether it may."""
        return shard.serves and self._knows(shard.partition)

    def _knows(self, partition: Partition) -> bool:
        now_ms = self._clock.monotonic_ms()
        if partition.is_followed(now_ms - SURE_MS):
            return True
        leader_epoch, until_ms = self._confirmed.get(partition, (-1, 0.0))
        return leader_epoch == partition.leader_epoch and now_ms < until_ms

    def when_sure(self, shard: Shard[Any], then: Callable[[bool], None]) -> None:
        """HOT. `then` is called with whether it may be told: before this returns, where nobody has to be asked."""
        if self.is_sure(shard):
            then(True)
        else:
            self._told(shard).add_done_callback(lambda told: then(told.result() and shard.serves))

    async def confirm(self, shard: Shard[Any]) -> bool:
        """The same by asking, once for all who wait. There are some seconds for the answer."""
        return await self._told(shard) and shard.serves

    async def stop(self) -> None:
        await cancelled(self._settling)

    def _told(self, shard: Shard[Any]) -> asyncio.Future[bool]:
        told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if not shard.serves:
            told.set_result(False)
            return told
        partition = shard.partition
        doubt = self._doubts.get(partition)
        if doubt is None:
            doubt = _Doubt(partition)
            settling = asyncio.ensure_future(self._settle(doubt))
            settling.add_done_callback(partial(self._settled, doubt))
            self._settling.add(settling)
            self._doubts[partition] = doubt
        doubt.waiting.append((self._clock.monotonic_ms(), told))
        return told

    async def _settle(self, doubt: _Doubt) -> None:
        """Until nobody waits any more. Followers are looked at now and then: so their fetches need not tell."""
        partition = doubt.partition
        try:
            while doubt.waiting:
                self._ask(doubt)
                timer = self._timers.at(self._clock.monotonic_ms() + _LOOK_MS, doubt.stirred.set)
                try:
                    await doubt.stirred.wait()
                finally:
                    timer.cancel()
                doubt.stirred.clear()
                self._judge(doubt)
        except Exception as error:  # whoever waits is answered all the same
            self._warn(partition, f"internal error while it was asked who leads it: {error!r}", error)
        finally:
            del self._doubts[partition]

    def _settled(self, doubt: _Doubt, settling: asyncio.Task[None]) -> None:
        """Also where that was cancelled before its first step."""
        self._settling.discard(settling)
        if self._doubts.get(doubt.partition) is doubt:
            del self._doubts[doubt.partition]
        doubt.tell(False)
        if doubt.asking is not None:
            doubt.asking.cancel()

    def _ask(self, doubt: _Doubt) -> None:
        """The followers again and again, for they may not have been waiting; the store again only when it has answered,
        for those who came meanwhile."""
        partition, now_ms = doubt.partition, self._clock.monotonic_ms()
        partition.ask_followers(now_ms - SURE_MS)
        if doubt.asking is None and doubt.waiting[-1][0] > doubt.asked_ms:
            doubt.asked_ms, doubt.asked_in = now_ms, partition.leader_epoch
            doubt.asking = asyncio.ensure_future(self._state(partition))
            doubt.asking.add_done_callback(lambda asked: doubt.stirred.set())

    async def _state(self, partition: Partition) -> PartitionState:
        path = PartitionNode.path(*partition.tp)
        data, stat = await self._store.get(path)
        return required(path, lambda: PartitionNode.decode(data, stat.version))

    def _judge(self, doubt: _Doubt) -> None:
        """Tells those of whom something is known by now, or who have waited for too long: this process may have stood
        still for longer than that."""
        partition, now_ms = doubt.partition, self._clock.monotonic_ms()
        nobody = "not all of its in-sync replicas fetch from here, and the metadata store "
        if doubt.tell(False, now_ms - _PATIENCE_MS):
            self._warn(partition, nobody + "does not answer in time")
        if not partition.is_leader:
            doubt.tell(False)
        if doubt.asking is not None and doubt.asking.done():
            asked, doubt.asking = doubt.asking, None
            try:
                self._hear(doubt, asked.result())
            except MetaError as error:
                doubt.failed_ms, doubt.failure = doubt.asked_ms, nobody + f"cannot be asked: {error}"
        if self._knows(partition):
            doubt.tell(True)
            self._warned.pop(partition, None)
        if doubt.tell(False, min(doubt.failed_ms, now_ms - _FOLLOWERS_MS)):
            self._warn(partition, doubt.failure)

    def _hear(self, doubt: _Doubt, state: PartitionState) -> None:
        """However late: that was true when the store was asked, or later, and so after these had read."""
        partition = doubt.partition
        if state.leader == partition.broker_id and state.leader_epoch in (doubt.asked_in, doubt.asked_in + 1):
            # nobody else led in between, if this broker has not been told of the later one yet
            self._confirmed[partition] = doubt.asked_in, doubt.asked_ms + _REMEMBERED_MS
            self._warned.pop(partition, None)
            doubt.tell(True, doubt.asked_ms)
        elif doubt.tell(False, doubt.asked_ms):
            epoch = state.leader_epoch
            self._warn(partition, f"broker {state.leader} leads it in leader epoch {epoch}, by the metadata store")

    def _warn(self, partition: Partition, doubt: str, bug: Exception | None = None) -> None:
        """Once of each doubt."""
        if self._warned.get(partition) != doubt:
            self._warned[partition] = doubt
            text = "clients of %s are sent to look for another coordinator: %s"
            log.warning(text, partition.tp, doubt, exc_info=bug)
