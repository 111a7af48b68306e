"""Fetch by hand: the request is read and the response packed without an object per field.

`messages/fetch.py` declares the same bytes; a test holds the two against each other for every version.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from kafkad.turns import Pieces, at_once
from kafkad.wire.leaders import CurrentLeader, pack_leader
from kafkad.wire.primitives import MAX_TAGS, MalformedError, get_tag_count, get_uvarint, skip_tags
from kafkad.wire.produce import read_count, read_text, uvarint

FIRST_FLEXIBLE: Final = 12
MOST_PARTITIONS: Final = 100_000
"""The limit for one request."""
_PIECE: Final = 63
"""A bit mask: requests are read in pieces of so many topics or partitions and one."""
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_LEADERS: Final = 16
"""Of partitions that the broker asked does not lead."""

_I32 = struct.Struct(">i")
_REPLICA_STATE = struct.Struct(">iq")  # replica id and epoch
_WAITS_V4 = struct.Struct(">iiiib")  # replica id, max wait, min bytes, max bytes, isolation level
_WAITS_V15 = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION = {  # index, [leader epoch], offset, [last fetched epoch], [log start offset], max bytes
    4: struct.Struct(">iqi"),
    5: struct.Struct(">iqqi"),
    9: struct.Struct(">iiqqi"),
    12: struct.Struct(">iiqiqi"),
}
_HEAD = {  # index, error code, high watermark, last stable offset, [log start offset]
    4: struct.Struct(">ihqq"),
    5: struct.Struct(">ihqqq"),
}
_ABORTED = struct.Struct(">qq")


MENDER: Final = -2
"""The replica id of a broker that mends its log by what it reads. To Kafka it is that of a debugging consumer, with the
rights and quotas of any other."""


class PartitionRequest(NamedTuple):
    """One partition as a client asks for it. Fields its version does not carry are -1."""

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class TopicRequest(NamedTuple):
    key: str | bytes
    """Its name, or its id from version 13 on."""
    partitions: list[PartitionRequest]


class FetchFrame(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[TopicRequest]
    forgotten: list[tuple[str | bytes, list[int]]]
    repeats: tuple[int, int] | None = None
    """Positions in the frame of the session epoch and the offset, all that changes when a fetch of one partition is
    repeated; None for other fetches, and for versions without sessions."""
    rack: str | None = None
    """client.rack, empty if the client has none; None in versions before KIP-392."""
    isolation_level: int = 0
    replica_epoch: int = -1
    """That of a follower's registration, from version 15 on, by which its leader tells what it fetched before it came
    back (KIP-903)."""


_REPEATS_FROM: Final = 8
"""In a request: api key, version, correlation id; what follows repeats itself but for two numbers."""


def layout_of_repeated(frame: FetchFrame, size: int) -> struct.Struct:
    """Takes requests apart that repeat this one of `size` bytes, for which `repeats` is not None: version, correlation
    id, bytes that stay the same, session epoch, bytes that name the partition and its leader epoch, offset, more that
    stay the same."""
    assert frame.repeats is not None
    epoch_at, offset_at = frame.repeats
    return struct.Struct(f">2xhi{epoch_at - _REPEATS_FROM}si{offset_at - epoch_at - 4}sq{size - offset_at - 8}s")


def _partition_struct(version: int) -> struct.Struct:
    return _PARTITION[4 if version < 5 else 5 if version < 9 else 9 if version < 12 else 12]


def read_fetch(frame: memoryview, at: int, version: int) -> FetchFrame:
    """The body of a Fetch request, versions 4 to 18; `at` is where it starts, after the request header."""
    return at_once(read_fetch_in_pieces(frame, at, version))


def read_fetch_in_pieces(frame: memoryview, at: int, version: int) -> Pieces[FetchFrame]:
    """The same, with stops."""
    flexible = version >= FIRST_FLEXIBLE
    replica_id, replica_epoch, rack = -1, -1, None
    if version >= 15:
        max_wait, min_bytes, max_bytes, isolation = _WAITS_V15.unpack_from(frame, at)
        at += 13
    else:
        replica_id, max_wait, min_bytes, max_bytes, isolation = _WAITS_V4.unpack_from(frame, at)
        at += 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(frame, at)
        at += 8
    epoch_at = at - 4
    topics, at, first_at = yield from _read_topics(frame, at, version, flexible)
    forgotten: list[tuple[str | bytes, list[int]]] = []
    if version >= 7:
        forgotten, at = yield from _read_forgotten(frame, at, version, flexible)
    if version >= 11:
        rack, at = read_text(frame, at, flexible)
    if flexible:
        replica_id, replica_epoch = _read_replica_state(frame, at, replica_id)
    repeats = None
    if len(topics) == 1 and len(topics[0].partitions) == 1 and not forgotten and version >= 7:
        repeats = epoch_at, first_at + (8 if version >= 9 else 4)
    return FetchFrame(
        replica_id,
        max_wait,
        min_bytes,
        max_bytes,
        isolation == 1,
        session_id,
        session_epoch,
        topics,
        forgotten,
        repeats,
        rack,
        isolation,
        replica_epoch,
    )


def _read_key(frame: memoryview, at: int, version: int, flexible: bool) -> tuple[str | bytes, int]:
    if version >= FIRST_WITH_TOPIC_IDS:
        return bytes(frame[at : at + 16]), at + 16
    return read_text(frame, at, flexible)


def _read_topics(
    frame: memoryview, at: int, version: int, flexible: bool
) -> Pieces[tuple[list[TopicRequest], int, int]]:
    """The topics, where they end, and where the first partition of the last one starts."""
    fixed = _partition_struct(version)
    unpack, size = fixed.unpack_from, fixed.size
    count, at = read_count(frame, at, flexible)
    topics: list[TopicRequest] = []
    first_at = 0
    left, tags = MOST_PARTITIONS - count, MAX_TAGS
    for _ in range(count):
        if not len(topics) & _PIECE:
            yield
        key, at = _read_key(frame, at, version, flexible)
        partitions_count, at = read_count(frame, at, flexible)
        left -= partitions_count
        if left < 0:
            raise MalformedError(f"it names more than {MOST_PARTITIONS} topics and partitions")
        first_at = at
        partitions: list[PartitionRequest] = []
        for _ in range(partitions_count):
            if not len(partitions) & _PIECE:
                yield
            partitions.append(_wanted(unpack(frame, at), version))
            at += size
            if flexible:
                if frame[at] == 0:
                    at += 1
                else:
                    at, tags = skip_tags(frame, at, tags)
        if flexible:
            at, tags = skip_tags(frame, at, tags)
        topics.append(TopicRequest(key, partitions))
    return topics, at, first_at


def _wanted(fields: tuple[int, ...], version: int) -> PartitionRequest:
    if version >= 12:
        return PartitionRequest(*fields)
    if version >= 9:
        index, epoch, offset, start, max_bytes = fields
        return PartitionRequest(index, epoch, offset, -1, start, max_bytes)
    if version >= 5:
        index, offset, start, max_bytes = fields
        return PartitionRequest(index, -1, offset, -1, start, max_bytes)
    index, offset, max_bytes = fields
    return PartitionRequest(index, -1, offset, -1, -1, max_bytes)


def _read_forgotten(
    frame: memoryview, at: int, version: int, flexible: bool
) -> Pieces[tuple[list[tuple[str | bytes, list[int]]], int]]:
    count, at = read_count(frame, at, flexible)
    forgotten = []
    left, tags = MOST_PARTITIONS - count, MAX_TAGS
    for _ in range(count):
        yield
        key, at = _read_key(frame, at, version, flexible)
        indexes, at = read_count(frame, at, flexible)
        left -= indexes
        if left < 0:
            raise MalformedError(f"it forgets more than {MOST_PARTITIONS} topics and partitions")
        forgotten.append((key, list(struct.unpack_from(f">{indexes}i", frame, at))))
        at += 4 * indexes
        if flexible:
            at, tags = skip_tags(frame, at, tags)
    return forgotten, at


def _read_replica_state(frame: memoryview, at: int, replica_id: int) -> tuple[int, int]:
    """The replica id and epoch. From version 15 on a follower sends them in tagged field 1."""
    replica_epoch = -1
    count, at, _ = get_tag_count(frame, at, MAX_TAGS)
    for _ in range(count):
        tag, at = get_uvarint(frame, at)
        size, at = get_uvarint(frame, at)
        if tag == 1 and size >= 12:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(frame, at)
        at += size
    return replica_id, replica_epoch


def pack_topic(key: str | bytes, partitions: int, version: int) -> bytes:
    flexible = version >= FIRST_FLEXIBLE
    count = uvarint(partitions + 1) if flexible else _I32.pack(partitions)
    if isinstance(key, bytes):
        return key + count
    raw = key.encode()
    return (uvarint(len(raw) + 1) if flexible else len(raw).to_bytes(2, "big")) + raw + count


def pack_partition(
    version: int,
    index: int,
    error_code: int,
    high_watermark: int,
    last_stable_offset: int,
    log_start_offset: int,
    aborted: list[tuple[int, int]] | None,
    length: int,
    preferred_replica: int = -1,
) -> bytes:
    """All of a partition's answer up to its records, of which `length` bytes follow."""
    if version >= 5:
        head = _HEAD[5].pack(index, error_code, high_watermark, last_stable_offset, log_start_offset)
    else:
        head = _HEAD[4].pack(index, error_code, high_watermark, last_stable_offset)
    if version >= FIRST_FLEXIBLE:
        return head + _pack_aborted_flexible(aborted) + _I32.pack(preferred_replica) + uvarint(length + 1)
    out = head + (b"\xff\xff\xff\xff" if aborted is None else _I32.pack(len(aborted)))
    if aborted:
        out += b"".join(_ABORTED.pack(*each) for each in aborted)
    if version >= 11:
        out += _I32.pack(preferred_replica)
    return out + _I32.pack(length)


