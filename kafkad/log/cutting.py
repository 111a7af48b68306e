"""Taking records out of a batch: the bytes of those that stay are copied as they are, under a new header.

Pure. A body is the bytes of a batch's records, decompressed, at data[cursor:end]; one verdict of `keymap` per offset of
the batch says what becomes of the record there.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkad.log.batches import BASE_OFFSET, LAST_DELTA, MAX_TIMESTAMP, Header
from kafkad.log.keymap import DROP, KEEP, TOMBSTONE, UNKNOWN_TOMBSTONE, KeyMap
from kafkad.wire.compression import compress
from kafkad.wire.records import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    RecordsError,
    assemble_batch,
    read_varint,
    write_varint,
)

_BASE_TIMESTAMP, _COUNT = 7, 12


class Body(NamedTuple):
    data: bytes
    cursor: int
    end: int


def judge(body: Body, header: Header, keys: KeyMap) -> bytearray:
    """The verdicts by the key of each record: right everywhere, where `KeyMap.verdicts` only knows what it took in."""
    data, cursor, end = body
    verdicts = bytearray(header[LAST_DELTA] + 1)
    for _ in range(header[_COUNT]):
        length, start = read_varint(data, cursor)
        delta, at = read_varint(data, _after_timestamp(data, start + 1))
        size, at = read_varint(data, at)
        cursor = start + length
        if not at + max(size, 0) < cursor <= end:
            raise RecordsError("a record does not fit into its batch", start)
        tombstone = data[at + max(size, 0)] == 1
        offset = header[BASE_OFFSET] + delta
        if offset > keys.latest:
            verdict = UNKNOWN_TOMBSTONE if tombstone else KEEP
        elif size < 0 or offset < keys.find(data[at : at + size]):
            verdict = DROP
        else:
            verdict = TOMBSTONE if tombstone else KEEP
        verdicts[delta] = verdict
    return verdicts


def cut(body: Body, header: Header, verdicts: bytes | bytearray, horizon: int | None = None) -> bytearray:
    """The batch with only the records that stay. With `horizon` that becomes its delete horizon."""
    spans, count, largest = _stretches(body, header[_COUNT], verdicts)
    base_timestamp, attributes = header[_BASE_TIMESTAMP], header[5]
    append_time = attributes & LOG_APPEND_TIME
    max_timestamp = header[MAX_TIMESTAMP] if append_time else base_timestamp + largest
    if horizon is None:
        kept = b"".join([body.data[start:stop] for start, stop in spans])
    else:
        earlier = 0 if append_time else horizon - base_timestamp
        kept = b"".join([_moved(body.data, start, stop, earlier) for start, stop in spans])
        base_timestamp = horizon
        attributes |= DELETE_HORIZON
    codec = attributes & CODEC_MASK
    changed = BatchHeader._make(header)._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=count
    )
    return assemble_batch(changed, compress(codec, kept) if codec else kept)


def emptied(header: Header) -> bytearray:
    """The header alone: what it says of its producer is still needed."""
    kept = BatchHeader._make(header)
    return assemble_batch(
        kept._replace(
            attributes=kept.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _stretches(  # noqa: C901
    body: Body, count: int, verdicts: bytes | bytearray
) -> tuple[list[tuple[int, int]], int, int]:
    """The stretches of records that stay, neighbours as one; how many stay, and their largest timestamp delta. Hot."""
    data, cursor, end = body
    spans: list[tuple[int, int]] = []
    largest = -(2**63)
    start = stop = -1
    kept = 0
    for _ in range(count):
        at = cursor
        if (low := data[cursor]) < 128:
            cursor += 1
            after = cursor + (low >> 1)
        elif (high := data[cursor + 1]) < 128:
            cursor += 2
            after = cursor + ((low & 127 | high << 7) >> 1)
        else:
            length, cursor = read_varint(data, cursor)
            after = cursor + length
        timestamp_at = cursor = cursor + 1
        while data[cursor] > 127:
            cursor += 1
        if (low := data[cursor + 1]) < 128:
            delta = low >> 1
        else:
            delta, _ = read_varint(data, cursor + 1)
        if verdicts[delta]:
            kept += 1
            timestamp, _ = read_varint(data, timestamp_at)
            if timestamp > largest:
                largest = timestamp
            if at != stop:
                if stop >= 0:
                    spans.append((start, stop))
                start = at
            stop = after
        cursor = after
    if cursor != end:
        raise RecordsError(f"{count} records leave {end - cursor} bytes of their batch", cursor)
    if stop >= 0:
        spans.append((start, stop))
    return spans, kept, largest


def _moved(data: bytes, cursor: int, stop: int, earlier: int) -> bytes:
    """Records whose timestamps count from another base; all else of them stays as it is."""
    parts: list[bytes] = []
    while cursor < stop:
        length, start = read_varint(data, cursor)
        timestamp, rest = read_varint(data, start + 1)
        cursor = start + length
        moved = write_varint(timestamp - earlier)
        parts += (write_varint(1 + len(moved) + cursor - rest), data[start : start + 1], moved, data[rest:cursor])
    return b"".join(parts)


def _after_timestamp(data: bytes, cursor: int) -> int:
    while data[cursor] > 127:
        cursor += 1
    return cursor + 1
