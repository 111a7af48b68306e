"""The values of a batch's records, for who wants nothing else of them: at half the cost of whole records."""

from __future__ import annotations

from kafkad.wire.records import (
    CODEC_MASK,
    HEADER_SIZE,
    PREFIX_SIZE,
    RecordsError,
    read_headers,
    read_varint,
    records_body,
)


def values_of(view: memoryview, at: int, header: tuple[int, ...]) -> list[bytes | None]:
    """Of the v2 batch at `at`, of which `header` was unpacked; RecordsError where `iter_records` raises it. Of bytes
    that are not compressed nothing is copied but the values."""
    whole = view.obj
    if header[5] & CODEC_MASK or not isinstance(whole, bytes) or len(whole) != len(view):
        body = records_body(view, at, header)
        return parse_values(body, header[12], 0, len(body), at)
    return parse_values(whole, header[12], at + HEADER_SIZE, at + PREFIX_SIZE + header[1], at)


def parse_values(data: bytes, count: int, cursor: int, stop: int, at: int = 0) -> list[bytes | None]:  # noqa: C901
    """Of `count` records in data[cursor:stop]; `at` is where errors say that their batch stands.

    Varints of one and two bytes are read in line: a call for each would double the time. A byte above 127 is not the
    last of its varint, an odd first byte makes a negative number.
    """
    values: list[bytes | None] = []
    append = values.append
    try:
        for _ in range(count):
            if (low := data[cursor]) < 128:
                cursor += 1
                end = cursor + (low >> 1)
            elif (high := data[cursor + 1]) < 128:
                cursor += 2
                end = cursor + ((low & 127 | high << 7) >> 1)
            else:
                size, cursor = read_varint(data, cursor)
                end = cursor + size
            if low & 1:
                raise RecordsError("a record of negative length", at)
            cursor += 1  # attributes, which have no meaning yet
            while data[cursor] > 127:  # time
                cursor += 1
            cursor += 1
            while data[cursor] > 127:  # offset
                cursor += 1
            cursor += 1
            if (low := data[cursor]) == 1:  # no key
                cursor += 1
            elif low < 128 and not low & 1:
                cursor += 1 + (low >> 1)
            else:
                size, cursor = _size(data, cursor, "key", at)
                cursor += size
            if (low := data[cursor]) & 1:  # none, if anything
                size, cursor = read_varint(data, cursor)
                if size != -1:
                    raise RecordsError(f"a value of {size} bytes", at)
                append(None)
            elif low < 128:
                cursor += 1
                append(data[cursor : (cursor := cursor + (low >> 1))])
            elif (high := data[cursor + 1]) < 128:
                cursor += 2
                append(data[cursor : (cursor := cursor + ((low & 127 | high << 7) >> 1))])
            else:
                size, cursor = read_varint(data, cursor)
                append(data[cursor : (cursor := cursor + size)])
            if data[cursor]:
                _, cursor = read_headers(data, cursor, at)
            else:
                cursor += 1
            if cursor != end:
                raise RecordsError(f"a record ends {cursor - end} bytes off", at)
    except IndexError:
        raise RecordsError(f"{count} records end after their batch", at) from None
    if cursor != stop or count < 0:
        raise RecordsError(f"the last of {count} records ends {cursor - stop} bytes off the end of their batch", at)
    return values


def _size(data: bytes, cursor: int, what: str, at: int) -> tuple[int, int]:
    size, cursor = read_varint(data, cursor)
    if size < 0:
        raise RecordsError(f"a {what} of {size} bytes", at)
    return size, cursor
