"""OffsetForLeaderEpoch, 0 to 4: where an epoch ended, so that consumers and followers see what they must drop."""

from __future__ import annotations

from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError
from kafkad.replica.manager import ReplicaManager
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.turns import Pieces, each
from kafkad.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    context: Context, request: Request, message: OffsetForLeaderEpochRequest
) -> Pieces[OffsetForLeaderEpochResponse]:
    topics = []
    as_broker = request.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    for topic in message.topics:
        yield
        may = as_broker or request.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        end = partial(_end_of, context.replicas, topic.topic) if may else _forbidden
        partitions = yield from each(end, topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return OffsetForLeaderEpochResponse(topics=topics)


def _forbidden(asked: OffsetForLeaderPartition) -> EpochEndOffset:
    return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=asked.partition)


def _end_of(replicas: ReplicaManager, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = replicas.leader(topic, asked.partition, asked.current_leader_epoch).log
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end = log.epochs.end_offset_for(asked.leader_epoch, log.end_offset)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)