def _pack_aborted_flexible(aborted: list[tuple[int, int]] | None) -> bytes:
    if aborted is None:
        return b"\x00"
    return uvarint(len(aborted) + 1) + b"".join(_ABORTED.pack(*each) + b"\x00" for each in aborted)


def pack_start(
    version: int, correlation_id: int, error_code: int, session_id: int, topics: int, throttle_ms: int = 0
) -> bytes:
    """The head of a response, from the correlation id to the number of topics; the caller puts the length in front."""
    flexible = version >= FIRST_FLEXIBLE
    out = _I32.pack(correlation_id) + (b"\x00" if flexible else b"") + _I32.pack(throttle_ms)
    if version >= 7:
        out += error_code.to_bytes(2, "big", signed=True) + _I32.pack(session_id)
    return out + (uvarint(topics + 1) if flexible else _I32.pack(topics))


PARTITION_END: Final = b"\x00"
_DIVERGING = struct.Struct(">BBBiqB")


def pack_partition_end(diverging: tuple[int, int] | None, leader: CurrentLeader | None = None) -> bytes:
    """The bytes after a partition's records from version 12 on: no tagged field, where its epochs diverge, or who leads
    it."""
    if diverging is not None:
        return _DIVERGING.pack(1, 0, 13, *diverging, 0)
    return PARTITION_END if leader is None else b"\x01" + pack_leader(1, leader)


