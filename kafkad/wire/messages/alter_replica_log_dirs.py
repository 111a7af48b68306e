from __future__ import annotations

from kafkad.wire.schema import Request, array, int16, int32, message, nested, string


@nested
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: list[int] = array(int32)


@nested
class AlterReplicaLogDir:
    path: str = string()  # an absolute path among log.dirs
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """Moves replicas to other log directories of the same broker."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@nested
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@nested
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message(key=34, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """True if each move could start."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
