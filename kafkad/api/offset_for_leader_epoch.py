"""OffsetForLeaderEpoch, 0 to 4: where an epoch ended, so that consumers and followers see what they must drop."""

from __future__ import annotations

from kafkad.api.context import Context, Request
from kafkad.errors import KafkaError
from kafkad.replica.manager import ReplicaManager
from kafkad.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(context: Context, request: Request, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_end_of(context.replicas, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in message.topics
        ]
    )


def _end_of(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = replicas.leader(topic, asked.partition, asked.current_leader_epoch).log
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end = log.epochs.end_offset_for(asked.leader_epoch, log.end_offset)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
