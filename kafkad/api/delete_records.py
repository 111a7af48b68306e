"""DeleteRecords, 0 to 2: forget everything before an offset."""

from __future__ import annotations

from functools import partial

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.names import INTERNAL_TOPICS
from kafkad.replica.manager import ReplicaManager
from kafkad.security.authorizer import Operation, ResourceType
from kafkad.turns import Pieces, each
from kafkad.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(context: Context, request: Request, message: DeleteRecordsRequest) -> Pieces[DeleteRecordsResponse]:
    topics = []
    for topic in message.topics:
        yield  # one may have no partitions
        may = request.allowed(Operation.DELETE, ResourceType.TOPIC, topic.name)
        delete = partial(_delete, context, request, topic.name) if may else _forbidden
        partitions = yield from each(delete, topic.partitions)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
    return DeleteRecordsResponse(topics=topics)


def _delete(
    context: Context, request: Request, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    """The right is asked for again: others are served between the partitions of a long request."""
    if not request.allows(Operation.DELETE, ResourceType.TOPIC, topic):
        return _forbidden(asked)
    replicas = context.replicas
    code = ErrorCode.NONE
    start = -1
    try:
        start = _cut(replicas, topic, asked)
    except StorageError as error:
        replicas.directory_failed(error)
        code = error.code
    except KafkaError as error:
        code = error.code
    return DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=start, error_code=code)


def _forbidden(asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


def _cut(replicas: ReplicaManager, topic: str, asked: DeleteRecordsPartition) -> int:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is kept by the brokers; its records stay")
    partition = replicas.leader(topic, asked.partition_index)
    if "delete" not in partition.log.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted; its records go when newer ones come")
    return partition.delete_records(asked.offset)
