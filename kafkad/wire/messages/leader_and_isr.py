from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, int64, message, nested, string, uuid


@nested
class LeaderAndIsrPartitionState:
    topic_name: str = string("0-1", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    partition_epoch: int = int32()  # version of the partition's znode
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32, "3+", ignorable=True)
    removing_replicas: list[int] = array(int32, "3+", ignorable=True)
    is_new: bool = boolean("1+", ignorable=True)  # false: the log should be there already
    leader_recovery_state: int = int8("6+")  # 1: recovering from an unclean election
    # kafkad's own: how the leader is asked, as `Asked` has it; Kafka's controllers do not say.
    asked: int = int8("6+", tag=10_000, default=-1, ignorable=True)


@nested
class LeaderAndIsrTopicState:
    topic_name: str = string("2+")
    topic_id: bytes = uuid("5+", ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "2+")


@nested
class LeaderAndIsrLiveLeader:
    broker_id: int = int32()
    host_name: str = string()
    port: int = int32()


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrRequest(Request["LeaderAndIsrResponse"]):
    """The controller tells a broker which replicas it has to lead or follow."""

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("7+")
    controller_epoch: int = int32()
    # Of the receiver: an older one is a request from before its restart.
    broker_epoch: int = int64("2+", default=-1, ignorable=True)
    type: int = int8("5+")  # 1: these are all replicas the broker has, any other is stray
    # V0 and v1 name the topic in each partition.
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(LeaderAndIsrPartitionState, "0-1")
    topic_states: list[LeaderAndIsrTopicState] = array(LeaderAndIsrTopicState, "2+")
    live_leaders: list[LeaderAndIsrLiveLeader] = array(LeaderAndIsrLiveLeader)


@nested
class LeaderAndIsrPartitionError:
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    error_code: int = int16()


@nested
class LeaderAndIsrTopicError:
    topic_id: bytes = uuid("5+")
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "5+")


@message(key=4, versions="0-7", flexible="4+")
class LeaderAndIsrResponse:
    """The result for each partition: an error if the broker could not take it over."""

    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(LeaderAndIsrPartitionError, "0-4")
    topics: list[LeaderAndIsrTopicError] = array(LeaderAndIsrTopicError, "5+")
