from __future__ import annotations

from kafkad.wire.schema import Request, array, int8, int16, int32, int64, message, nested, string, uuid


@nested
class BrokerState:
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


@nested
class RequestPartitionData:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array(int32, "0-2")
    # From v3: with each broker's epoch, so that a restarted one cannot slip in (KIP-903).
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


@nested
class RequestTopicData:
    topic_name: str = string("0-1", ignorable=True)
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[RequestPartitionData] = array(RequestPartitionData)


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionRequest(Request["AlterPartitionResponse"]):
    """A leader asks the controller for another ISR."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)  # of the asking leader
    topics: list[RequestTopicData] = array(RequestTopicData)


@nested
class ResponsePartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32()


@nested
class ResponseTopicData:
    topic_name: str = string("0-1", ignorable=True)
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


@message(key=56, versions="0-3", flexible="0+")
class AlterPartitionResponse:
    """The state of each partition as the controller now has it."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[ResponseTopicData] = array(ResponseTopicData)
