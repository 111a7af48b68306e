from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, int64, message, nested, string, uuid


@nested
class UpdateMetadataPartitionState:
    topic_name: str = string("0-4", ignorable=True)
    partition_index: int = int32()
    controller_epoch: int = int32()
    leader: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array(int32)
    zk_version: int = int32()
    replicas: list[int] = array(int32)
    offline_replicas: list[int] = array(int32, "4+", ignorable=True)


@nested
class UpdateMetadataTopicState:
    topic_name: str = string("5+")
    topic_id: bytes = uuid("7+", ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "5+")


@nested
class UpdateMetadataEndpoint:
    port: int = int32("1+")
    host: str = string("1+")
    listener: str = string("3+", ignorable=True)
    security_protocol: int = int16("1+")


@nested
class UpdateMetadataBroker:
    id: int = int32()
    v0_host: str = string("0", ignorable=True)
    v0_port: int = int32("0", ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = array(UpdateMetadataEndpoint, "1+", ignorable=True)
    rack: str | None = string("2+", nullable="0+", ignorable=True)


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataRequest(Request["UpdateMetadataResponse"]):
    """The controller tells a broker what to answer to Metadata requests."""

    controller_id: int = int32()
    is_kraft_controller: bool = boolean("8+")
    type: int = int8("8+", tag=0, ignorable=True)
    controller_epoch: int = int32()
    broker_epoch: int = int64("5+", default=-1, ignorable=True)  # of the receiver
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(UpdateMetadataPartitionState, "0-4")
    topic_states: list[UpdateMetadataTopicState] = array(UpdateMetadataTopicState, "5+")
    live_brokers: list[UpdateMetadataBroker] = array(UpdateMetadataBroker)


@message(key=6, versions="0-8", flexible="6+")
class UpdateMetadataResponse:
    """True if the broker took the update."""

    error_code: int = int16()
