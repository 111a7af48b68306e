"""The state of group coordinators as records of `__consumer_offsets`.

Written in the versions of Kafka 3.9: offsets as value version 3, or 1 with a time to expire at, groups as version 3.
Every version is read. A key of any other kind than an offset (0, 1) or a classic group (2) belongs to a protocol that
has no coordinator here; it is skipped. Offsets, of which there are many, are packed and unpacked by hand.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from kafkad.wire import schema
from kafkad.wire.log_records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from kafkad.wire.primitives import MalformedError

NO_TIMESTAMP = -1
_MOST_KEYS = 4096
"""Most keys of offsets that are kept as bytes: 1 MB."""
_LONGEST_KEPT = 512
"""Clients choose the names; keys with longer ones are made each time."""

_OFFSET_KEY, _GROUP_KEY = 1, 2
_OFFSET_VALUE, _EXPIRING_OFFSET_VALUE, _GROUP_VALUE = 3, 1, 3
_LAST_OFFSET_VALUE = 4
_LAST_GROUP_VALUE = 4

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_TWO_INT64 = struct.Struct(">qq")
_KEY_START = struct.Struct(">hh")
_VALUE_START = struct.Struct(">hqih")
_EXPIRING_VALUE_START = struct.Struct(">hqh")
_PLAIN_VALUE = struct.Struct(">hqihq")
_CURRENT_OFFSET_KEY = _INT16.pack(_OFFSET_KEY)


class OffsetCommitted(NamedTuple):
    """A timestamp of -1 to expire at: when the broker's retention is over, the usual case."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = NO_TIMESTAMP


class OffsetForgotten(NamedTuple):
    group: str
    topic: str
    partition: int


