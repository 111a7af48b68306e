"""Records of real Kafka's internal topics: every key and value is read, and written again to the same bytes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafkad.wire.log_records import consumer_groups, share_groups
from kafkad.wire.log_records.consumer_groups import ClassicMemberMetadata, ConsumerGroupMemberMetadataValue
from kafkad.wire.log_records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kafkad.wire.log_records.transaction_state import TransactionLogKey, TransactionLogValue
from kafkad.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkad.wire.records import Record, iter_batches, iter_records
from kafkad.wire.schema import encode, read

GOLDEN = Path(__file__).parent.parent / "golden"
LOGS = GOLDEN / "logs" / "main"
NEW_GROUPS = GOLDEN / "newgroups" / "logs"
NEW_GROUP_RECORDS = {
    3: (consumer_groups, "ConsumerGroupMetadata"),
    4: (consumer_groups, "ConsumerGroupPartitionMetadata"),
    5: (consumer_groups, "ConsumerGroupMemberMetadata"),
    6: (consumer_groups, "ConsumerGroupTargetAssignmentMetadata"),
    7: (consumer_groups, "ConsumerGroupTargetAssignmentMember"),
    8: (consumer_groups, "ConsumerGroupCurrentMemberAssignment"),
    10: (share_groups, "ShareGroupMemberMetadata"),
    11: (share_groups, "ShareGroupMetadata"),
    12: (share_groups, "ShareGroupTargetAssignmentMetadata"),
    13: (share_groups, "ShareGroupTargetAssignmentMember"),
    14: (share_groups, "ShareGroupCurrentMemberAssignment"),
    15: (share_groups, "ShareGroupStatePartitionMetadata"),
    16: (consumer_groups, "ConsumerGroupRegularExpression"),
}


def records_of(topic: str, logs: Path = LOGS) -> list[Record]:
    found = []
    for path in sorted(logs.glob(f"{topic}-*/*.log")):
        view = memoryview(path.read_bytes())
        for at, header in iter_batches(view):
            if not header.is_control:
                found += list(iter_records(view, at, header))
    return found


def versioned(cls: type[Any], raw: bytes) -> Any:
    """The message after its two bytes of version, checked to be all of `raw`."""
    version = int.from_bytes(raw[:2], "big")
    message, end = read(cls, version, raw, 2)
    assert end == len(raw)
    assert raw[:2] + encode(message, version) == raw
    return message


def test_consumer_offsets() -> None:
    kinds = Counter[str]()
    for record in records_of("__consumer_offsets"):
        assert record.key is not None
        offset = record.key[1] < 2
        key = versioned(OffsetCommitKey if offset else GroupMetadataKey, bytes(record.key))
        assert key.group
        if record.value is not None:
            value = versioned(OffsetCommitValue if offset else GroupMetadataValue, bytes(record.value))
            kinds[type(value).__name__] += 1
            if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
                check_members(value)
                kinds["members"] += len(value.members)
    assert min(kinds[kind] for kind in ("OffsetCommitValue", "GroupMetadataValue", "members")) > 0


def check_members(group: GroupMetadataValue) -> None:
    for member in group.members:
        if member.subscription:
            assert versioned_start(ConsumerProtocolSubscription, member.subscription).topics
        if member.assignment:
            versioned_start(ConsumerProtocolAssignment, member.assignment)


def versioned_start(cls: type[Any], raw: bytes) -> Any:
    """As `versioned`, where a client may have put more behind."""
    version = min(int.from_bytes(raw[:2], "big"), 3)
    message, end = read(cls, version, raw, 2)
    assert encode(message, version) == raw[2:end]
    return message


def test_transaction_state() -> None:
    states = Counter[int]()
    for record in records_of("__transaction_state"):
        assert record.key is not None
        assert versioned(TransactionLogKey, bytes(record.key)).transactional_id
        if record.value is not None:
            value = versioned(TransactionLogValue, bytes(record.value))
            states[value.transaction_status] += 1
    assert {0, 1, 2, 3, 4, 5} <= states.keys()


def test_groups_of_the_new_protocols() -> None:
    """Metadata that is not classic is a null in a tagged field; a member without any has none."""
    kinds = Counter[int]()
    for record in records_of("__consumer_offsets", NEW_GROUPS):
        assert record.key is not None
        kind = int.from_bytes(record.key[:2], "big")
        if kind > 2:
            module, name = NEW_GROUP_RECORDS[kind]
            versioned(getattr(module, f"{name}Key"), bytes(record.key))
            if record.value is not None:
                versioned(getattr(module, f"{name}Value"), bytes(record.value))
                kinds[kind] += 1
    assert kinds.keys() == NEW_GROUP_RECORDS.keys() - {4}, "Kafka 4.3 writes only tombstones of kind 4"


@pytest.mark.parametrize(
    ("tags", "metadata"),
    [
        ("00", ClassicMemberMetadata()),
        ("01 00 01 00", None),
        ("01 00 07 01 00 00 00 09 01 00", ClassicMemberMetadata(session_timeout_ms=9)),
    ],
)
def test_null_in_a_tagged_field(tags: str, metadata: ClassicMemberMetadata | None) -> None:
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=metadata)
    raw = encode(value, 0)
    assert raw.endswith(bytes.fromhex(tags))
    assert read(ConsumerGroupMemberMetadataValue, 0, raw, 0) == (value, len(raw))
