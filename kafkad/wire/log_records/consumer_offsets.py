"""Keys and values in `__consumer_offsets`, as classic groups write them. Two bytes with the version go before each;
a key's version is the kind of record: 0 and 1 an offset, 2 a group."""

from __future__ import annotations

from kafkad.wire.schema import array, bytes_, int32, int64, message, nested, string, uuid


@message(versions="0-1")
class OffsetCommitKey:
    """The group, topic and partition of a committed offset."""

    group: str = string("0-1")
    topic: str = string("0-1")
    partition: int = int32("0-1")


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, ignorable=True)


@message(versions="2")
class GroupMetadataKey:
    """The group's id."""

    group: str = string("2")


@nested
class MemberMetadata:
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = bytes_()
    assignment: bytes = bytes_()


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A group's generation with its members and what is assigned to them; nobody's when it is empty."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)
