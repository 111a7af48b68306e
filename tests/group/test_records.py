"""Records of groups and offsets: the bytes of real Kafka, the declared codec, and bytes that nobody should write."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.group.records import (
    GroupForgotten,
    GroupRecord,
    GroupWritten,
    MemberWritten,
    OffsetCommitted,
    OffsetForgotten,
    decode,
    encode,
    least_size,
)
from kafkad.wire import schema
from kafkad.wire.log_records.consumer_offsets import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kafkad.wire.primitives import EncodeError, MalformedError
from kafkad.wire.records import Record, iter_batches, iter_records

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"


def golden_records() -> list[Record]:
    found = []
    for path in sorted(GOLDEN.glob("**/__consumer_offsets-*/*.log")):
        view = memoryview(path.read_bytes())
        for at, header in iter_batches(view):
            if not header.is_control:
                found += list(iter_records(view, at, header))
    return found


def test_what_kafka_wrote_is_read_and_written_again() -> None:
    kinds = Counter[type]()
    for _, _, key, value, _ in golden_records():
        assert key is not None
        record = decode(key, value)
        assert record is not None
        assert encode(record) == (key, value)
        kinds[type(record)] += 1
    assert set(kinds) == {OffsetCommitted, OffsetForgotten, GroupWritten, GroupForgotten}


NAMES = st.text(max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    MemberWritten,
    member_id=NAMES,
    group_instance_id=st.none() | NAMES,
    client_id=NAMES,
    client_host=NAMES,
    rebalance_timeout=INT32,
    session_timeout=INT32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
OFFSETS = st.builds(OffsetCommitted, NAMES, NAMES, INT32, INT64, INT32, NAMES, INT64, st.just(-1))
EXPIRING = st.builds(OffsetCommitted, NAMES, NAMES, INT32, INT64, st.just(-1), NAMES, INT64, INT64)
GROUPS = st.builds(
    GroupWritten,
    NAMES,
    NAMES,
    INT32,
    st.none() | NAMES,
    st.none() | NAMES,
    INT64,
    st.lists(MEMBERS, max_size=3).map(tuple),
)
RECORDS = (
    OFFSETS | EXPIRING | GROUPS | st.builds(OffsetForgotten, NAMES, NAMES, INT32) | st.builds(GroupForgotten, NAMES)
)


@given(RECORDS)
def test_any_record_comes_back(record: GroupRecord) -> None:
    assert decode(*encode(record)) == record


@given(RECORDS)
def test_no_record_is_smaller_than_its_least_size(record: GroupRecord) -> None:
    key, value = encode(record)
    assert least_size(record) <= len(key) + len(value or b"")


def test_what_clients_send_along_counts_into_the_least_size() -> None:
    member = MemberWritten("m", None, "c", "/127.0.0.1", 1, 1, b"s" * 1000, b"a" * 1000)
    assert least_size(GroupWritten("g", "consumer", 1, "range", "m", 0, (member, member))) >= 4000
    assert least_size(OffsetCommitted("g", "t", 0, 5, -1, "m" * 1000, 0)) >= 1000


@given(OFFSETS | EXPIRING)
def test_packing_by_hand_is_the_declared_codec(record: OffsetCommitted) -> None:
    key, value = encode(record)
    declared_key = OffsetCommitKey(group=record.group, topic=record.topic, partition=record.partition)
    assert key == b"\0\1" + schema.encode(declared_key, 1)
    expires = record.expire_timestamp != -1
    assert value == (b"\0\1" if expires else b"\0\3") + schema.encode(offset_value(record), 1 if expires else 3)


@given(OFFSETS, st.integers(0, 4))
def test_every_version_of_an_offset_is_read(record: OffsetCommitted, version: int) -> None:
    key, _ = encode(record)
    said = offset_value(record)
    said.topic_id = bytes(range(16)) if version == 4 else bytes(16)
    value = version.to_bytes(2, "big") + schema.encode(said, version)
    for key_version in (0, 1):
        old = key_version.to_bytes(2, "big") + key[2:]
        assert decode(old, value) == (record if version >= 3 else record._replace(leader_epoch=-1))


def offset_value(record: OffsetCommitted) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=record.offset,
        leader_epoch=record.leader_epoch,
        metadata=record.metadata,
        commit_timestamp=record.commit_timestamp,
        expire_timestamp=record.expire_timestamp,
    )


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_is_read(version: int) -> None:
    member = MemberMetadata(
        member_id="m",
        group_instance_id="static" if version >= 3 else None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=60000 if version else -1,
        session_timeout=45000,
        subscription=b"subscription",
        assignment=b"assignment",
    )
    said = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        current_state_timestamp=1700000000000 if version >= 2 else -1,
        members=[member],
    )
    key, _ = encode(GroupForgotten("g"))
    record = decode(key, version.to_bytes(2, "big") + schema.encode(said, version))
    assert isinstance(record, GroupWritten)
    assert record[:6] == ("g", "consumer", 7, "range", "m", 1700000000000 if version >= 2 else -1)
    static = "static" if version >= 3 else None
    rebalance = 60000 if version else 45000
    assert record.members == (
        MemberWritten("m", static, "c", "/127.0.0.1", rebalance, 45000, b"subscription", b"assignment"),
    )


@pytest.mark.parametrize("kind", [3, 4, 5, 6, 7, 8, 16, 99, -1])
def test_kinds_of_other_protocols_are_skipped(kind: int) -> None:
    assert decode(kind.to_bytes(2, "big", signed=True) + b"\0\1g", b"\0\0\0\0\0\1\0") is None


OFFSET_KEY, OFFSET_VALUE = encode(OffsetCommitted("g", "t", 0, 5, 1, "m", 1700000000000))
GROUP_KEY, GROUP_VALUE = encode(GroupWritten("g", "consumer", 1, None, None, 1700000000000, ()))
assert OFFSET_VALUE is not None and GROUP_VALUE is not None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        *((OFFSET_KEY[:size], None) for size in range(2, len(OFFSET_KEY))),
        *((OFFSET_KEY, OFFSET_VALUE[:size]) for size in range(len(OFFSET_VALUE))),
        *((GROUP_KEY, GROUP_VALUE[:size]) for size in range(len(GROUP_VALUE))),
        (GROUP_KEY[:3], None),
        (b"\0\1\xff\xff" + OFFSET_KEY[4:], None),
        (b"\0\1\0\1\xff" + OFFSET_KEY[5:], None),
        (OFFSET_KEY, b"\0\5" + OFFSET_VALUE[2:]),
        (OFFSET_KEY, b"\xff\xff" + OFFSET_VALUE[2:]),
        (OFFSET_KEY, OFFSET_VALUE[:14] + b"\xff\xff" + OFFSET_VALUE[16:]),
        (GROUP_KEY, b"\0\5" + GROUP_VALUE[2:]),
    ],
)
def test_what_is_no_record_is_refused(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedError):
        decode(key, value)


@given(st.data())
def test_nothing_but_a_malformed_error_comes_of_any_bytes(data: st.DataObject) -> None:
    key, value = (bytearray(part) for part in encode(OffsetCommitted("group", "topic", 3, 5, 1, "", 7)))
    for part in (key, value):
        for _ in range(data.draw(st.integers(0, 2))):
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(key)))
    try:
        record = decode(bytes(key[:cut]), bytes(value))
    except MalformedError:
        return
    if isinstance(record, OffsetCommitted):
        assert decode(*encode(record)) == record


@pytest.mark.parametrize(
    "record",
    [
        OffsetCommitted("g" * 40000, "t", 0, 5, 1, "", 0),
        OffsetCommitted("g", "t", 0, 5, 1, "m" * 40000, 0),
        OffsetCommitted("g", "t", 0, 5, -1, "m" * 40000, 0, 5),
        OffsetForgotten("g", "t" * 40000, 0),
        GroupForgotten("g" * 40000),
    ],
)
def test_what_the_format_cannot_hold_is_refused(record: GroupRecord) -> None:
    with pytest.raises(EncodeError):
        encode(record)
