"""Produce by hand: the one request whose decoding is measured in fractions of a microsecond.

`messages/produce.py` declares the same bytes; a test holds the two against each other for every version. Requests are
read in place: records stay where they are, as positions in the frame. Names and counts of the request are the same
bytes in the response, so they are echoed, never encoded again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkad.turns import Pieces, at_once
from kafkad.wire.leaders import CurrentLeader, NodeEndpoint, pack_endpoints, pack_leader
from kafkad.wire.primitives import (
    MAX_TAGS,
    MalformedError,
    get_compact_count,
    get_count,
    get_nullable_compact_string,
    get_nullable_string,
    get_uvarint,
    put_uvarint,
    skip_tags,
)

FIRST_FLEXIBLE: Final = 9
MOST_PARTITIONS: Final = 20_000
"""The limit for one request."""
PIECE: Final = 20
"""Requests are read in pieces of so many topics and partitions."""
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_LEADERS: Final = 10

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ACKS = struct.Struct(">hi")
_INDEX_AND_LENGTH = struct.Struct(">ii")
PARTITION_V2 = struct.Struct(">ihqq")
PARTITION_V5 = struct.Struct(">ihqqq")


PartitionData = tuple[int, int, int]
"""Partition, and where its records stand in the frame: from, to. Equal where the client sent null."""


class TopicData(NamedTuple):
    echo: bytes
    """The topic's name or id and its partition count, as they came."""
    name: str | None
    topic_id: bytes | None
    partitions: list[PartitionData]


