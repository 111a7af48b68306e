"""The values alone of a batch's records, at half the cost of whole records."""

from __future__ import annotations

from kafkad.wire.records import (
    ATTRIBUTES,
    CODEC_MASK,
    HEADER_SIZE,
    LENGTH,
    PREFIX_SIZE,
    RECORD_COUNT,
    Header,
    RecordsError,
    read_headers,
    read_varint,
    records_body,
)

_PATIENCE = 64
"""Records that are not alike are tried once in so many."""
_FEWEST_ALIKE = 4
"""Fewer cost more to find out than to read."""
_FINAL, _CONTINUED = bytes(range(128)), bytes(range(128, 256))
"""The bytes that end a varint, and those that do not."""


def values_of(view: memoryview, at: int, header: Header) -> list[bytes | None]:
    """The values of the v2 batch at `at` with `header`; RecordsError where `iter_records` raises it. Of bytes
    that are not compressed nothing is copied but the values."""
    whole = view.obj
    if header[ATTRIBUTES] & CODEC_MASK or not isinstance(whole, bytes) or len(whole) != len(view):
        body = records_body(view, at, header)
        return parse_values(body, header[RECORD_COUNT], 0, len(body), at)
    return parse_values(whole, header[RECORD_COUNT], at + HEADER_SIZE, at + PREFIX_SIZE + header[LENGTH], at)


def parse_values(data: bytes, count: int, cursor: int, stop: int, at: int = 0) -> list[bytes | None]:
    """The values of `count` records in data[cursor:stop]; `at` is where errors say that their batch stands.

    Records one after the other are often laid out alike: then their values stand at regular distances.
    """
    values: list[bytes | None] = []
    some = 1
    try:
        while (left := count - len(values)) > 0:
            start, cursor = _parse_each(data, min(some, left), cursor, at, values)
            more = _alike(data, start, cursor, stop, count - len(values))
            values += more
            cursor += len(more) * (cursor - start)
            some = 1 if more else min(some * 2, _PATIENCE)
    except IndexError:
        raise RecordsError(f"{count} records end after their batch", at) from None
    if cursor != stop or count < 0:
        raise RecordsError(f"the last of {count} records ends {cursor - stop} bytes off the end of their batch", at)
    return values


def _parse_each(  # noqa: C901
    data: bytes, count: int, cursor: int, at: int, values: list[bytes | None]
) -> tuple[int, int]:
    """The next `count` values, and where the last of their records starts and ends.

    Varints of one and two bytes are read in line: a call for each would double the time. A byte above 127 is not the
    last of its varint, an odd first byte makes a negative number.
    """
    append = values.append
    start = cursor
    for _ in range(count):
        start = cursor
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
    return start, cursor


def _alike(data: bytes, start: int, end: int, stop: int, most: int) -> list[bytes]:
    """The values of the records behind the one at data[start:end], as far as they are surely laid out as it is: with
    sizes that are the same, times and offsets that are as wide, and no headers."""
    stride = end - start
    most = min(most, (stop - end) // stride)
    if most < _FEWEST_ALIKE or data[start] != data[end] or data[end - 1]:
        return []
    attributes = read_varint(data, start)[1]
    offset = read_varint(data, attributes + 1)[1]
    key_size = read_varint(data, offset)[1]
    size, key = read_varint(data, key_size)
    value_size = key + max(size, 0)
    size, value = read_varint(data, value_size)
    if size < 0 or value + size + 1 != end:
        return []
    for i in (*range(start, attributes), *range(key_size, key), *range(value_size, value), end - 1):
        most = _beginning(data, i, stride, most, data[i : i + 1])
    for i in range(attributes + 1, key_size):
        most = _beginning(data, i, stride, most, _CONTINUED if data[i] > 127 else _FINAL)
    return [data[i : i + size] for i in range(value + stride, value + stride * most + 1, stride)]


def _beginning(data: bytes, at: int, stride: int, most: int, allowed: bytes) -> int:
    """The number of next records, from the first on, that have one of these bytes where data[at] is."""
    column = data[at + stride : at + stride * most + 1 : stride]
    return len(column) - len(column.lstrip(allowed))


def _size(data: bytes, cursor: int, what: str, at: int) -> tuple[int, int]:
    size, cursor = read_varint(data, cursor)
    if size < 0:
        raise RecordsError(f"a {what} of {size} bytes", at)
    return size, cursor
