"""Reading the keys out of the records of a batch: for compaction, whose hottest part it is, and for the check that
records produced to a compacted topic have keys.

Records of one batch often look alike: as long as the one before, with fields as wide in front of the value. Then they
stand at equal distances, and slices with that stride check and take many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafkad.wire.records import RecordsError, read_varint

_MOST, FEWEST = 256, 8
"""Records to be taken at a time."""
PATIENCE = 32
"""Records to be read one by one after an attempt at more has failed."""
AT_ONCE = 4096
_NULL = 1
_CONTINUED = bytes(range(128, 256))
_CONTINUED_EVEN = bytes(range(128, 256, 2))
_EVEN = bytes(range(0, 128, 2))
_FINAL = bytes(range(128))


class Body(NamedTuple):
    """The records of a batch, decompressed: data[cursor:end]."""

    data: bytes
    cursor: int
    end: int


Keys = tuple[list[bytes | None], list[int]]
"""Keys of some records, and their offsets: doubled, plus one for a tombstone."""


def read_keys(body: Body, base_offset: int, count: int) -> Iterator[Keys]:  # noqa: C901
    """The keys of `count` records, some thousand at a time. RecordsError or IndexError for malformed records."""
    data, cursor, end = body
    keys: list[bytes | None] = []
    entries: list[int] = []
    doubled = base_offset << 1
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
        size_at = cursor
        if (size := data[cursor]) < 128:
            cursor += 1
            key_end = cursor + (size >> 1)
        else:
            length, cursor = read_varint(data, cursor)
            key_end = cursor + length
        if not cursor <= key_end < stop <= end or delta & 1 or delta < 0:
            raise RecordsError("a record does not fit into its batch", start)
        keys.append(data[cursor:key_end] if size != _NULL else None)
        entries.append(doubled + delta | (data[key_end] == _NULL))
        count -= 1
        patience -= 1
        if patience < 0 and count >= FEWEST and data[start] == data[stop]:
            stride = stop - start
            most = min(count, (end - stop) // stride, room_for(delta))
            more = count_alike(data, start, timestamp_at, delta_at, size_at, cursor, stop, most)
            if more:
                count -= more
                after = stop + more * stride
                width = key_end - cursor
                heads = range(cursor + stride, after, stride)
                keys += [None] * more if size == _NULL else [data[i : i + width] for i in heads]
                new = [doubled + zigzag for zigzag in doubled_deltas(data, delta_at, size_at, stride, after)]
                if _NULL in (values := data[key_end + stride : after : stride]):
                    new = [entry | (value == _NULL) for entry, value in zip(new, values, strict=True)]
                entries += new
                stop = after
            else:
                patience = PATIENCE
        cursor = stop
        if len(keys) >= AT_ONCE:
            yield keys, entries
            keys, entries = [], []
    if cursor != end:
        raise RecordsError("bytes after the last record of a batch", cursor)
    yield keys, entries


def count_alike(
    data: bytes, start: int, timestamp_at: int, delta_at: int, size_at: int, key_at: int, stop: int, most: int
) -> int:
    """The number of records from `stop` on that certainly have the layout of data[start:stop]; 0 when only few may."""
    stride = stop - start
    most = min(most, _MOST)
    same = (*range(start, timestamp_at - 1), *range(size_at, key_at))
    final = [(delta_at - 1, _FINAL)]
    if size_at - delta_at == 1:
        final.append((delta_at, _EVEN))
    elif size_at - delta_at == 2:
        final += ((delta_at, _CONTINUED_EVEN), (delta_at + 1, _FINAL))
    else:
        return 0
    final += [(i, _CONTINUED) for i in range(timestamp_at, delta_at - 1)]
    while most >= FEWEST:
        end = stop + most * stride
        if all(data[i + stride : end : stride] == data[i : i + 1] * most for i in same) and not any(
            data[i + stride : end : stride].translate(None, allowed) for i, allowed in final
        ):
            return most
        most >>= 2
    return 0


def doubled_deltas(data: bytes, delta_at: int, size_at: int, stride: int, after: int) -> Sequence[int]:
    """Twice the offset deltas of the records up to `after`, which are like the one in front, with these places."""
    lows = data[delta_at + stride : after : stride]
    if size_at - delta_at == 1:
        return lows
    highs = data[delta_at + 1 + stride : after : stride]
    return [low & 127 | high << 7 for low, high in zip(lows, highs, strict=True)]


def room_for(doubled_delta: int) -> int:
    """The most records after one with this delta whose deltas have the same width: deltas grow."""
    return (((128 if doubled_delta < 128 else 128 << 7) - doubled_delta) >> 1) - 1
