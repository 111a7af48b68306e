"""AlterReplicaLogDirs, 0 to 2: move replicas to other log directories of this broker (KIP-113)."""

from __future__ import annotations

import os
from collections.abc import Mapping

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
    """Answered when the moves have begun; DescribeLogDirs tells how far they are. Of a partition that is named twice
    the last directory counts, as in Kafka."""
    turns = Turns()
    paths: dict[TopicPartition, str] = {}
    for directory in message.dirs:
        for topic in directory.topics:
            await turns.give_way()
            for index in topic.partitions:
                await turns.give_way()
                paths[TopicPartition(topic.name, index)] = directory.path
    request.check(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    await context.moves.forget_predecessors(paths)
    codes: dict[TopicPartition, ErrorCode] = {}
    for tp, path in paths.items():
        await turns.give_way()
        codes[tp] = _move(context, request, tp, path)
    return _response(codes)


def refused(request: Request, message: AlterReplicaLogDirsRequest, error: KafkaError) -> AlterReplicaLogDirsResponse:
    topics = (topic for directory in message.dirs for topic in directory.topics)
    return _response({TopicPartition(topic.name, index): error.code for topic in topics for index in topic.partitions})


def _response(codes: Mapping[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for tp, code in codes.items():
        result = AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code)
        topics.setdefault(tp.topic, []).append(result)
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
