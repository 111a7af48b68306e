from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int16, int32, int64, message, nested, string


@nested
class StopReplicaPartitionV0:
    topic_name: str = string("0")
    partition_index: int = int32("0")


@nested
class StopReplicaTopicV1:
    name: str = string("1-2")
    partition_indexes: list[int] = array(int32, "1-2")


@nested
class StopReplicaPartitionState:
    partition_index: int = int32("3+")
    leader_epoch: int = int32("3+", default=-1)
    delete_partition: bool = boolean("3+")


@nested
class StopReplicaTopicState:
    topic_name: str = string("3+")
    partition_states: list[StopReplicaPartitionState] = array(StopReplicaPartitionState, "3+")


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaRequest(Request["StopReplicaResponse"]):
    """The controller takes replicas away from a broker, with or without deleting their files."""

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("4+")
    controller_epoch: int = int32()
    broker_epoch: int = int64("1+", default=-1, ignorable=True)  # of the receiver
    delete_partitions: bool = boolean("0-2")
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(StopReplicaPartitionV0, "0")
    topics: list[StopReplicaTopicV1] = array(StopReplicaTopicV1, "1-2")
    topic_states: list[StopReplicaTopicState] = array(StopReplicaTopicState, "3+")


@nested
class StopReplicaPartitionError:
    topic_name: str = string()
    partition_index: int = int32()
    error_code: int = int16()


@message(key=5, versions="0-4", flexible="2+")
class StopReplicaResponse:
    """The result for each replica."""

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array(StopReplicaPartitionError)
