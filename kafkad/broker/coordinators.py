"""The coordinators of a broker: built over its partitions and its controller, started after them, stopped before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from kafkad.api.audit import note_change
from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.controller.internal_topics import internal_topic
from kafkad.controller.link import ControllerLink
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.committing import OffsetCommitter, OffsetSettings
from kafkad.group.coordinator import GroupCoordinator, group_settings
from kafkad.group.expiry import OffsetExpiry
from kafkad.group.machine import GroupMachine
from kafkad.group.stored import StoredOffsets
from kafkad.meta.store import MetaStore
from kafkad.metrics import Family
from kafkad.model import BrokerInfo
from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.markers import Markers
from kafkad.shard import Coordination, Shard
from kafkad.shard.leadership import Leadership
from kafkad.shard.partition_count import PartitionCount
from kafkad.shard.shard import CoordinatorParts
from kafkad.timers import Timers
from kafkad.turns import Backlog, Jobs, Lane

if TYPE_CHECKING:
    from kafkad.net.client import Link
    from kafkad.txn.coordinator import TransactionCoordinator

log = logging.getLogger(__name__)

_CREATION_TIMEOUT_MS = 5_000


class Coordinators:
    def __init__(
        self,
        replicas: ReplicaManager,
        controller: ControllerLink,
        store: MetaStore,
        *,
        config: Callable[[], Config],
        clock: Clock,
        timers: Timers,
        connect: Callable[[BrokerInfo], Link] | None = None,
        take_producer_id: Callable[[], Awaitable[int]],
        level: Callable[[], int],
        lane: Lane,
    ) -> None:
        """`connect` is None where there can be no other broker; `level` is the cluster's transaction version."""
        self._controller = controller
        self._replicas = replicas
        self._metadata = replicas.metadata
        self._config = config
        self._clock = clock
        self._timers = timers
        self._connect = connect
        self._take_producer_id = take_producer_id
        self._level = level
        self._lane = lane
        self._store = store
        self._transactions: TransactionCoordinator | None = None
        self._started = False
        self._refusal = ""
        self._counts = {
            topic: PartitionCount(topic, replicas.metadata, store) for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC)
        }
        self.leadership = Leadership(store, clock, timers)
        codec = config().int("offsets.topic.compression.codec")
        self.groups: Coordination[GroupMachine] = Coordination(
            GROUPS_TOPIC,
            replicas,
            self._counts[GROUPS_TOPIC],
            CoordinatorParts(clock, timers, replicas.directory_failed, codec),
            make_machine=self._make_group_machine,
            create=lambda: self._create(GROUPS_TOPIC),
        )
        self.classic_groups = GroupCoordinator(self.groups)
        offsets = OffsetSettings.of(config())
        self.offsets = OffsetCommitter(self.groups, offsets, clock, timers)
        self.stored_offsets = StoredOffsets(store, offsets.max_metadata_size)
        self._expiry = OffsetExpiry(
            self.groups, self.offsets, lambda topic: topic in replicas.metadata.topics, clock, timers
        )
        replicas.metadata.on_topic_gone.append(self._expiry.topic_gone)
        self.markers = Markers(replicas, clock, {GROUPS_TOPIC: self.groups.end_transaction}, Jobs(lane))

    def start(self) -> None:
        self._started = True
        self.groups.start()
        self._expiry.start()
        if self._transactions is not None:
            self._transactions.start()
        elif self._replicas.of_topic(TRANSACTIONS_TOPIC):
            self.transactions()
        else:
            self._replicas.role_watchers[TRANSACTIONS_TOPIC] = lambda partition: self._begin_transactions()

    async def stop(self) -> None:
        self._started = False
        await self._expiry.stop()
        self.markers.close()
        if self._transactions is not None:
            await self._transactions.stop()
        await self.groups.stop()
        await self.leadership.stop()
        for count in self._counts.values():
            count.stop()

    def transactions(self) -> TransactionCoordinator:
        """Made when somebody asks for it, or gives a partition of its topic to this broker."""
        if self._transactions is None:
            self._transactions = self._make_transactions()
            if self._started:
                self._transactions.start()
        return self._transactions

    def transaction_families(self) -> Iterator[Family | None]:
        """Nothing as long as this broker has had nothing to do with transactions."""
        if self._transactions is not None:
            yield from self._transactions.collect()

    def _begin_transactions(self) -> None:
        self.transactions()

    def _make_transactions(self) -> TransactionCoordinator:
        from kafkad.broker.transactions import make_transactions

        return make_transactions(
            self._replicas,
            self._store,
            self.leadership,
            self._counts[TRANSACTIONS_TOPIC],
            self.markers,
            lambda group: TopicPartition(GROUPS_TOPIC, self.groups.partition_for(group)),
            lambda: self._create(TRANSACTIONS_TOPIC),
            config=self._config(),
            clock=self._clock,
            timers=self._timers,
            connect=self._connect,
            take_producer_id=self._take_producer_id,
            level=self._level,
            later=Backlog(self._lane).add,
        )

    def _make_group_machine(self, shard: Shard[GroupMachine]) -> GroupMachine:
        return GroupMachine(
            shard.write,
            shard.write_all,
            clock=self._clock,
            timers=self._timers,
            soon=asyncio.get_running_loop().call_soon,
            later=Backlog(self._lane).add,
            most_bytes=lambda: shard.most_bytes,
            settings=group_settings(self._config()),
        )

    async def _create(self, topic: str) -> None:
        """Raises COORDINATOR_NOT_AVAILABLE, on which clients ask again; why is said here, once."""
        wanted = internal_topic(topic, self._config(), len(self._metadata.brokers))
        try:
            [result] = await self._controller.create_topics([wanted], timeout_ms=_CREATION_TIMEOUT_MS)
            error = result.error
            if error is None:
                note_change(f"topic {topic} created with partitions={result.partitions}", by="this broker")
        except KafkaError as refusal:
            error = refusal
        if error is None or error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return
        text = f"cannot create {topic}: {error}"
        if text != self._refusal:
            log.error("%s", text)
            self._refusal = text
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
