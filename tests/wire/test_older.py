"""Fields that have moved are where an older broker looks for them."""

from __future__ import annotations

import pytest

from kafkad.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkad.wire.older import in_version
from kafkad.wire.schema import decode, encode

ID = bytes(range(16))


@pytest.mark.parametrize("version", [13, 14, 15, 17])
def test_a_fetch_names_its_follower(version: int) -> None:
    topic = FetchTopic(topic_id=ID, partitions=[FetchPartition(partition=1, fetch_offset=7, last_fetched_epoch=3)])
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=5),
        max_wait_ms=1,
        min_bytes=2,
        max_bytes=3,
        session_id=4,
        session_epoch=6,
        topics=[topic],
    )
    read = decode(FetchRequest, version, encode(in_version(request, version), version))
    assert (read.replica_id if version < 15 else read.replica_state.replica_id) == 5
    assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.session_id, read.session_epoch) == (1, 2, 3, 4, 6)
    [found] = read.topics
    assert (found.topic_id, found.partitions[0].fetch_offset, found.partitions[0].last_fetched_epoch) == (ID, 7, 3)


@pytest.mark.parametrize("version", [2, 3])
def test_an_isr_has_its_members(version: int) -> None:
    wanted = RequestPartitionData(
        partition_index=1,
        leader_epoch=2,
        new_isr_with_epochs=[BrokerState(broker_id=1, broker_epoch=10), BrokerState(broker_id=2, broker_epoch=20)],
        leader_recovery_state=1,
        partition_epoch=3,
    )
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=10, topics=[RequestTopicData(topic_id=ID, partitions=[wanted])]
    )
    read = decode(AlterPartitionRequest, version, encode(in_version(request, version), version))
    [partition] = read.topics[0].partitions
    members = partition.new_isr if version < 3 else [member.broker_id for member in partition.new_isr_with_epochs]
    assert (read.broker_epoch, read.topics[0].topic_id, members) == (10, ID, [1, 2])
    assert (partition.leader_epoch, partition.leader_recovery_state, partition.partition_epoch) == (2, 1, 3)
