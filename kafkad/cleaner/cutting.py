"""Taking records out of a batch: the bytes of those that stay are copied as they are, under a new header.

Pure. A body is the bytes of a batch's records, decompressed, at data[cursor:end]; one verdict of `keymap` per offset of
the batch says what becomes of the record there.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkad.cleaner.keymap import KEEP, TOMBSTONE, UNKNOWN_TOMBSTONE, KeyMap
from kafkad.log.bodies import FEWEST, PATIENCE, Body, count_alike, doubled_deltas, read_keys, room_for
from kafkad.wire.compression import compress
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    RECORD_COUNT,
    TRANSACTIONAL,
    BatchHeader,
    Header,
    RecordsError,
    assemble_batch,
    read_varint,
    write_varint,
)


class _Place(NamedTuple):
    """Positions of one record: its start, its timestamp and its end."""

    start: int
    timestamp: int
    stop: int


def judge(body: Body, header: Header, keys: KeyMap) -> bytearray:
    """The verdicts by the key of each record: right everywhere, where `KeyMap.verdicts` only knows what it took in."""
    base = header[BASE_OFFSET]
    verdicts = bytearray(header[LAST_OFFSET_DELTA] + 1)
    for some, entries in read_keys(body, base, header[RECORD_COUNT]):
        for key, entry in zip(some, entries, strict=True):
            offset = entry >> 1
            if offset > keys.latest:
                verdicts[offset - base] = UNKNOWN_TOMBSTONE if entry & 1 else KEEP
            elif key is not None and offset >= keys.find(key):
                verdicts[offset - base] = TOMBSTONE if entry & 1 else KEEP
    return verdicts


def cut(body: Body, header: Header, verdicts: bytes | bytearray, horizon: int | None = None) -> bytearray:
    """The batch with only the records that stay. With `horizon` that becomes its delete horizon."""
    staying = _staying(body, header[RECORD_COUNT], verdicts)
    base_timestamp, attributes = header[BASE_TIMESTAMP], header[ATTRIBUTES]
    max_timestamp = header[MAX_TIMESTAMP]
    if not attributes & LOG_APPEND_TIME:
        max_timestamp = base_timestamp + max(read_varint(body.data, place.timestamp)[0] for place in staying)
    if horizon is None:
        kept = b"".join([body.data[start:stop] for start, stop in _stretches(staying)])
    else:
        earlier = 0 if attributes & LOG_APPEND_TIME else horizon - base_timestamp
        kept = b"".join([_moved(body.data, place, earlier) for place in staying])
        base_timestamp = horizon
        attributes |= DELETE_HORIZON
    codec = attributes & CODEC_MASK
    changed = BatchHeader._make(header)._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, record_count=len(staying)
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


def _staying(body: Body, count: int, verdicts: bytes | bytearray) -> list[_Place]:  # noqa: C901
    """The records whose verdict is not DROP. Hot, and made like `read_keys`."""
    data, cursor, end = body
    staying: list[_Place] = []
    patience = 0
    while count > 0:
        start = cursor
        if (low := data[cursor]) < 128:
            cursor += 1
            stop = cursor + (low >> 1)
        elif (high := data[cursor + 1]) < 128:
            cursor += 2
            stop = cursor + ((low & 127 | high << 7) >> 1)
        else:
            length, cursor = read_varint(data, cursor)
            stop = cursor + length
        timestamp_at = cursor = cursor + 1
        while data[cursor] > 127:
            cursor += 1
        delta_at = cursor = cursor + 1
        if (delta := data[cursor]) < 128:
            cursor += 1
        elif (high := data[cursor + 1]) < 128:
            delta = delta & 127 | high << 7
            cursor += 2
        else:
            delta, cursor = read_varint(data, cursor)
            delta <<= 1
        if not cursor < stop <= end or delta & 1 or delta < 0:
            raise RecordsError("a record does not fit into its batch", start)
        if verdicts[delta >> 1]:
            staying.append(_Place(start, timestamp_at, stop))
        count -= 1
        patience -= 1
        if patience < 0 and count >= FEWEST and data[start] == data[stop]:
            stride = stop - start
            most = min(count, (end - stop) // stride, room_for(delta))
            more = count_alike(data, start, timestamp_at, delta_at, cursor, cursor, stop, most)
            if more:
                count -= more
                after = stop + more * stride
                deltas = doubled_deltas(data, delta_at, cursor, stride, after)
                starts = [stop + i * stride for i, delta in enumerate(deltas) if verdicts[delta >> 1]]
                staying += [_Place(at, at + timestamp_at - start, at + stride) for at in starts]
                stop = after
            else:
                patience = PATIENCE
        cursor = stop
    if cursor != end:
        raise RecordsError("bytes after the last record of a batch", cursor)
    return staying


def _stretches(places: list[_Place]) -> list[tuple[int, int]]:
    """The stretches of bytes that the places cover, with neighbours joined."""
    stretches: list[tuple[int, int]] = []
    first, end = places[0].start, places[0].start
    for start, _, stop in places:
        if start != end:
            stretches.append((first, end))
            first = start
        end = stop
    stretches.append((first, end))
    return stretches


def _moved(data: bytes, place: _Place, earlier: int) -> bytes:
    """A record whose timestamp counts from another base; all else of it stays as it is."""
    timestamp, rest = read_varint(data, place.timestamp)
    moved = write_varint(timestamp - earlier)
    attributes = data[place.timestamp - 1 : place.timestamp]
    length = len(attributes) + len(moved) + place.stop - rest
    return b"".join((write_varint(length), attributes, moved, data[rest : place.stop]))
