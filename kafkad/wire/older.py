"""Requests between brokers in the versions of older brokers, where fields have moved since."""

from __future__ import annotations

from typing import Any

from kafkad.wire.messages.alter_partition import AlterPartitionRequest, RequestPartitionData, RequestTopicData
from kafkad.wire.messages.fetch import FetchRequest


def in_version(request: Any, version: int) -> Any:
    """The request as this version has it; the same one where nothing has moved."""
    if isinstance(request, FetchRequest) and version < 15:
        return _naming_the_replica_itself(request)
    if isinstance(request, AlterPartitionRequest) and version < 3:
        return _without_broker_epochs(request)
    return request


def _naming_the_replica_itself(request: FetchRequest) -> FetchRequest:
    """Before version 15 a follower is not named in a struct with its broker epoch."""
    return FetchRequest(
        replica_id=request.replica_state.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=request.topics,
        forgotten_topics_data=request.forgotten_topics_data,
        rack_id=request.rack_id,
    )


def _without_broker_epochs(request: AlterPartitionRequest) -> AlterPartitionRequest:
    """Before version 3 an ISR is a list of ids."""

    def partition(wanted: RequestPartitionData) -> RequestPartitionData:
        return RequestPartitionData(
            partition_index=wanted.partition_index,
            leader_epoch=wanted.leader_epoch,
            new_isr=[member.broker_id for member in wanted.new_isr_with_epochs],
            leader_recovery_state=wanted.leader_recovery_state,
            partition_epoch=wanted.partition_epoch,
        )

    return AlterPartitionRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        topics=[
            RequestTopicData(
                topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=list(map(partition, topic.partitions))
            )
            for topic in request.topics
        ],
    )
