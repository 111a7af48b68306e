"""Decoders of the records in Kafka's own topics: committed offsets and groups, and transactions.

A version nobody knows, or bytes that make no sense, decode to None, and the record is shown as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkad.names import id_text, java_hash
from kafkad.wire.log_records import consumer_groups, consumer_offsets, share_groups, transaction_state
from kafkad.wire.messages import consumer_protocol
from kafkad.wire.records import Record
from kafkad.wire.schema import Field, MalformedError, Message, decode, within
from kctl.segments.values import compact

TRANSACTIONS_TOPIC = "__transaction_state"
TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)

_GROUP_RECORDS = {
    0: ("commit", consumer_offsets.OffsetCommitKey, consumer_offsets.OffsetCommitValue),
    1: ("commit", consumer_offsets.OffsetCommitKey, consumer_offsets.OffsetCommitValue),
    2: ("group", consumer_offsets.GroupMetadataKey, consumer_offsets.GroupMetadataValue),
}
_NEW_GROUP_RECORDS = {
    3: ("group-epoch", consumer_groups, "ConsumerGroupMetadata"),
    4: ("partitions", consumer_groups, "ConsumerGroupPartitionMetadata"),
    5: ("member", consumer_groups, "ConsumerGroupMemberMetadata"),
    6: ("target-epoch", consumer_groups, "ConsumerGroupTargetAssignmentMetadata"),
    7: ("target", consumer_groups, "ConsumerGroupTargetAssignmentMember"),
    8: ("assignment", consumer_groups, "ConsumerGroupCurrentMemberAssignment"),
    10: ("share-member", share_groups, "ShareGroupMemberMetadata"),
    11: ("share-epoch", share_groups, "ShareGroupMetadata"),
    12: ("share-target-epoch", share_groups, "ShareGroupTargetAssignmentMetadata"),
    13: ("share-target", share_groups, "ShareGroupTargetAssignmentMember"),
    14: ("share-assignment", share_groups, "ShareGroupCurrentMemberAssignment"),
    15: ("share-partitions", share_groups, "ShareGroupStatePartitionMetadata"),
    16: ("regex", consumer_groups, "ConsumerGroupRegularExpression"),
}


class Decoded(NamedTuple):
    """`subject` is the group or transactional id; `value` is None for a tombstone. Records of metadata have no key."""

    type: str
    subject: str
    key: Message | None
    key_version: int
    value: Message | None
    value_version: int

    @property
    def what(self) -> str:
        """One line for a person."""
        if self.type == "commit":
            return _commit_text(self.key, self.value)
        if self.type == "group" and self.value is not None:
            return _group_text(self.value)
        if self.type == "transaction" and self.value is not None:
            return _transaction_text(self.value)
        _, *of_what = [None] if self.key is None else as_dict(self.key, self.key_version).values()
        said = "deleted" if self.value is None else compact(as_dict(self.value, self.value_version))
        return " ".join((*of_what, said))


def decode_offsets(record: Record) -> Decoded | None:
    """A record of `__consumer_offsets`."""
    version = _version(record.key)
    if version in _GROUP_RECORDS:
        return _decode(record, *_GROUP_RECORDS[version])
    if version not in _NEW_GROUP_RECORDS:
        return None
    kind, module, name = _NEW_GROUP_RECORDS[version]
    classes = (getattr(module, name + part) for part in ("Key", "Value"))
    return _decode(record, kind, *classes)


def decode_transactions(record: Record) -> Decoded | None:
    """A record of `__transaction_state`."""
    return _decode(record, "transaction", transaction_state.TransactionLogKey, transaction_state.TransactionLogValue)


def _version(data: bytes | None) -> int:
    return -1 if data is None or len(data) < 2 else int.from_bytes(data[:2], "big", signed=True)


def _decode(record: Record, kind: str, key_class: Any, value_class: Any) -> Decoded | None:
    key = _message(key_class, record.key)
    value = None if record.value is None else _message(value_class, record.value)
    if key is None or (value is None and record.value is not None):
        return None
    subject = str(getattr(key, key.__schema__.fields[0].name))
    return Decoded(kind, subject, key, _version(record.key), value, _version(record.value))


def _message(cls: Any, data: bytes | None) -> Message | None:
    """The message after its version."""
    version = _version(data)
    if data is None or not within(version, cls.__schema__.versions):
        return None
    try:
        message: Message = decode(cls, version, data[2:])
    except MalformedError:
        return None
    return message


# --- as dictionaries


def as_dict(message: Message, version: int, *, camel: bool = False) -> dict[str, Any]:
    """The fields that `version` has. What consumers put into a group's opaque bytes is decoded too."""
    fields = {}
    for field in message.__schema__.fields:
        value = getattr(message, field.name)
        if within(version, field.versions) and (field.tag is None or value != _default(field)):
            fields[_camel(field.name) if camel else field.name] = _plain(field, value, version, camel)
    return fields


def _default(field: Field) -> Any:
    if field.default != ():
        return field.default
    return field.item() if field.kind == "struct" else []