class Head:
    """Packs what stands before the records in the answer to a fetch of one partition, its length included.

    For what stays the same from one fetch to the next of the same partition; as `pack_start`, `pack_topic` and
    `pack_partition` do it, from version 7 on.
    """

    __slots__ = ("_constant", "_flexible", "_pack", "_second", "_start", "end")

    def __init__(self, version: int, session_id: int, key: str | bytes, index: int, read_committed: bool) -> None:
        self._flexible = version >= FIRST_FLEXIBLE
        self.end = b"\x00\x00\x00" if self._flexible else b""
        """The bytes after the records."""
        numbers_at = 6
        partition = pack_partition(version, index, 0, 0, 0, 0, [] if read_committed else None, 0)
        tags, throttle_end = (1, 5) if self._flexible else (0, 4)
        start = pack_start(version, 0, 0, session_id, 1)[4:] + pack_topic(key, 1, version)
        self._start = start[throttle_end:] + partition[:numbers_at]
        self._second = partition[numbers_at + 24 : -1 if self._flexible else -4]
        layout = struct.Struct(f">ii{tags}xi{len(self._start)}sqqq{len(self._second)}s")
        self._pack = layout.pack
        self._constant = layout.size - 4 + len(self.end)

    def pack(
        self,
        correlation_id: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
        length: int,
        throttle_ms: int = 0,
    ) -> bytes:
        size = uvarint(length + 1) if self._flexible else _I32.pack(length)
        return (
            self._pack(
                self._constant + len(size) + length,
                correlation_id,
                throttle_ms,
                self._start,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                self._second,
            )
            + size
        )
