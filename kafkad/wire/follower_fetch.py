"""A follower's Fetch of one partition within its session, and its answer, by hand: without an object per field.

`messages/fetch.py` declares the same bytes; a test holds the two against each other for every version.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from kafkad.wire.messages.fetch import FetchRequest
from kafkad.wire.primitives import MalformedError, get_uvarint
from kafkad.wire.schema import Encoder

FIRST_VERSION: Final = 13
"""The first in which topics have their ids."""
_FIRST_WITH_REPLICA_STATE = 15

_PARTITION = "16sBiiqiqiBBBB"
"""Topic id; of one partition index, leader epoch, offset, last epoch, start offset, max bytes; what it has not: tagged
fields, twice, partitions to forget, a rack."""
_REQUEST_V13 = Struct(f">iiiibiiB{_PARTITION}B")
_REQUEST_V15 = Struct(f">iiibiiB{_PARTITION}BBBiqB")
_ANSWER = Struct(">4xhiB16sBihq8xqB4x")
"""Error, session id, one topic: its id, one partition: index, error, high watermark, start offset, no transactions."""
_END = b"\x00\x00\x00"
_ONE = 2
"""The length of a list with one item, as flexible versions have it."""
_NULL, _NONE = 0, 1


class _Fields(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    start_offset: int
    partition_max_bytes: int
    replica_epoch: int = -1
    """Sent from version 15 on."""


class FollowerFetch(_Fields):
    """The request; in every version from the first with topic ids on."""

    __slots__ = ()
    __schema__ = FetchRequest.__schema__

    @staticmethod
    def encoder(version: int) -> Encoder:
        if version < FIRST_VERSION:
            raise ValueError(f"version {version} of Fetch has no topic ids")
        return _put_v13 if version < _FIRST_WITH_REPLICA_STATE else _put_v15


def _put_v13(out: bytearray, request: FollowerFetch) -> None:
    replica_id, max_wait_ms, min_bytes, max_bytes, session_id, epoch, topic_id, *partition, _ = request
    out += _REQUEST_V13.pack(
        *(replica_id, max_wait_ms, min_bytes, max_bytes, 0, session_id, epoch, _ONE),
        *(topic_id, _ONE, *partition, 0, 0, _NONE, _NONE, 0),
    )


def _put_v15(out: bytearray, request: FollowerFetch) -> None:
    """The replica is named at the end, in tagged field 1 of 13 bytes."""
    replica_id, max_wait_ms, min_bytes, max_bytes, session_id, epoch, topic_id, *partition, replica_epoch = request
    out += _REQUEST_V15.pack(
        *(max_wait_ms, min_bytes, max_bytes, 0, session_id, epoch, _ONE),
        *(topic_id, _ONE, *partition, 0, 0, _NONE, _NONE),
        *(1, 1, 13, replica_id, replica_epoch, 0),
    )


class OnePartition(NamedTuple):
    """What a leader says of the partition that it was asked for."""

    high_watermark: int
    start_offset: int
    records: memoryview


def read_answer(request: FollowerFetch, frame: memoryview, at: int) -> OnePartition | None:
    """HOT. None for an answer with anything in it but that one partition, and for one that goes wrong or goes on."""
    if len(frame) - at <= _ANSWER.size:
        return None
    error, session_id, topics, topic_id, partitions, index, code, high_watermark, start, aborted = _ANSWER.unpack_from(
        frame, at
    )
    if error or code or topics != _ONE or partitions != _ONE or session_id != request.session_id:
        return None
    if index != request.partition or topic_id != request.topic_id or aborted not in (_NULL, _NONE):
        return None
    try:
        length, at = get_uvarint(frame, at + _ANSWER.size)
    except (IndexError, MalformedError):
        return None
    end = at + length - 1 if length else at
    if frame[end:] != _END:
        return None
    return OnePartition(high_watermark, start, frame[at:end])
