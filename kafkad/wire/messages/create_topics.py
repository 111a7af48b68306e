from __future__ import annotations

from kafkad.wire.schema import Request, array, boolean, int8, int16, int32, message, nested, string, uuid


@nested
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@nested
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@nested
class CreatableTopic:
    name: str = string()
    num_partitions: int = int32()  # -1: the broker's default, or given by assignments
    replication_factor: int = int16()  # -1: the broker's default, or given by assignments
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """Topics to create, with their size, configuration, or replicas by hand."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean("1+")


@nested
class CreatableTopicConfigs:
    name: str = string("5+")
    value: str | None = string("5+", nullable="5+")
    read_only: bool = boolean("5+")
    config_source: int = int8("5+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("5+")


@nested
class CreatableTopicResult:
    name: str = string()
    topic_id: bytes = uuid("7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16("5+", tag=0, ignorable=True)
    num_partitions: int = int32("5+", default=-1, ignorable=True)
    replication_factor: int = int16("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="5+", ignorable=True)


@message(key=19, versions="0-7", flexible="5+")
class CreateTopicsResponse:
    """The result for each topic; from v5 with its configuration."""

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
