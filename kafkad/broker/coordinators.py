"""The coordinators of a broker: built over its partitions and its controller, started after them, stopped before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

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
from kafkad.model import BrokerInfo
from kafkad.names import GROUPS_TOPIC, TopicPartition
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.markers import Markers
from kafkad.shard import Coordination, Shard
from kafkad.shard.shard import CoordinatorParts
from kafkad.timers import Timers

log = logging.getLogger(__name__)

_CREATION_TIMEOUT_MS = 5_000


class _NoTransactions:
    """Until there is a coordinator of them."""

    def find(self, key: str) -> BrokerInfo:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody coordinates the transactions of {key}")

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        version: int,
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))


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
    ) -> None:
        self._controller = controller
        self._metadata = replicas.metadata
        self._config = config
        self._clock = clock
        self._timers = timers
        self._refusal = ""
        codec = config().int("offsets.topic.compression.codec")
        self.groups: Coordination[GroupMachine] = Coordination(
            GROUPS_TOPIC,
            replicas,
            CoordinatorParts(clock, replicas.directory_failed, codec),
            partitions=config().int("offsets.topic.num.partitions"),
            make_machine=self._make_group_machine,
            create=lambda: self._create(GROUPS_TOPIC),
        )
        self.classic_groups = GroupCoordinator(self.groups)
        offsets = OffsetSettings.of(config())
        self.offsets = OffsetCommitter(self.groups, offsets, clock, timers)
        self.stored_offsets = StoredOffsets(store, offsets.max_metadata_size)
        self._expiry = OffsetExpiry(self.groups, self.offsets, clock, timers)
        replicas.on_topics_deleted.append(self._expiry.topics_deleted)
        self.transactions = _NoTransactions()
        self.markers = Markers(replicas, clock, {GROUPS_TOPIC: self.groups.end_transaction})

    def start(self) -> None:
        self.groups.start()
        self._expiry.start()

    async def stop(self) -> None:
        await self._expiry.stop()
        await self.groups.stop()

    def _make_group_machine(self, shard: Shard[GroupMachine]) -> GroupMachine:
        return GroupMachine(
            shard.write,
            clock=self._clock,
            timers=self._timers,
            soon=asyncio.get_running_loop().call_soon,
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
