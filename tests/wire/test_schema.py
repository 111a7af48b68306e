from __future__ import annotations

import copy

import pytest

from kafkad.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from kafkad.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.schema import (
    EncodeError,
    MalformedError,
    array,
    bytes_,
    decode,
    encode,
    int8,
    int16,
    int32,
    message,
    nested,
    read,
    string,
    struct,
    uuid,
)


@nested
class Spot:
    x: int = int8()
    y: int = int8("1+", ignorable=True)
    label: str | None = string("2+", nullable="2+", default=None)


@message(key=-1, versions="0-3", flexible="2+")
class Sample:
    number: int = int16()
    kept: int = int32("1+", default=-1)
    dropped: int = int32("1+", default=-1, ignorable=True)
    raw: bytes | None = bytes_(nullable="1+")
    spots: list[Spot] | None = array(Spot, nullable="1+")
    ids: list[bytes] = array(uuid, "1+", ignorable=True)
    words: list[str] = array(string, "1+")
    where: Spot = struct(Spot, "2+", tag=1)
    note: str | None = string("2+", nullable="2+", default=None, tag=0)


def test_every_field_has_a_default_of_its_own() -> None:
    one, two = Sample(), Sample(number=3)
    assert (one.number, one.kept, one.raw, one.spots, one.where, one.note) == (0, -1, b"", [], Spot(), None)
    assert one.spots is not two.spots
    assert one.where is not two.where
    assert one != two
    assert two == copy.deepcopy(two)
    assert repr(Spot(x=1)) == "Spot(x=1, y=0, label=None)"


def test_an_unknown_field_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="colour"):
        Spot(colour=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Spot().colour = 1  # type: ignore[attr-defined]


def test_plain_bytes() -> None:
    sample = Sample(number=1, raw=b"ab", spots=[Spot(x=5), Spot(x=-1)])
    assert encode(sample, 0).hex(" ") == "00 01 00 00 00 02 61 62 00 00 00 02 05 ff"


def test_compact_bytes_with_tags() -> None:
    sample = Sample(raw=None, spots=None, words=["é"], where=Spot(x=1), note="hi")
    expected = "00 00 ff ff ff ff ff ff ff ff 00 00 01 02 03 c3 a9 02 00 03 03 68 69 01 04 01 00 00 00"
    assert encode(sample, 2).hex(" ") == expected
    assert decode(Sample, 2, bytes.fromhex(expected)) == sample


@pytest.mark.parametrize("version", range(4))
def test_what_a_version_does_not_have_comes_back_as_the_default(version: int) -> None:
    sample = Sample(number=7, dropped=5, ids=[bytes(range(16))], spots=[Spot(x=1, y=2)])
    back = decode(Sample, version, encode(sample, version))
    assert back.dropped == (5 if version else -1)
    assert back.ids == ([bytes(range(16))] if version else [])
    assert back.spots == [Spot(x=1, y=2 if version else 0)]


def test_a_value_that_a_version_cannot_carry_is_refused() -> None:
    with pytest.raises(EncodeError, match=r"Sample\.kept cannot be sent in version 0"):
        encode(Sample(kept=1), 0)
    with pytest.raises(EncodeError, match=r"Sample\.words"):
        encode(Sample(words=["a"]), 0)
    with pytest.raises(EncodeError, match=r"Spot\.label"):
        encode(Sample(spots=[Spot(label="a")]), 1)
    with pytest.raises(EncodeError, match="Sample v0"):
        encode(Sample(raw=None), 0)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(number=1 << 15),
        Sample(number="1"),  # type: ignore[arg-type]
        Sample(words=[None]),  # type: ignore[list-item]
        Sample(words=["\ud800"]),
        Sample(words=["a" * 0x8000]),
        Sample(spots=[None]),  # type: ignore[list-item]
    ],
    ids=["too large", "no number", "null", "no unicode", "too long", "no struct"],
)
@pytest.mark.parametrize("version", [1, 2])
def test_what_cannot_be_written_is_an_encode_error(sample: Sample, version: int) -> None:
    with pytest.raises(EncodeError):
        encode(sample, version)


def test_versions_out_of_range_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="has versions 0-4, not 5"):
        encode(HeartbeatResponse(), 5)
    with pytest.raises(ValueError, match="has versions 0-4, not 5"):
        decode(HeartbeatResponse, 5, b"")