class ProduceFrame(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    echo: bytes
    topics: list[TopicData]
    repeats: int
    """The end of the bytes that a one-partition request repeats: right after its partition index; 0 for others."""


def read_text(frame: memoryview, at: int, flexible: bool) -> tuple[str, int]:
    text, end = get_nullable_compact_string(frame, at) if flexible else get_nullable_string(frame, at)
    if text is None:
        raise MalformedError(f"the name at {at} is null")
    return text, end


def read_count(frame: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    count, at = get_compact_count(frame, at) if flexible else get_count(frame, at)
    if count < 0:
        raise MalformedError(f"the array before {at} is null")
    return count, at


def uvarint(value: int) -> bytes:
    """HOT."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    put_uvarint(out, value)
    return bytes(out)


def read_produce(frame: memoryview, at: int, version: int) -> ProduceFrame:
    """The body of a Produce request, versions 3 to 13; `at` is where it starts, after the request header."""
    return at_once(read_produce_in_pieces(frame, at, version))


def read_produce_in_pieces(frame: memoryview, at: int, version: int) -> Pieces[ProduceFrame]:
    """HOT. The same; it stops only in requests that have more than `PIECE` topics or partitions."""
    flexible = version >= FIRST_FLEXIBLE
    transactional_id, at = get_nullable_compact_string(frame, at) if flexible else get_nullable_string(frame, at)
    acks, timeout_ms = _ACKS.unpack_from(frame, at)
    at += 6
    topics_at = at
    count, at = read_count(frame, at, flexible)
    left = MOST_PARTITIONS - count
    echo = bytes(frame[topics_at:at])
    topics = []
    repeats = 0
    read = _read_flexible if flexible else _read_plain
    piece, tags = PIECE, MAX_TAGS
    for _ in range(count):
        if not piece:
            piece = PIECE
            yield
        topic, partitions_count, at = _read_topic(frame, at, version, flexible)
        left -= partitions_count
        if left < 0:
            raise MalformedError(f"it names more than {MOST_PARTITIONS} topics and partitions")
        topics.append(topic)
        repeats = at + 4
        piece -= 1
        while partitions_count > piece:
            at, tags = read(frame, at, piece, topic.partitions, tags)
            partitions_count -= piece
            piece = PIECE
            yield
        at, tags = read(frame, at, partitions_count, topic.partitions, tags)
        piece -= partitions_count
        if flexible:
            at, tags = (at + 1, tags) if frame[at] == 0 else skip_tags(frame, at, tags)
    if flexible and frame[at]:
        skip_tags(frame, at, tags)
    if count != 1 or len(topics[0].partitions) != 1:
        repeats = 0
    return ProduceFrame(transactional_id, acks, timeout_ms, echo, topics, repeats)


def _read_topic(frame: memoryview, at: int, version: int, flexible: bool) -> tuple[TopicData, int, int]:
    """A topic whose partitions are still to be read, how many there are, and where they start."""
    start = at
    name = topic_id = None
    if version >= FIRST_WITH_TOPIC_IDS:
        topic_id = bytes(frame[at : at + 16])
        at += 16
    else:
        name, at = read_text(frame, at, flexible)
    count, at = read_count(frame, at, flexible)
    return TopicData(bytes(frame[start:at]), name, topic_id, []), count, at


def _read_plain(frame: memoryview, at: int, count: int, partitions: list[PartitionData], tags: int) -> tuple[int, int]:
    """HOT."""
    for _ in range(count):
        index, length = _INDEX_AND_LENGTH.unpack_from(frame, at)
        at += 8
        end = at + length if length > 0 else at
        if end > len(frame):
            raise _cut_off(at, length)
        partitions.append((index, at, end))
        at = end
    return at, tags


def _read_flexible(
    frame: memoryview, at: int, count: int, partitions: list[PartitionData], tags: int
) -> tuple[int, int]:
    """HOT."""
    for _ in range(count):
        (index,) = _I32.unpack_from(frame, at)
        length = frame[at + 4]
        at += 5
        if length > 0x7F:
            length, at = get_uvarint(frame, at - 1)
        end = at + length - 1 if length else at
        if end > len(frame):
            raise _cut_off(at, length - 1)
        partitions.append((index, at, end))
        if frame[end] == 0:
            at = end + 1
        else:
            at, tags = skip_tags(frame, end, tags)
    return at, tags


def _cut_off(at: int, length: int) -> MalformedError:
    return MalformedError(f"{length} bytes of records at {at} end after their frame")


class Answer(NamedTuple):
    """One partition's part of the response. Errors carry -1 for every number."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
    leader: CurrentLeader | None = None
    """Where this broker does not lead the partition; version 10 and later say it."""


def pack_answer(answer: Answer, version: int) -> bytes:
    partition, code, base, append_time, start, message, record_errors, leader = answer
    if version < 5:
        return PARTITION_V2.pack(partition, code, base, append_time)
    fixed = PARTITION_V5.pack(partition, code, base, append_time, start)
    if version < 8:
        return fixed
    if message is None and not record_errors:
        errors = b"\x01\x00" if version >= FIRST_FLEXIBLE else b"\x00\x00\x00\x00\xff\xff"
    else:
        errors = _pack_errors(message, record_errors, version >= FIRST_FLEXIBLE)
    if version < FIRST_FLEXIBLE:
        return fixed + errors
    if leader is None or version < FIRST_WITH_LEADERS:
        return fixed + errors + b"\x00"
    return fixed + errors + b"\x01" + pack_leader(0, leader)


def _pack_errors(message: str | None, record_errors: tuple[tuple[int, str | None], ...], flexible: bool) -> bytes:
    out = [uvarint(len(record_errors) + 1) if flexible else _I32.pack(len(record_errors))]
    for index, text in record_errors:
        out += [_I32.pack(index), _pack_text(text, flexible), b"\x00" if flexible else b""]
    out.append(_pack_text(message, flexible))
    return b"".join(out)


def _pack_text(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\x00" if flexible else b"\xff\xff"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else _I16.pack(len(raw))) + raw


class Success:
    """Packs the answer of a partition that took its batch, as `pack_answer` does, for one version."""

    __slots__ = ("_end", "_fixed")

    def __init__(self, version: int) -> None:
        self._fixed = PARTITION_V5 if version >= 5 else PARTITION_V2
        self._end = (
            b"" if version < 8 else b"\x01\x00\x00" if version >= FIRST_FLEXIBLE else b"\x00\x00\x00\x00\xff\xff"
        )

    def pack(self, partition: int, base_offset: int, log_start_offset: int) -> bytes:
        if self._fixed is PARTITION_V2:
            return PARTITION_V2.pack(partition, 0, base_offset, -1)
        return PARTITION_V5.pack(partition, 0, base_offset, -1, log_start_offset) + self._end


def pack_response(
    frame: ProduceFrame, version: int, correlation_id: int, answers: list[bytes], throttle_ms: int = 0
) -> bytes:
    """The whole response with its length; `answers` are the packed ones of all partitions, in the request's order."""
    out = _pack_topics(frame, version, correlation_id, answers)
    out.append(_I32.pack(throttle_ms))
    if version >= FIRST_FLEXIBLE:
        out.append(b"\x00")
    out[0] = _I32.pack(sum(map(len, out)))
    return b"".join(out)


def pack_response_with_leaders(
    frame: ProduceFrame, version: int, correlation_id: int, answers: list[bytes], endpoints: Sequence[NodeEndpoint]
) -> list[bytes]:
    """The same with the endpoints of leaders that some of the answers name; the first part ends with the throttle
    time."""
    out = _pack_topics(frame, version, correlation_id, answers)
    out.append(_I32.pack(0))
    end = pack_endpoints(endpoints)
    out[0] = _I32.pack(sum(map(len, out)) + len(end))
    return [b"".join(out), end]


def _pack_topics(frame: ProduceFrame, version: int, correlation_id: int, answers: list[bytes]) -> list[bytes]:
    """Up to the throttle time; the first part is for the length."""
    flexible = version >= FIRST_FLEXIBLE
    out = [b"", _I32.pack(correlation_id), b"\x00" if flexible else b"", frame.echo]
    taken = 0
    for topic in frame.topics:
        out.append(topic.echo)
        end = taken + len(topic.partitions)
        out += answers[taken:end]
        taken = end
        if flexible:
            out.append(b"\x00")
    return out


class Template:
    """The response to a repeated one-partition request, patched in place: correlation id, offsets, throttle time."""

    __slots__ = ("_bytes", "_numbers_at", "_throttle_at")

    _NUMBERS_V2 = struct.Struct(">qq")
    _NUMBERS_V5 = struct.Struct(">qqq")

    def __init__(self, frame: ProduceFrame, version: int) -> None:
        partition = frame.topics[0].partitions[0][0]
        self._bytes = bytearray(pack_response(frame, version, 0, [pack_answer(Answer(partition), version)]))
        flexible = version >= FIRST_FLEXIBLE
        self._numbers_at = 8 + flexible + len(frame.echo) + len(frame.topics[0].echo) + 6
        self._throttle_at = len(self._bytes) - 4 - flexible

    def fill(self, correlation_id: int, base_offset: int, log_start_offset: int, throttle_ms: int = 0) -> bytes:
        out = self._bytes
        _I32.pack_into(out, 4, correlation_id)
        self._NUMBERS_V5.pack_into(out, self._numbers_at, base_offset, -1, log_start_offset)
        return self._throttled(throttle_ms) if throttle_ms else bytes(out)

    def fill_v2(self, correlation_id: int, base_offset: int, log_start_offset: int, throttle_ms: int = 0) -> bytes:
        """Versions 3 and 4 have no log start offset."""
        out = self._bytes
        _I32.pack_into(out, 4, correlation_id)
        self._NUMBERS_V2.pack_into(out, self._numbers_at, base_offset, -1)
        return self._throttled(throttle_ms) if throttle_ms else bytes(out)

    def _throttled(self, throttle_ms: int) -> bytes:
        out = bytearray(self._bytes)
        _I32.pack_into(out, self._throttle_at, throttle_ms)
        return bytes(out)
