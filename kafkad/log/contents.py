"""Checks the records of a batch against its header by looking only at their first fields. Pure.

A batch may carry a true CRC and lie all the same, and nobody could read on behind it. So its records are walked over
once before it is appended. Records of one batch often look alike: as long as the one before, with fields as wide. Then
they stand at equal distances, and slices with that stride check many at a time.
"""

from __future__ import annotations

from kafkad.wire.records import RecordsError, read_varint, write_varint

SMALLEST_RECORD = 7
"""Length, attributes, timestamp, offset, no key, no value, no headers: a byte each."""
_MOST_ALIKE, _FEWEST_ALIKE = 1024, 6
_PATIENCE = 24
"""Records to be read one by one after an attempt at more has failed."""
_MOST_LENGTH_BYTES = 5
_LEAST = -(2**63)
_NULL = 1
_WORTH_COPYING = 2048
"""Bytes of a record, up to which all of them are sooner copied than looked at through a view."""

_ONE_BYTE, _TWO_BYTES = 64, 8192
"""The number of offset deltas whose varints have one byte, and at most two."""
_FINAL, _FINAL_EVEN, _CONTINUED_EVEN = bytes(range(128)), bytes(range(0, 128, 2)), bytes(range(128, 256, 2))
_LOW = bytes(n << 1 & 127 | 128 for n in range(_TWO_BYTES))
_MIDDLE = bytes(n >> 6 | 128 for n in range(_TWO_BYTES))
_BYTES = tuple(bytes((n,)) for n in range(256))
_HIGH = bytes(n >> 6 for n in range(_TWO_BYTES))


class OffsetDeltaError(RecordsError):
    """Sound records that are not numbered from 0 on."""


class LengthError(RecordsError):
    """The length of a record takes more bytes than a number of 32 bits has."""


class TooManyError(Exception):
    """More records than were allowed would have to be looked at one by one."""


_Layout = tuple[int, int, int, int, int, int, int, int]
"""Positions in a record: start, body, offset delta, length of key, key, length of value, value, end."""


