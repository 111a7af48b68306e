"""Builds the transaction coordinator of a broker: imported when it is needed first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.meta.store import MetaStore
from kafkad.model import BrokerInfo
from kafkad.names import TRANSACTIONS_TOPIC, TopicPartition
from kafkad.net.client import Link
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.markers import Markers
from kafkad.shard import Coordination, Shard
from kafkad.shard.leadership import Leadership
from kafkad.shard.partition_count import PartitionCount
from kafkad.shard.shard import CoordinatorParts
from kafkad.timers import Timers
from kafkad.txn.coordinator import TransactionCoordinator, TransactionSettings
from kafkad.txn.gone import GonePartitions
from kafkad.txn.machine import TransactionMachine, TransactionProbe
from kafkad.txn.markers import MarkerQueues

_UNCOMPRESSED = 0


def make_transactions(
    replicas: ReplicaManager,
    store: MetaStore,
    leadership: Leadership,
    count: PartitionCount,
    markers: Markers,
    offsets_partition: Callable[[str], TopicPartition],
    create_topic: Callable[[], Awaitable[None]],
    *,
    config: Config,
    clock: Clock,
    timers: Timers,
    connect: Callable[[BrokerInfo], Link] | None,
    take_producer_id: Callable[[], Awaitable[int]],
    level: Callable[[], int],
    later: Callable[[Callable[[], None]], None],
) -> TransactionCoordinator:
    probe = TransactionProbe()
    queues = MarkerQueues(
        replicas.metadata,
        replicas.broker_id,
        markers.append,
        connect,
        timeout_ms=config.int("request.timeout.ms"),
        clock=clock,
        timers=timers,
        later=later,
        gone=GonePartitions(store),
    )

    def make_machine(shard: Shard[TransactionMachine]) -> TransactionMachine:
        return TransactionMachine(
            shard.write,
            shard.write_all,
            queues,
            writes_at_once=lambda: shard.commits_at_once,
            when_sure=partial(leadership.when_sure, shard),
            coordinator_epoch=lambda: shard.partition.leader_epoch,
            take_producer_id=take_producer_id,
            level=level,
            clock=clock,
            timers=timers,
            later=later,
            write_timeout_ms=config.int("request.timeout.ms"),
            probe=probe,
        )

    coordination: Coordination[TransactionMachine] = Coordination(
        TRANSACTIONS_TOPIC,
        replicas,
        count,
        CoordinatorParts(clock, timers, replicas.directory_failed, _UNCOMPRESSED),
        make_machine=make_machine,
        create=create_topic,
        serves_committed_only=True,
    )
    return TransactionCoordinator(
        coordination,
        queues,
        TransactionSettings.of(config),
        probe,
        offsets_partition,
        clock=clock,
        timers=timers,
    )