def test_what_is_left_over_is_ignored() -> None:
    raw = encode(HeartbeatResponse(error_code=3), 0)
    assert decode(HeartbeatResponse, 0, raw + b"more") == HeartbeatResponse(error_code=3)
    assert read(HeartbeatResponse, 0, memoryview(b"xx" + raw + b"more"), 2) == (HeartbeatResponse(error_code=3), 4)


def test_unknown_tagged_fields_are_skipped() -> None:
    raw = encode(HeartbeatRequest(group_id="g"), 4)
    assert raw.endswith(b"\0")
    assert decode(HeartbeatRequest, 4, raw[:-1] + b"\x01\x09\x03abc") == HeartbeatRequest(group_id="g")
    body = encode(Sample(), 2)[:-1]
    assert encode(Sample(note="n"), 2) == body + b"\x01\x00\x02\x02n"
    assert decode(Sample, 2, body + b"\x02\x00\x02\x02n\x0a\x02ab") == Sample(note="n")


def test_null_and_empty_are_two_things() -> None:
    assert decode(MetadataRequest, 1, encode(MetadataRequest(topics=None), 1)).topics is None
    assert decode(MetadataRequest, 12, encode(MetadataRequest(topics=[]), 12)).topics == []
    null_name = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"t" * 16)])
    assert decode(MetadataRequest, 12, encode(null_name, 12)) == null_name
    for cursor in (None, Cursor(topic_name="t", partition_index=2)):
        request = DescribeTopicPartitionsRequest(cursor=cursor)
        assert decode(DescribeTopicPartitionsRequest, 0, encode(request, 0)) == request


def test_any_size_below_0_says_null() -> None:
    null = decode(Sample, 1, bytes.fromhex("0000 00000000 00000000 fffffffe 80000000 00000000 00000001 0001 61"))
    assert (null.raw, null.spots, null.ids, null.words) == (None, None, [], ["a"])
    with pytest.raises(MalformedError, match="null"):
        decode(Sample, 1, bytes.fromhex("0000 00000000 00000000 fffffffe 80000000 80000000 00000001 0001 61"))


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_no_utf_8_is_read_as_kafka_reads_it(version: int) -> None:
    raw = encode(Sample(words=["m?ller"]), version)
    assert decode(Sample, version, memoryview(raw.replace(b"?", b"\xfc"))).words == ["m\ufffdller"]


@pytest.mark.parametrize(("size", "fits"), [(10_922, True), (10_923, False)])
def test_what_is_no_utf_8_can_always_be_sent_back(size: int, fits: bool) -> None:
    raw = encode(Sample(words=["?" * size]), 2).replace(b"?", b"\xff")
    if fits:
        encode(decode(Sample, 2, raw), 2)
        return
    with pytest.raises(MalformedError, match="no UTF-8"):
        decode(Sample, 2, raw)


@pytest.mark.parametrize(
    ("version", "raw"),
    [
        (0, "00"),
        (0, "0000 ffffffff 00000000"),
        (0, "0000 fffffffe 00000000"),
        (0, "0000 7fffffff"),
        (0, "0000 00000000 7fffffff 00"),
        (1, "0000 00000000 00000000 ffffffff ffffffff 7fffffff"),
        (1, "0000 00000000 00000000 ffffffff ffffffff 00000000 00000001 ffff"),
        (2, "0000 00000000 00000000 ffffffff0f"),
        (2, "0000 00000000 00000000 ffffffffff01"),
        (2, "0000 00000000 00000000 01 01 01 01 01 01 02 00000000"),
        (2, "0000 00000000 00000000 01 01 01 01 01 00 05 01"),
        (2, "0000 00000000 00000000 01 01 01 01 01 09 ffffffff07"),
    ],
    ids=[
        "cut off",
        "null bytes where there is no null",
        "a size below null",
        "bytes of 2 GB",
        "two thousand million spots",
        "two thousand million ids",
        "null among words",
        "bytes of 4 GB",
        "a length of six bytes",
        "a tagged field shorter than its value",
        "a tagged field that runs past the end",
        "an unknown tagged field of 2 GB",
    ],
)
def test_malformed(version: int, raw: str) -> None:
    with pytest.raises(MalformedError):
        decode(Sample, version, bytes.fromhex(raw))
