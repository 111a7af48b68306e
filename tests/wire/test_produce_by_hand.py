"""The hand-written Produce codec against the declared one, version by version."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.wire.frames import encode_response, read_response_header
from kafkad.wire.leaders import CurrentLeader, NodeEndpoint
from kafkad.wire.messages import produce as declared
from kafkad.wire.messages.produce import (
    ProduceRequest,
    ProduceResponse,
)
from kafkad.wire.primitives import MalformedError, put_uvarint
from kafkad.wire.produce import (
    Answer,
    Success,
    Template,
    pack_answer,
    pack_response,
    pack_response_with_leaders,
    read_produce,
    read_produce_in_pieces,
)
from kafkad.wire.schema import decode, encode

VERSIONS = range(3, 14)
NAMES = st.text(min_size=1, max_size=200)
PARTITIONS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.one_of(st.none(), st.binary(max_size=300))), max_size=4)
TOPICS = st.lists(st.tuples(NAMES, st.binary(min_size=16, max_size=16), PARTITIONS), max_size=4)


def request(version: int, topics: list[tuple[str, bytes, list[tuple[int, bytes | None]]]], txn: str | None) -> bytes:
    data = []
    for name, topic_id, partitions in topics:
        topic = declared.TopicProduceData()
        if version >= 13:
            topic.topic_id = topic_id
        else:
            topic.name = name
        topic.partition_data = [declared.PartitionProduceData(index=i, records=r) for i, r in partitions]
        data.append(topic)
    return encode(ProduceRequest(transactional_id=txn, acks=-1, timeout_ms=1234, topic_data=data), version)


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=TOPICS, txn=st.one_of(st.none(), NAMES))
@settings(max_examples=25)
def test_a_request_reads_as_declared(
    version: int, topics: list[tuple[str, bytes, list[tuple[int, bytes | None]]]], txn: str | None
) -> None:
    body = b"head" + request(version, topics, txn)
    frame = read_produce(memoryview(body), 4, version)
    assert (frame.transactional_id, frame.acks, frame.timeout_ms) == (txn, -1, 1234)
    assert [(t.topic_id if version >= 13 else t.name) for t in frame.topics] == [
        topic_id if version >= 13 else name for name, topic_id, _ in topics
    ]
    read = [[(index, body[at:end]) for index, at, end in t.partitions] for t in frame.topics]
    assert read == [[(i, r or b"") for i, r in partitions] for _, _, partitions in topics]


@pytest.mark.parametrize("version", VERSIONS)
@given(topics=TOPICS, data=st.data())
@settings(max_examples=25)
def test_a_response_is_packed_as_declared(
    version: int, topics: list[tuple[str, bytes, list[tuple[int, bytes | None]]]], data: st.DataObject
) -> None:
    frame = read_produce(memoryview(request(version, topics, None)), 0, version)
    answers = [
        [
            Answer(
                index,
                data.draw(st.sampled_from([0, 3, 87])),
                data.draw(st.integers(-1, 2**62)),
                data.draw(st.integers(-1, 2**62)),
                data.draw(st.integers(-1, 2**62)),
                data.draw(st.one_of(st.none(), st.just("why"))) if version >= 8 else None,
                data.draw(st.sampled_from([(), ((3, "this one"), (4, None))])) if version >= 8 else (),
            )
            for index, _, _ in topic.partitions
        ]
        for topic in frame.topics
    ]
    packed = pack_response(frame, version, 77, [pack_answer(a, version) for each in answers for a in each])
    correlation_id, at = read_response_header(0, version, packed, 4)
    response = decode(ProduceResponse, version, packed[at:])
    assert correlation_id == 77
    assert encode_response(0, version, 77, response) == packed
    for each, topic in zip(answers, response.responses, strict=True):
        for answer, got in zip(each, topic.partition_responses, strict=True):
            assert (got.index, got.error_code, got.base_offset) == answer[:3]
            assert got.log_append_time_ms == answer.log_append_time_ms
            assert version < 5 or got.log_start_offset == answer.log_start_offset
            assert version < 8 or got.error_message == answer.message
            assert version < 8 or [(e.batch_index, e.batch_index_error_message) for e in got.record_errors] == list(
                answer.record_errors
            )


@pytest.mark.parametrize("rack", [None, "", "r" * 300])
@pytest.mark.parametrize("version", range(10, 14))
def test_leaders_are_packed_as_declared(version: int, rack: str | None) -> None:
    frame = read_produce(memoryview(request(version, [("t", b"i" * 16, [(5, b"x")])], None)), 0, version)
    answer = pack_answer(Answer(5, 6, leader=CurrentLeader(2, 7)), version)
    parts = pack_response_with_leaders(frame, version, 77, [answer], [NodeEndpoint(2, "a-host", 9092, rack)])
    packed = b"".join(parts)
    response = decode(ProduceResponse, version, packed[read_response_header(0, version, packed, 4)[1] :])
    assert encode_response(0, version, 77, response) == packed
    assert response.responses[0].partition_responses[0].current_leader == declared.LeaderIdAndEpoch(
        leader_id=2, leader_epoch=7
    )
    assert response.node_endpoints == [declared.NodeEndpoint(node_id=2, host="a-host", port=9092, rack=rack)]
    assert parts[0].endswith(bytes(4)), "the throttle time"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_template_is_the_response_it_stands_for(version: int) -> None:
    body = request(version, [("some-topic", b"i" * 16, [(5, b"records")])], None)
    frame = read_produce(memoryview(body), 0, version)
    assert frame.repeats == body.index(b"records") - (1 if version >= 9 else 4)
    template = Template(frame, version)
    for base, start, throttle_ms in ((0, 0, 0), (2**40, 17, 20_011), (1, 1, 0)):
        filled = (template.fill if version >= 5 else template.fill_v2)(9, base, start, throttle_ms)
        answer = pack_answer(Answer(5, 0, base, -1, start), version)
        assert filled == pack_response(frame, version, 9, [answer], throttle_ms)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_a_single_partition_repeats(version: int) -> None:
    two = [("a", b"a" * 16, [(0, b"x"), (1, b"y")])]
    assert read_produce(memoryview(request(version, two, None)), 0, version).repeats == 0
    one = [("a", b"a" * 16, [(0, b"x")])]
    assert read_produce(memoryview(request(version, one, "txn")), 0, version).repeats > 0
    assert read_produce(memoryview(request(version, one * 2, None)), 0, version).repeats == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_malformed(version: int) -> None:
    body = request(version, [("topic", b"t" * 16, [(0, b"records"), (1, None)])], None)
    for end in range(len(body)):
        with pytest.raises((MalformedError, struct.error, IndexError)):
            read_produce(memoryview(body)[:end], 0, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_success_is_packed_like_any_answer(version: int) -> None:
    assert Success(version).pack(3, 2**40, 17) == pack_answer(Answer(3, 0, 2**40, -1, 17), version)


SHAPES = [(1, 19, 0), (1, 20, 1), (1, 60, 3), (10, 1, 0), (11, 1, 1), (60, 0, 2), (3, 28, 4)]


@pytest.mark.parametrize(("topics", "partitions", "stops"), SHAPES)
@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_request_for_many_partitions_is_read_in_pieces(
    version: int, topics: int, partitions: int, stops: int
) -> None:
    asked = [(f"t{i}", i.to_bytes(16), [(index, b"r") for index in range(partitions)]) for i in range(topics)]
    body = memoryview(request(version, asked, None))
    assert sum(1 for _ in read_produce_in_pieces(body, 0, version)) == stops
    frame = read_produce(body, 0, version)
    read = [[(index, body[at:end]) for index, at, end in t.partitions] for t in frame.topics]
    assert read == [rows for _, _, rows in asked]


def with_tags(partitions: int, tags: int) -> bytes:
    """A request of version 9 with so many tagged fields for each partition."""
    fields = bytearray()
    put_uvarint(fields, tags)
    fields += b"\x05\x01." * tags
    body = bytearray(b"\x00" + struct.pack(">hi", 1, 1000) + b"\x02\x02x")
    put_uvarint(body, partitions + 1)
    for index in range(partitions):
        body += struct.pack(">i", index) + b"\x02r" + fields
    return bytes(body) + b"\x00\x00"


def test_a_few_tagged_fields_for_each_partition_are_passed_over() -> None:
    [topic] = read_produce(memoryview(with_tags(1000, 2)), 0, 9).topics
    assert len(topic.partitions) == 1000


def test_tagged_fields_without_end_are_refused_before_they_are_read() -> None:
    assert len(read_produce(memoryview(with_tags(2, 500)), 0, 9).topics[0].partitions) == 2
    with pytest.raises(MalformedError, match="tagged fields"):
        read_produce(memoryview(with_tags(3, 500)), 0, 9)