def latest_delta(  # noqa: C901
    data: bytes | memoryview, at: int, end: int, count: int, most_alone: int = 2**31
) -> int:
    """HOT. The largest timestamp delta of the `count` records that fill data[at:end], numbered from 0 on; RecordsError
    when that is not what they are. TooManyError when more than `most_alone` have to be read one by one.

    A record that is not made in the usual way in any respect is left to `_read`.
    """
    if count * SMALLEST_RECORD > end - at:
        raise RecordsError(f"{count} records do not fit in {end - at} bytes", at)
    if count >= _FEWEST_ALIKE and end - at < count * _WORTH_COPYING:
        data, at, end = bytes(data[at:end]), 0, end - at
    cursor, done, largest = at, 0, _LEAST
    alone, some = 0, 1
    try:
        while done < count:
            for index in range(done, min(done + some, count)):
                start = cursor
                if (length := data[cursor]) < 128:
                    body = cursor + 1
                elif (high := data[cursor + 1]) < 128:
                    length = length & 127 | high << 7
                    body = cursor + 2
                else:
                    length, body = _read_wide(data, cursor)
                stop = body + (length >> 1)
                if (delta := data[body + 1]) < 128:
                    offset = body + 2
                elif (high := data[body + 2]) < 128:
                    delta = delta & 127 | high << 7
                    offset = body + 3
                else:
                    delta, offset = _read_wide(data, body + 1)
                if index < _ONE_BYTE:
                    numbered = data[offset] == index << 1
                    key_size = offset + 1
                elif index < _TWO_BYTES:
                    numbered = data[offset] == (index << 1 & 127 | 128) and data[offset + 1] == index >> 6
                    key_size = offset + 2
                else:
                    numbered = bytes(data[offset : offset + 3]) == write_varint(index)
                    key_size = offset + 3
                if (size := data[key_size]) < 128:
                    key = key_size + 1
                else:
                    size, key = _read_wide(data, key_size)
                odd = delta | length
                if size == _NULL:
                    value_size = key
                else:
                    value_size = key + (size >> 1)
                    odd |= size
                if (size := data[value_size]) < 128:
                    value = value_size + 1
                elif (high := data[value_size + 1]) < 128:
                    size = size & 127 | high << 7
                    value = value_size + 2
                else:
                    size, value = _read_wide(data, value_size)
                if size == _NULL:
                    cursor = value
                else:
                    cursor = value + (size >> 1)
                    odd |= size
                if odd & 1 or not numbered or cursor + 1 != stop or data[cursor]:
                    stop, delta = _read(data, start, end, index)
                else:
                    delta >>= 1
                if delta > largest:
                    largest = delta
                cursor = stop
            done = index + 1
            alone += some
            if alone > most_alone:
                raise TooManyError
            some = _PATIENCE
            if count - done >= _FEWEST_ALIKE and data[start] == data[stop]:
                layout = (start, body, offset, key_size, key, value_size, value, stop)
                more, delta = _alike(data, layout, done, min(count - done, (end - stop) // (stop - start)))
                if more:
                    some = 1
                    done += more
                    cursor += more * (stop - start)
                    if delta > largest:
                        largest = delta
    except IndexError:
        raise RecordsError(f"{count} records do not fit in {end - at} bytes", at) from None
    if cursor != end:
        raise RecordsError(f"{end - cursor} bytes after the last of {count} records", at)
    return largest


def _read_wide(data: bytes | memoryview, cursor: int) -> tuple[int, int]:
    """A varint of three bytes, doubled if it is not negative, and where it ends; of others an odd number."""
    try:
        value, after = read_varint(data, cursor)
    except RecordsError:
        return 3, cursor
    return (value << 1 if 0 <= value < 2**31 and after - cursor <= _MOST_LENGTH_BYTES else 3), after


def _alike(data: bytes | memoryview, first: _Layout, index: int, most: int) -> tuple[int, int]:
    """The number of records behind the first that must have its layout and numbers from `index` on, and their largest
    timestamp delta; (0, _) when only few may."""
    start, body, offset, key_size, key, value_size, value, stop = first
    stride = stop - start
    room = _ONE_BYTE if index < _ONE_BYTE else _TWO_BYTES
    most = min(most, _MOST_ALIKE, room - index % room)
    if key_size - offset != 1 + (index >= _ONE_BYTE) + (index >= _TWO_BYTES):
        return 0, _LEAST
    same = (*range(start, body), *range(key_size, key), *range(value_size, value), stop - 1)
    while most >= _FEWEST_ALIKE:
        end = stop + most * stride
        if _all_same(data, same, stride, end, most) and _numbered(data, offset, key_size, stride, end, index, most):
            latest = _latest(data, body + 1, offset, stride, end)
            if latest is not None:
                return most, latest
        most >>= 2
    return 0, _LEAST


def _all_same(data: bytes | memoryview, places: tuple[int, ...], stride: int, end: int, count: int) -> bool:
    """True if the next `count` records have the same bytes in these places."""
    for i in places:  # noqa: SIM110 - a generator would cost as much as the comparisons
        if data[i + stride : end : stride] != _BYTES[data[i]] * count:
            return False
    return True


def _numbered(data: bytes | memoryview, at: int, stop: int, stride: int, end: int, index: int, count: int) -> bool:
    """True if the offset deltas of records whose predecessor has its own at data[at:stop] go on with `index`."""
    first = data[at + stride : end : stride]
    if stop - at == 1:
        return first == _FINAL_EVEN[index : index + count]
    block, index = divmod(index, _TWO_BYTES)
    if first != _LOW[index : index + count]:
        return False
    second = data[at + 1 + stride : end : stride]
    if stop - at == 2:
        return second == _HIGH[index : index + count]
    third = data[at + 2 + stride : end : stride]
    return second == _MIDDLE[index : index + count] and block < 128 and third == _BYTES[block] * count


def _latest(data: bytes | memoryview, at: int, stop: int, stride: int, end: int) -> int | None:
    """The largest of the timestamp deltas that stand where the one at data[at:stop] does, in the records behind it;
    None unless all are as wide, at most two bytes, and none is negative."""
    lows = bytes(data[at + stride : end : stride])
    if stop - at == 1:
        return None if lows.translate(None, _FINAL_EVEN) else max(lows) >> 1
    if stop - at != 2:
        return None
    highs = bytes(data[at + 1 + stride : end : stride])
    if lows.translate(None, _CONTINUED_EVEN) or highs.translate(None, _FINAL):
        return None
    return max([(low & 127 | high << 7) >> 1 for low, high in zip(lows, highs, strict=True)])


def _read(data: bytes | memoryview, start: int, end: int, index: int) -> tuple[int, int]:
    """The end of the record at `start`, and its timestamp delta; RecordsError when there is none."""
    length, cursor = _read_length(data, start)
    stop = cursor + length
    if not cursor < stop <= end:
        raise RecordsError(f"a record of {length} bytes where {end - cursor} are left", start)
    delta, cursor = read_varint(data, cursor + 1)
    number, cursor = _read_size(data, cursor, start)
    for what in ("key", "value"):
        size, cursor = _read_size(data, cursor, start)
        if size < -1:
            raise RecordsError(f"a {what} of {size} bytes", start)
        cursor += max(size, 0)
        if cursor >= stop:
            raise RecordsError(f"a {what} that ends outside of its record", start)
    cursor = _skip_headers(data, cursor, stop, start)
    if cursor != stop:
        raise RecordsError(f"a record of {length} bytes ends {cursor - stop} bytes off", start)
    if number != index:
        raise OffsetDeltaError(f"record {index} has offset delta {number}", start)
    return stop, delta


def _read_length(data: bytes | memoryview, start: int) -> tuple[int, int]:
    try:
        return _read_size(data, start, start)
    except RecordsError as error:
        raise LengthError(str(error), start) from None


def _skip_headers(data: bytes | memoryview, cursor: int, stop: int, start: int) -> int:
    count, cursor = _read_size(data, cursor, start)
    if not 0 <= count <= stop - cursor:
        raise RecordsError(f"{count} record headers", start)
    for _ in range(count):
        for least in (0, -1):
            size, cursor = _read_size(data, cursor, start)
            if size < least:
                raise RecordsError(f"a header key or value of {size} bytes", start)
            cursor += max(size, 0)
            if cursor > stop:
                raise RecordsError("a record header that ends outside of its record", start)
    return cursor


def _read_size(data: bytes | memoryview, cursor: int, start: int) -> tuple[int, int]:
    """A number of 32 bits, which Java reads from no more than 5 bytes."""
    value, after = read_varint(data, cursor)
    if after - cursor > _MOST_LENGTH_BYTES or not -(2**31) <= value < 2**31:
        raise RecordsError("a number of more than 32 bits", start)
    return value, after