def _plain(field: Field, value: Any, version: int, camel: bool) -> Any:
    if isinstance(value, Message):
        return as_dict(value, version, camel=camel)
    if isinstance(value, list):
        return [_plain_item(item, version, camel) for item in value]
    if field.kind == "16s":
        return id_text(value)
    if isinstance(value, bytes):
        return _opaque(field.name, value, camel)
    return value


def _plain_item(item: Any, version: int, camel: bool) -> Any:
    if isinstance(item, Message):
        return as_dict(item, version, camel=camel)
    return id_text(item) if isinstance(item, bytes) else item


def _opaque(name: str, data: bytes, camel: bool) -> Any:
    cls = _EMBEDDED.get(name)
    # A newer protocol only adds fields at the end: it is read as the newest that is known, as consumers do.
    version = min(_version(data), 3)
    if cls is not None and version >= 0:
        try:
            return as_dict(decode(cls, version, data[2:]), version, camel=camel)
        except MalformedError:
            pass
    from binascii import b2a_base64

    return b2a_base64(data, newline=False).decode()


_EMBEDDED: dict[str, type[Message]] = {
    "subscription": consumer_protocol.ConsumerProtocolSubscription,  # type: ignore[dict-item]  # made by a decorator
    "assignment": consumer_protocol.ConsumerProtocolAssignment,  # type: ignore[dict-item]
}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# --- for a person


def _commit_text(key: Any, value: Any) -> str:
    place = f"{key.topic}-{key.partition}"
    if value is None:
        return f"{place} deleted"
    metadata = f" ({value.metadata})" if value.metadata else ""
    return f"{place} = {value.offset}{metadata}"


def _group_text(value: Any) -> str:
    if not value.members:
        return f"gen {value.generation} empty"
    members = "; ".join(_member_text(member) for member in value.members)
    count = f"{len(value.members)} member{'s' if len(value.members) > 1 else ''}"
    return f"gen {value.generation} {value.protocol} leader {value.leader}, {count}: {members}"


def _member_text(member: Any) -> str:
    name = member.group_instance_id or member.member_id
    assignment = _opaque("assignment", member.assignment, camel=False)
    if not isinstance(assignment, dict):
        return str(name)
    topics = [
        f"{topic['topic']} {','.join(map(str, topic['partitions']))}" for topic in assignment["assigned_partitions"]
    ]
    return " ".join((str(name), *topics))


def _transaction_text(value: Any) -> str:
    partitions = f" on {', '.join(_partitions(value))}" if value.transaction_partitions else ""
    return f"{_state(value)} producer {value.producer_id} epoch {value.producer_epoch}{partitions}"


def _state(value: Any) -> str:
    number: int = value.transaction_status
    return TRANSACTION_STATES[number] if 0 <= number < len(TRANSACTION_STATES) else str(number)


def _partitions(value: Any) -> list[str]:
    return [
        f"{item.topic}-{partition}" for item in value.transaction_partitions or () for partition in item.partition_ids
    ]


# --- in the words of Kafka's dump tool


def kafka_text(decoded: Decoded) -> tuple[str, str]:
    """Key and payload."""
    value: Any = decoded.value
    if decoded.type == "transaction":
        key = f"transaction_metadata::transactionalId={decoded.subject}"
        if value is None:
            return key, "<DELETE>"
        return key, (
            f"producerId:{value.producer_id},producerEpoch:{value.producer_epoch},state={_state(value)},"
            f"partitions=[{','.join(_in_scala_order(value))}],"
            f"txnLastUpdateTimestamp={value.transaction_last_update_timestamp_ms},"
            f"txnTimeoutMs={value.transaction_timeout_ms}"
        )
    if decoded.key is None:
        return "", _metadata_text(decoded)
    key = compact({"type": str(decoded.key_version), "data": as_dict(decoded.key, decoded.key_version, camel=True)})
    if value is None:
        return key, "<DELETE>"
    return key, compact(
        {"version": str(decoded.value_version), "data": as_dict(value, decoded.value_version, camel=True)}
    )


def _metadata_text(decoded: Decoded) -> str:
    assert decoded.value is not None
    kind = f"{decoded.type}-record".replace("-", "_").upper()
    data = as_dict(decoded.value, decoded.value_version, camel=True)
    return compact({"type": kind, "version": decoded.value_version, "data": data})


def _in_scala_order(value: Any) -> list[str]:
    """Kafka's tool prints the partitions as a mutable HashSet of Scala 2.13 happens to iterate over them."""
    found: list[tuple[int, str]] = []
    buckets = 16
    for item in value.transaction_partitions or ():
        for partition in item.partition_ids:
            while len(found) + 1 >= buckets * 3 // 4:
                buckets *= 2
            code = 31 * (31 + partition) + java_hash(item.topic) & 0xFFFFFFFF
            spread = code ^ code >> 16
            found.append((spread, f"{item.topic}-{partition}"))
    found.sort(key=lambda entry: (entry[0] & buckets - 1, entry[0] - ((entry[0] & 1 << 31) << 1)))
    return [name for _, name in found]
