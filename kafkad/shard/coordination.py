"""The runtime of one coordinator topic: which of its partitions are led here, and loading them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Generic

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.metrics import Family, gauges
from kafkad.model import BrokerInfo
from kafkad.names import home_partition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.markers import Marker
from kafkad.replica.partition import Partition
from kafkad.shard.loading import Abandoned, Loader
from kafkad.shard.partition_count import PartitionCount
from kafkad.shard.shard import CoordinatorParts, M, OnEnd, Shard

log = logging.getLogger(__name__)

_MOST_KEYS = 10_000
_LONGEST_KEY = 256
"""Clients choose the names of groups; a longer one is hashed each time."""
_SHORTEST_PAUSE_MS = 100
_LONGEST_PAUSE_MS = 10_000
"""Before a partition is loaded again whose disk refused that."""
_SILENT_MS = 10_000
"""Before the log says what a loaded partition waits for."""


class LoadTimes:
    """How long partitions were read, since the start; not how long what was read then waited to be committed."""

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0.0
        self.max_ms = 0.0

    def add(self, ms: float) -> None:
        self.count += 1
        self.total_ms += ms
        self.max_ms = max(self.max_ms, ms)

    def collect(self, prefix: str) -> Iterator[Family]:
        values = {"avg": self.total_ms / max(self.count, 1), "max": self.max_ms}
        yield from gauges(f"{prefix}_partition_load_time", values, "Milliseconds that loading a partition took")


class Coordination(Generic[M]):
    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        count: PartitionCount,
        parts: CoordinatorParts,
        *,
        make_machine: Callable[[Shard[M]], M],
        create: Callable[[], Awaitable[None]],
        serves_committed_only: bool = False,
    ) -> None:
        """`create` makes the topic. With `serves_committed_only` a loaded partition is served when all that was loaded
        is committed: its last records, which another leader may not have, decide nothing before."""
        self.topic = topic
        self.load_times = LoadTimes()
        self._replicas = replicas
        self._count = count
        self._parts = parts
        self._make_machine = make_machine
        self._create = create
        self._serves_committed_only = serves_committed_only
        self._creating: asyncio.Future[None] | None = None
        self._shards: dict[int, Shard[M]] = {}
        self._by_key: dict[str, Shard[M]] = {}
        self._loading: dict[int, Shard[M]] = {}
        """Led here, and not served yet."""
        self._unread: dict[int, Shard[M]] = {}
        """Those of them that are still to be read."""
        self._uncommitted: dict[int, Shard[M]] = {}
        """Those of them that have been read and wait until all of that is committed."""
        self._refusals: Counter[int] = Counter()
        """How often in a row a disk has refused to load a partition."""
        self._failed: set[int] = set()
        self._loader: asyncio.Task[None] | None = None
        self._stopped = False
        self.on_served: Callable[[Shard[M]], None] = lambda shard: None
        """Called with each partition that has been loaded and is served from now on."""

    def start(self) -> None:
        """Take over what this broker leads already, and follow what it will."""
        self._replicas.role_watchers[self.topic] = self._role_changed
        if self.topic in self._replicas.metadata.topics:
            self._count.read()
        for partition in self._replicas.of_topic(self.topic).values():
            self._role_changed(partition)

    async def stop(self) -> None:
        """End every shard; nothing is written afterwards."""
        self._stopped = True
        self._replicas.role_watchers.pop(self.topic, None)
        self._loading.clear()
        self._unread.clear()
        self._uncommitted.clear()
        if self._loader is not None:
            self._loader.cancel()
            await asyncio.wait([self._loader])
        for index in list(self._shards):
            self._end(index)

    def end_transaction(self, index: int, marker: Marker, on_end: OnEnd) -> None:
        """Of a producer that wrote to this partition; NOT_LEADER_OR_FOLLOWER while it is not coordinated here."""
        shard = self._shards.get(index)
        if shard is not None:
            shard.end_transaction(marker, on_end)
        else:
            on_end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic}-{index} is not coordinated here now"))

    # -- look-ups --------------------------------------------------------------------------------------------------

    def shard(self, key: str) -> Shard[M]:
        """HOT. NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE when it is not here."""
        shard = self._by_key.get(key)
        return shard if shard is not None else self._find_shard(key)

    def _find_shard(self, key: str) -> Shard[M]:
        if not (self._shards or self._loading or self._failed):
            raise self._absence(key, None)
        index = self.partition_for(key)
        shard = self._shards.get(index)
        if shard is None:
            raise self._absence(key, index)
        if len(key) <= _LONGEST_KEY:
            if len(self._by_key) >= _MOST_KEYS:
                self._by_key.clear()
            self._by_key[key] = shard
        return shard

    def _absence(self, key: str, index: int | None) -> KafkaError:
        """`index` is None where nothing of the topic is led here."""
        if self._stopped or index in self._failed:
            return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"what is kept of {key} cannot be used now")
        if index in self._loading:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is still being loaded")
        return KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate {key}")

    def shards(self) -> Iterable[Shard[M]]:
        return list(self._shards.values())

    def read_shards(self) -> Iterable[Shard[M]]:
        """Also those that are not served before all that was read is committed."""
        return [*self._shards.values(), *self._uncommitted.values()]

    @property
    def loading(self) -> bool:
        """True while some of what is led here is not served yet."""
        return bool(self._loading)

    @property
    def reading(self) -> bool:
        """True while some of what is led here has not been read yet."""
        return len(self._loading) > len(self._uncommitted)

    def partition_for(self, key: str) -> int:
        """COORDINATOR_LOAD_IN_PROGRESS while it is not known how many partitions the topic has: a guess would send keys
        to shards that do not have them."""
        count = self._count.known()
        if count is None:
            if self.topic in self._replicas.metadata.topics:
                self._count.read()
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"it is not known how many partitions {self.topic} has"
            )
        return home_partition(key, count)

    async def prepare(self) -> None:
        """Make the topic if it is not there, and count its partitions; raises what `create` raised.
        COORDINATOR_NOT_AVAILABLE while nobody has told this broker whether it is there: another one may know."""
        metadata = self._replicas.metadata
        if self.topic not in metadata.topics:
            if not metadata.is_here.is_set():
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the controller has not told this broker of any topic yet"
                )
            await self._create_once()
        if self._count.known() is None:
            await self._count.read()

    def find(self, key: str) -> BrokerInfo:
        """The broker that coordinates `key`; COORDINATOR_NOT_AVAILABLE if there is none."""
        metadata = self._replicas.metadata
        topic = metadata.topics.get(self.topic)
        if topic is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"there is no topic {self.topic} now")
        shard = self._by_key.get(key)
        try:
            index = self.partition_for(key) if shard is None else shard.index
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message or "") from None
        state = topic.partitions.get(index)
        broker = metadata.brokers.get(state.leader) if state is not None else None
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody leads {self.topic}-{index} now")
        return broker

    async def _create_once(self) -> None:
        """However many ask at the same time."""
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create())
            self._creating.add_done_callback(self._created)
        await asyncio.shield(self._creating)

    def _created(self, done: asyncio.Future[None]) -> None:
        self._creating = None
        if not done.cancelled():
            done.exception()  # raised to those who wait; they may all have gone

    # -- leadership ------------------------------------------------------------------------------------------------

    def _role_changed(self, partition: Partition) -> None:
        """A partition of the topic was given a role, taken away, or lost its disk.

        In a leader epoch that this broker was not told of another one may have coordinated, and partitions may have
        markers of its: what is here is loaded anew then, and transactions are ended in the new epoch. A leader that
        keeps its role in the next epoch goes on.
        """
        index = partition.tp.partition
        leads = partition.is_leader and partition.failure is None
        shard = self._shards.get(index) or self._loading.get(index)
        if leads and shard is not None and shard.partition is partition and shard.goes_on_in(partition.leader_epoch):
            return
        self._end(index)
        if leads:
            self._read_soon(index, partition)

    def _end(self, index: int) -> None:
        self._loading.pop(index, None)
        self._unread.pop(index, None)
        self._uncommitted.pop(index, None)
        self._refusals.pop(index, None)
        self._failed.discard(index)
        shard = self._shards.pop(index, None)
        if shard is not None:
            self._by_key.clear()
            shard.end()

    def _read_soon(self, index: int, partition: Partition) -> None:
        """From its start."""
        self._loading[index] = self._unread[index] = Shard(partition, self._parts, self._make_machine)
        self._go_on_reading()

    def _go_on_reading(self) -> None:
        if self._loader is None and self._unread:
            self._loader = asyncio.ensure_future(self._read_all())

    async def _read_all(self) -> None:
        """One after the other, the small ones first: a large one keeps only its own groups waiting."""
        try:
            while self._unread:
                index, shard = min(self._unread.items(), key=lambda each: each[1].partition.log.size)
                del self._unread[index]
                try:
                    await self._read(index, shard)
                except Abandoned:
                    if self._loading.get(index) is shard:  # its log is in another directory now
                        self._read_soon(index, shard.partition)
                except StorageError as error:
                    self._replicas.directory_failed(error)
                    self._read_later(index, shard, error)
                except MemoryError as error:
                    self._read_when_there_is_memory(index, shard, error)
                except Exception:
                    self._give_up(index, shard)
        finally:  # an error in telling of errors keeps no others from being read
            self._loader = None
            self._go_on_reading()

    async def _read(self, index: int, shard: Shard[M]) -> None:
        if self._loading.get(index) is not shard:
            return
        begun_ms = self._parts.clock.monotonic_ms()
        source = shard.partition.log
        shard.start_over()
        loader = Loader(source, shard.machine, lambda: self._loading.get(index) is shard and not source.retired)
        await loader.run()
        if self._loading.get(index) is not shard:
            return
        ms = self._parts.clock.monotonic_ms() - begun_ms
        self.load_times.add(ms)
        if loader.records:
            log.info("loaded %s: %d records in %.0f ms", shard.partition.tp, loader.records, ms)
        if self._serves_committed_only:
            self._await_commit(index, shard, source.end_offset)
        else:
            self._serve(index, shard)

    def _await_commit(self, index: int, shard: Shard[M], end: int) -> None:
        self._uncommitted[index] = shard
        shard.partition.when_committed(end, partial(self._committed, index, shard))
        if self._uncommitted.get(index) is shard:
            tell = partial(self._tell_of_wait, index, shard, end)
            self._parts.timers.at(self._parts.clock.monotonic_ms() + _SILENT_MS, tell)

    def _tell_of_wait(self, index: int, shard: Shard[M], end: int) -> None:
        if self._uncommitted.get(index) is shard:
            partition = shard.partition
            log.warning(
                "%s is loaded, and is served when its in-sync replicas have all of it: what is below offset %d is "
                "committed, and it ends at %d. Brokers %s are in sync, of %s; at least %d have to be",
                *(partition.tp, partition.high_watermark, end),
                *(sorted(partition.role.isr), sorted(partition.role.replicas), partition.min_isr),
            )

    def _read_when_there_is_memory(self, index: int, shard: Shard[M], error: MemoryError) -> None:
        try:
            self._read_later(index, shard, error)
        except MemoryError:  # without a pause, for there is nothing that would end one
            if index in self._loading:
                self._unread[index] = self._loading[index]

    def _read_later(self, index: int, shard: Shard[M], error: StorageError | MemoryError) -> None:
        """Again, unless the partition is not led here any more, or has gone offline with its disk."""
        if self._loading.get(index) is not shard:
            return
        self._uncommitted.pop(index, None)
        shard.forget()
        again = self._loading[index] = Shard(shard.partition, self._parts, self._make_machine)
        pause_ms = min(_SHORTEST_PAUSE_MS << min(self._refusals[index], 10), _LONGEST_PAUSE_MS)
        self._refusals[index] += 1

        def read_again() -> None:
            if self._loading.get(index) is again:
                self._unread[index] = again
                self._go_on_reading()

        self._parts.timers.at(self._parts.clock.monotonic_ms() + pause_ms, read_again)
        why = "not enough memory" if isinstance(error, MemoryError) else error
        with suppress(MemoryError):
            log.warning("cannot load %s; trying again in %d ms: %s", shard.partition.tp, pause_ms, why)

    def _committed(self, index: int, shard: Shard[M], error: KafkaError | None) -> None:
        """All of what was loaded is committed. With an error it is not known to be; where the partition is not led here
        any more, `_role_changed` hears of that next."""
        if self._uncommitted.get(index) is not shard:
            return  # it is to be loaded again
        if error is None or error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self._serve(index, shard)
        elif isinstance(error, StorageError) and shard.partition.failure is None:
            self._replicas.directory_failed(error)
            self._read_later(index, shard, error)

    def _serve(self, index: int, shard: Shard[M]) -> None:
        if self._loading.get(index) is not shard:
            return
        try:
            shard.begin()
        except Exception:
            self._give_up(index, shard)
            return
        del self._loading[index]
        self._uncommitted.pop(index, None)
        self._refusals.pop(index, None)
        self._shards[index] = shard
        self.on_served(shard)

    def _give_up(self, index: int, shard: Shard[M]) -> None:
        """In an exception handler."""
        log.exception("internal error while loading %s; it stays unavailable", shard.partition.tp)
        if self._loading.get(index) is shard:
            del self._loading[index]
            self._uncommitted.pop(index, None)
            self._failed.add(index)
