"""The hand-written Fetch codec against the declared one, version by version."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.wire import fetch as by_hand
from kafkad.wire.messages import fetch as declared
from kafkad.wire.primitives import MalformedError, put_uvarint
from kafkad.wire.schema import decode, encode

VERSIONS = range(4, 19)
INT64 = st.integers(-1, 2**62)
INT32 = st.integers(-1, 2**31 - 1)
IDS = st.binary(min_size=16, max_size=16)
PARTITION = st.tuples(INT32, INT32, INT64, INT32, INT64, INT32)
TOPICS = st.lists(st.tuples(st.text(min_size=1, max_size=150), IDS, st.lists(PARTITION, max_size=3)), max_size=3)
TopicValues = list[tuple[str, bytes, list[tuple[int, int, int, int, int, int]]]]


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=TOPICS, waits=st.tuples(INT32, INT32, INT32), session=st.tuples(INT32, INT32), replica=INT32)
@settings(max_examples=25)
def test_a_request_reads_as_declared(
    version: int, topics: TopicValues, waits: tuple[int, int, int], session: tuple[int, int], replica: int
) -> None:
    request = declared.FetchRequest(max_wait_ms=waits[0], min_bytes=waits[1], max_bytes=waits[2], isolation_level=1)
    if version >= 15:
        request.replica_state = declared.ReplicaState(replica_id=replica, replica_epoch=7)
    else:
        request.replica_id = replica
    if version >= 7:
        request.session_id, request.session_epoch = session
    for name, topic_id, partitions in topics:
        topic = declared.FetchTopic(
            partitions=[
                declared.FetchPartition(
                    partition=index,
                    current_leader_epoch=epoch if version >= 9 else -1,
                    fetch_offset=offset,
                    last_fetched_epoch=last if version >= 12 else -1,
                    log_start_offset=start if version >= 5 else -1,
                    partition_max_bytes=size,
                )
                for index, epoch, offset, last, start, size in partitions
            ]
        )
        forgotten = declared.ForgottenTopic(partitions=[p[0] for p in partitions])
        for each in (topic, forgotten):
            if version >= 13:
                each.topic_id = topic_id
            else:
                each.topic = name
        request.topics.append(topic)
        if version >= 7:
            request.forgotten_topics_data.append(forgotten)
    frame = by_hand.read_fetch(memoryview(encode(request, version)), 0, version)
    assert (frame.max_wait_ms, frame.min_bytes, frame.max_bytes, frame.read_committed) == (*waits, True)
    assert frame.replica_id == replica
    assert (frame.session_id, frame.session_epoch) == (session if version >= 7 else (0, -1))
    keys = [topic_id if version >= 13 else name for name, topic_id, _ in topics]
    assert [topic.key for topic in frame.topics] == keys
    for topic, (_, _, partitions) in zip(frame.topics, topics, strict=True):
        assert [tuple(wanted) for wanted in topic.partitions] == [
            (
                index,
                epoch if version >= 9 else -1,
                offset,
                last if version >= 12 else -1,
                start if version >= 5 else -1,
                size,
            )
            for index, epoch, offset, last, start, size in partitions
        ]
    if version >= 7:
        assert frame.forgotten == [(key, [p[0] for p in t[2]]) for key, t in zip(keys, topics, strict=True)]


@pytest.mark.parametrize("version", VERSIONS)
@given(
    name=st.text(min_size=1, max_size=150),
    numbers=st.tuples(INT64, INT64, INT64),
    aborted=st.one_of(st.none(), st.lists(st.tuples(INT64, INT64), max_size=3)),
    records=st.binary(max_size=200),
    diverging=st.one_of(st.none(), st.tuples(INT32.filter(lambda n: n >= 0), INT64.filter(lambda n: n >= 0))),
)
@settings(max_examples=25)
def test_a_response_is_packed_as_declared(
    version: int,
    name: str,
    numbers: tuple[int, int, int],
    aborted: list[tuple[int, int]] | None,
    records: bytes,
    diverging: tuple[int, int] | None,
) -> None:
    flexible = version >= by_hand.FIRST_FLEXIBLE
    key: str | bytes = b"k" * 16 if version >= by_hand.FIRST_WITH_TOPIC_IDS else name
    packed = by_hand.pack_start(version, 5, 0, 99, 1, 250) + by_hand.pack_topic(key, 1, version)
    packed += by_hand.pack_partition(version, 3, 6, *numbers, aborted, len(records)) + records
    if flexible:
        packed += by_hand.pack_partition_end(diverging) + b"\x00\x00"
    response = decode(declared.FetchResponse, version, packed[5 if flexible else 4 :])
    assert encode(response, version) == packed[5 if flexible else 4 :]
    assert response.throttle_time_ms == 250
    assert version < 7 or response.session_id == 99
    (partition,) = response.responses[0].partitions
    assert (partition.partition_index, partition.error_code, partition.records) == (3, 6, records)
    assert (partition.high_watermark, partition.last_stable_offset) == numbers[:2]
    assert version < 5 or partition.log_start_offset == numbers[2]
    got = partition.aborted_transactions
    assert (None if got is None else [(a.producer_id, a.first_offset) for a in got]) == aborted
    if flexible and diverging is not None:
        assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == diverging


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("version", range(7, 19))
def test_a_prepared_head_is_what_is_packed_without_it(version: int, read_committed: bool) -> None:
    key: str | bytes = b"k" * 16 if version >= by_hand.FIRST_WITH_TOPIC_IDS else "some-topic"
    head = by_hand.Head(version, 99, key, 3, read_committed)
    for throttle_ms in (0, 20_011):
        packed = by_hand.pack_start(version, 5, 0, 99, 1, throttle_ms) + by_hand.pack_topic(key, 1, version)
        packed += by_hand.pack_partition(version, 3, 0, 9, 8, 7, [] if read_committed else None, 300)
        size = (len(packed) + 300 + len(head.end)).to_bytes(4, "big")
        assert head.pack(5, 9, 8, 7, 300, throttle_ms) == size + packed


def with_tags(topics: int, forgotten: int, tags: int) -> bytes:
    """A request of version 12 with so many tagged fields for each topic."""
    fields = bytearray()
    put_uvarint(fields, tags)
    fields += b"\x05\x01." * tags
    body = bytearray(struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, 0))
    put_uvarint(body, topics + 1)
    body += (b"\x02t\x02" + struct.pack(">iiqiqi", 0, -1, 0, -1, -1, 1000) + b"\x00" + fields) * topics
    put_uvarint(body, forgotten + 1)
    body += (b"\x02t\x02" + struct.pack(">i", 0) + fields) * forgotten
    return bytes(body) + b"\x01\x00"


def test_a_few_tagged_fields_for_each_topic_are_passed_over() -> None:
    frame = by_hand.read_fetch(memoryview(with_tags(1000, 1000, 2)), 0, 12)
    assert (len(frame.topics), len(frame.forgotten)) == (1000, 1000)


@pytest.mark.parametrize(("topics", "forgotten"), [(3, 0), (0, 3)])
def test_tagged_fields_without_end_are_refused_before_they_are_read(topics: int, forgotten: int) -> None:
    assert len(by_hand.read_fetch(memoryview(with_tags(2, 2, 500)), 0, 12).topics) == 2
    with pytest.raises(MalformedError, match="tagged fields"):
        by_hand.read_fetch(memoryview(with_tags(topics, forgotten, 500)), 0, 12)
