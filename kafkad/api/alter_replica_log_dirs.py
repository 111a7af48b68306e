"""AlterReplicaLogDirs, 0 to 2: move replicas to other log directories of this broker (KIP-113)."""

from __future__ import annotations

import os

from kafkad.api.context import Context, Request
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.names import TopicPartition
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.turns import Turns
from kafkad.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    context: Context, request: Request, message: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Answered when the moves have begun; DescribeLogDirs tells how far they are."""
    turns = Turns()
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            await turns.give_way()
            results = topics.setdefault(topic.name, [])
            for index in topic.partitions:
                await turns.give_way()
                code = _move(context, request, TopicPartition(topic.name, index), directory.path)
                results.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    return _response(topics)


def refused(request: Request, message: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for topic in (topic for directory in message.dirs for topic in directory.topics):
        topics.setdefault(topic.name, []).extend(
            AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
            for index in topic.partitions
        )
    return _response(topics)


def _response(topics: dict[str, list[AlterReplicaLogDirPartitionResult]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=results) for topic, results in topics.items()
        ]
    )


def _move(context: Context, request: Request, tp: TopicPartition, path: str) -> ErrorCode:
    """All is checked here: replica, directory and the right to do so may have gone since the last one. A replica that
    is not here is refused, but made in that directory should it come."""
    try:
        request.check(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        if not os.path.isabs(path):
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not an absolute path")
        logs = context.replicas.logs
        logs.live_directory(path)
        if context.replicas.find(*tp) is None:
            logs.prefer(tp, path)
        context.replicas.get(*tp)
        context.moves.start(tp, path)
    except StorageError as error:
        context.replicas.directory_failed(error)
        return error.code
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
