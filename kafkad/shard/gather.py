"""Keys and last values of records, and nothing else of them: `wire.records.parse_records` for a million at a time."""

from __future__ import annotations

from kafkad.wire.records import RecordsError, read_varint

Latest = dict[bytes, bytes | None]
"""Values by key, in the order in which the keys were last written."""


def gather(data: bytes, cursor: int, end: int, count: int, latest: Latest) -> tuple[int, int]:  # noqa: C901
    """HOT. Take in `count` records from data[cursor:end], in which more may follow; where they end, and how many had
    no key. RecordsError when they do not fit, after those that do.

    Varints of one byte, and of two where they are common, are read in line.
    """
    without_key = 0
    forget = latest.pop
    try:
        for _ in range(count):
            if (length := data[cursor]) < 128:
                length >>= 1
                cursor += 1
            elif (high := data[cursor + 1]) < 128:
                length = (length & 127 | high << 7) >> 1
                cursor += 2
            else:
                length, cursor = read_varint(data, cursor)
            stop = cursor + length
            cursor += 1  # attributes; then the timestamp and the offset, as deltas
            while data[cursor] > 127:
                cursor += 1
            cursor += 1
            while data[cursor] > 127:
                cursor += 1
            cursor += 1
            if (size := data[cursor]) < 128:
                cursor += 1
            elif (high := data[cursor + 1]) < 128:
                size = size & 127 | high << 7
                cursor += 2
            else:
                size, cursor = _long_size(data, cursor)
            key = None if size & 1 else data[cursor : (cursor := cursor + (size >> 1))]
            if (size := data[cursor]) < 128:
                cursor += 1
            elif (high := data[cursor + 1]) < 128:
                size = size & 127 | high << 7
                cursor += 2
            else:
                size, cursor = _long_size(data, cursor)
            value = None if size & 1 else data[cursor : (cursor := cursor + (size >> 1))]
            if not cursor < stop <= end:  # headers follow, at least their number
                raise RecordsError(f"a record that ends at {cursor}, not at {stop}", cursor)
            cursor = stop
            if key is None:
                without_key += 1
            else:
                forget(key, None)
                latest[key] = value
    except IndexError:
        raise RecordsError(f"{count} records do not fit in {end} bytes", cursor) from None
    return cursor, without_key


def _long_size(data: bytes, cursor: int) -> tuple[int, int]:
    """Of three bytes and more, in the shape of the shorter ones: zigzag, as it stands there."""
    size, cursor = read_varint(data, cursor)
    return (size << 1 if size >= 0 else (-size << 1) - 1), cursor