class MemberWritten(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


class GroupWritten(NamedTuple):
    """`state_timestamp` is when the group came into its state, -1 if an old broker did not say."""

    group: str
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp: int
    members: tuple[MemberWritten, ...]


class GroupForgotten(NamedTuple):
    group: str


GroupRecord = OffsetCommitted | OffsetForgotten | GroupWritten | GroupForgotten


def encode(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value; no value for what is forgotten. EncodeError when Kafka's format cannot hold it."""
    if isinstance(record, OffsetCommitted):
        group, topic, partition, offset, leader_epoch, metadata, committed_at, expire_at = record
        return offset_key(group, topic, partition), offset_value(
            offset, leader_epoch, metadata, committed_at, expire_at
        )
    if isinstance(record, OffsetForgotten):
        return offset_key(*record), None
    if isinstance(record, GroupWritten):
        return _group_key(record.group), _group_value(record)
    return _group_key(record.group), None


def least_size(record: GroupRecord) -> int:
    """HOT. The bytes of key and value at least, known without encoding them: clients say how much that is."""
    if isinstance(record, OffsetCommitted):
        return len(record[0]) + len(record[1]) + len(record[5])
    if isinstance(record, GroupWritten):
        return sum(len(member.subscription) + len(member.assignment) for member in record.members)
    return len(record.group)


def decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    """None for a kind that is not ours; MalformedError for bytes that no Kafka wrote."""
    try:
        return _decode(key, value)
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedError(f"a record with the key {key!r}: {error}") from None


def _decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    if value is not None and len(value) == _PLAIN_VALUE.size and key[:2] == _CURRENT_OFFSET_KEY:
        plain = _read_plain_offset(key, value)
        if plain is not None:
            return plain
    (kind,) = _INT16.unpack_from(key)
    if 0 <= kind <= _OFFSET_KEY:
        group, topic, partition = _read_offset_key(key)
        if value is None:
            return OffsetForgotten(group, topic, partition)
        return OffsetCommitted(group, topic, partition, *_read_offset_value(value))
    if kind != _GROUP_KEY:
        return None
    group = schema.read(GroupMetadataKey, kind, key, 2)[0].group
    return GroupForgotten(group) if value is None else _read_group(group, value)


def _read_plain_offset(key: bytes, value: bytes) -> OffsetCommitted | None:
    """HOT: an offset in the current version, without metadata. Loading may have to read a million of them."""
    version, offset, leader_epoch, size, committed_at = _PLAIN_VALUE.unpack(value)
    group_end = _KEY_START.size + int.from_bytes(key[2:4], "big")
    topic = key[group_end + 2 : -4]
    topic_size = int.from_bytes(key[group_end : group_end + 2], "big")
    if version != _OFFSET_VALUE or size or not topic_size == len(topic) == len(key) - group_end - 6:
        return None
    (partition,) = _INT32.unpack_from(key, len(key) - 4)
    position = (str(key[4:group_end], "utf-8"), str(topic, "utf-8"), partition)
    return tuple.__new__(OffsetCommitted, (*position, offset, leader_epoch, "", committed_at, NO_TIMESTAMP))


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """HOT, and cached: a group that commits will commit again."""
    if len(group) + len(topic) <= _LONGEST_KEPT:
        return _kept_offset_key(group, topic, partition)
    return _offset_key(group, topic, partition)


def _offset_key(group: str, topic: str, partition: int) -> bytes:
    group_raw, topic_raw = group.encode(), topic.encode()
    try:
        start = _KEY_START.pack(_OFFSET_KEY, len(group_raw))
        return b"".join((start, group_raw, _INT16.pack(len(topic_raw)), topic_raw, _INT32.pack(partition)))
    except struct.error as error:
        raise schema.EncodeError(f"an offset of group {group[:40]!r}: {error}") from None


_kept_offset_key = lru_cache(_MOST_KEYS)(_offset_key)


def _read_offset_key(key: bytes) -> tuple[str, str, int]:
    group, at = _read_string(key, 2)
    topic, at = _read_string(key, at)
    return group, topic, _INT32.unpack_from(key, at)[0]


def offset_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, expire_timestamp: int = NO_TIMESTAMP
) -> bytes:
    """HOT. The version with a time to expire at has no leader epoch: Kafka drops it too."""
    if not metadata and expire_timestamp == NO_TIMESTAMP:
        return _PLAIN_VALUE.pack(_OFFSET_VALUE, offset, leader_epoch, 0, commit_timestamp)
    raw = metadata.encode()
    try:
        if expire_timestamp == NO_TIMESTAMP:
            start = _VALUE_START.pack(_OFFSET_VALUE, offset, leader_epoch, len(raw))
            return start + raw + _INT64.pack(commit_timestamp)
        start = _EXPIRING_VALUE_START.pack(_EXPIRING_OFFSET_VALUE, offset, len(raw))
        return start + raw + _TWO_INT64.pack(commit_timestamp, expire_timestamp)
    except struct.error as error:
        raise schema.EncodeError(f"an offset with {len(raw)} bytes of metadata: {error}") from None


def _read_offset_value(value: bytes) -> tuple[int, int, str, int, int]:
    """Offset, leader epoch, metadata, and the times of the commit and to expire at."""
    (version,) = _INT16.unpack_from(value)
    if version == _OFFSET_VALUE:
        _, offset, leader_epoch, size = _VALUE_START.unpack_from(value)
        metadata, at = _text(value, _VALUE_START.size, size)
        return offset, leader_epoch, metadata, _INT64.unpack_from(value, at)[0], NO_TIMESTAMP
    if not 0 <= version <= _LAST_OFFSET_VALUE:
        raise MalformedError(f"an offset of version {version}")
    said, _ = schema.read(OffsetCommitValue, version, value, 2)
    return said.offset, said.leader_epoch, said.metadata, said.commit_timestamp, said.expire_timestamp


def _group_key(group: str) -> bytes:
    return _INT16.pack(_GROUP_KEY) + schema.encode(GroupMetadataKey(group=group), _GROUP_KEY)


def _group_value(record: GroupWritten) -> bytes:
    said = GroupMetadataValue(
        protocol_type=record.protocol_type,
        generation=record.generation,
        protocol=record.protocol,
        leader=record.leader,
        current_state_timestamp=record.state_timestamp,
        members=[_member(member) for member in record.members],
    )
    return _INT16.pack(_GROUP_VALUE) + schema.encode(said, _GROUP_VALUE)


def _read_group(group: str, value: bytes) -> GroupWritten:
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= _LAST_GROUP_VALUE:
        raise MalformedError(f"group {group!r} in version {version}")
    said, _ = schema.read(GroupMetadataValue, version, value, 2)
    return GroupWritten(
        group,
        said.protocol_type,
        said.generation,
        said.protocol,
        said.leader,
        said.current_state_timestamp,
        tuple(_read_member(member, version) for member in said.members),
    )


def _member(member: MemberWritten) -> MemberMetadata:
    return MemberMetadata(**member._asdict())


def _read_member(said: MemberMetadata, version: int) -> MemberWritten:
    """A member's record. Before version 1 a member had as long to rejoin as its session lasts."""
    rebalance_timeout = said.session_timeout if version == 0 else said.rebalance_timeout
    return MemberWritten(
        said.member_id,
        said.group_instance_id,
        said.client_id,
        said.client_host,
        rebalance_timeout,
        said.session_timeout,
        said.subscription,
        said.assignment,
    )


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    return _text(data, at + 2, _INT16.unpack_from(data, at)[0])


def _text(data: bytes, at: int, size: int) -> tuple[str, int]:
    if size < 0:
        raise MalformedError(f"a string of {size} bytes at {at}")
    end = at + size
    return str(data[at:end], "utf-8"), end
