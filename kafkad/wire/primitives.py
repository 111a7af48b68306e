"""The small pieces of a frame: lengths, strings, bytes, arrays of numbers.

Every reader takes `(data, at)` and gives `(value, at after it)`; `data` is bytes, bytearray or a memoryview of bytes.
A length is compared with what is left before anything is made of it; any below 0 says null, as to Kafka. What is wrong
raises MalformedError, or IndexError or struct.error when the data simply end; `schema.read` turns the latter two into
the former. Bytes of a string that are no UTF-8 are read as U+FFFD, which Kafka does, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct, error
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from kafkad.turns import Pieces

Buffer = bytes | bytearray | memoryview
Reader = Callable[[Buffer, int], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]
T = TypeVar("T")

MAX_STRING = 0x7FFF
MAX_TAGS = 1000
"""The most tagged fields of one message. Those of sections with few of them are not counted: newer clients may have one
or two for each partition."""
_FEW_TAGS = 4
_KEPT_SIZES = 128
_QUICK_SIZES = 9

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class MalformedError(ValueError):
    """Bytes that are no message of the kind they should be."""


class EncodeError(ValueError):
    """A value that this message cannot carry at this version."""


def put_uvarint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def get_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise MalformedError(f"a number of more than five bytes before {at}")


def get_tag_count(data: Buffer, at: int, left: int) -> tuple[int, int, int]:
    """The number of tagged fields that follow, where they start, and how many may follow those: of `left`, which is
    MAX_TAGS at the start of a message. A million of them would only cost time."""
    count, at = get_uvarint(data, at)
    if count > _FEW_TAGS:
        left -= count
        if left < 0:
            raise MalformedError(f"more than {MAX_TAGS} tagged fields before {at}")
    return count, at, left


def skip_tags(data: Buffer, at: int, left: int = MAX_TAGS) -> tuple[int, int]:
    """Past a tagged-field section of which nothing is wanted; and how many may follow, as `get_tag_count` says it."""
    if data[at] == 0:
        return at + 1, left
    count, at, left = get_tag_count(data, at, left)
    for _ in range(count):
        _, at = get_uvarint(data, at)
        size, at = get_uvarint(data, at)
        at += size
        if at > len(data):
            raise MalformedError("a tagged field runs past the end")
    return at, left


def or_malformed(reading: Pieces[T]) -> Pieces[T]:
    """The same, with MalformedError where the data end before what is read."""
    try:
        return (yield from reading)
    except (IndexError, error) as cause:
        raise MalformedError(f"it ends too soon: {cause}") from cause


# Strings and bytes. Plain: a fixed-size length, -1 for null. Compact: an unsigned varint of length + 1, 0 for null.


def put_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    out += _INT16.pack(len(raw))
    out += raw


def put_compact_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    size = len(raw)
    if size < 0x7F:
        out.append(size + 1)
    elif size <= MAX_STRING:
        put_uvarint(out, size + 1)
    else:
        raise EncodeError(f"a string of {size} bytes, more than {MAX_STRING}")
    out += raw


def put_bytes(out: bytearray, value: Buffer) -> None:
    out += _INT32.pack(len(value))
    out += value


def put_compact_bytes(out: bytearray, value: Buffer) -> None:
    put_uvarint(out, len(value) + 1)
    out += value


def get_nullable_string(data: Buffer, at: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(data, at)
    return (None, at + 2) if size < 0 else _text(data, at + 2, size)


def get_nullable_compact_string(data: Buffer, at: int) -> tuple[str | None, int]:
    size = data[at]
    at += 1
    if size > 0x7F:
        size, at = get_uvarint(data, at - 1)
        if size > MAX_STRING + 1:
            raise MalformedError(f"a string of {size - 1} bytes before {at}")
    return (None, at) if size == 0 else _text(data, at, size - 1)


def get_nullable_bytes(data: Buffer, at: int) -> tuple[bytes | None, int]:
    (size,) = _INT32.unpack_from(data, at)
    return (None, at + 4) if size < 0 else _raw(data, at + 4, size)


def get_nullable_compact_bytes(data: Buffer, at: int) -> tuple[bytes | None, int]:
    size, at = get_uvarint(data, at)
    return (None, at) if size == 0 else _raw(data, at, size - 1)


put_records, put_compact_records = put_bytes, put_compact_bytes


def get_nullable_records(data: Buffer, at: int) -> tuple[Buffer | None, int]:
    (size,) = _INT32.unpack_from(data, at)
    return (None, at + 4) if size < 0 else _part(data, at + 4, size)


def get_nullable_compact_records(data: Buffer, at: int) -> tuple[Buffer | None, int]:
    size, at = get_uvarint(data, at)
    return (None, at) if size == 0 else _part(data, at, size - 1)


def _text(data: Buffer, at: int, size: int) -> tuple[str, int]:
    end = at + size
    if end > len(data):
        raise MalformedError(f"a string of {size} bytes at {at}, {len(data) - at} are left")
    try:
        return str(data[at:end], "utf-8"), end
    except UnicodeDecodeError:
        return _replaced(data[at:end]), end


def _replaced(raw: Buffer) -> str:
    """Bytes that are no UTF-8 as text, unless that is too long to be sent back: it can have three times as many."""
    text = str(raw, "utf-8", "replace")
    size = len(text.encode())
    if size > MAX_STRING:
        raise MalformedError(f"a string that is no UTF-8, and of {size} bytes as text, more than {MAX_STRING}")
    return text


def _raw(data: Buffer, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise MalformedError(f"{size} bytes at {at}, {len(data) - at} are left")
    return bytes(data[at:end]), end


def _part(data: Buffer, at: int, size: int) -> tuple[Buffer, int]:
    end = at + size
    if end > len(data):
        raise MalformedError(f"{size} bytes of records at {at}, {len(data) - at} are left")
    return data[at:end], end


def refuse_null(at: int) -> None:
    raise MalformedError(f"null before {at}, where it is not allowed")


def or_null(write: Writer, null: bytes) -> Writer:
    """`write`, with `null` written for None."""

    def put(out: bytearray, value: Any) -> None:
        if value is None:
            out += null
        else:
            write(out, value)

    return put


# Arrays: a count, then the items. As with strings: plain or compact, -1 or 0 for null.


def put_count(out: bytearray, count: int) -> None:
    out += _INT32.pack(count)


def put_compact_count(out: bytearray, count: int) -> None:
    put_uvarint(out, count + 1)


def get_count(data: Buffer, at: int) -> tuple[int, int]:
    """The number of items that follow, -1 for null; never more than the bytes left, for an item has at least one."""
    (count,) = _INT32.unpack_from(data, at)
    return _believable(count, data, at + 4)


def get_compact_count(data: Buffer, at: int) -> tuple[int, int]:
    count = data[at]
    at += 1
    if count > 0x7F:
        count, at = get_uvarint(data, at - 1)
    return _believable(count - 1, data, at)


def _believable(count: int, data: Buffer, at: int) -> tuple[int, int]:
    if count > len(data) - at:
        raise MalformedError(f"an array of {count} items at {at}, {len(data) - at} bytes are left")
    return (count if count >= 0 else -1), at


def _repeated(item: str, count: int) -> str:
    return f"{count}{item}" if len(item) == 1 else item * count


class ArrayPackers(dict[int, Callable[..., bytes]]):
    """Packers of arrays of fixed-size items, by length, count included, so that one call writes the whole array."""

    def __init__(self, item: str, compact: bool) -> None:
        super().__init__()
        self._item = item
        self._put_count = put_compact_count if compact else put_count

    def __missing__(self, size: int) -> Callable[..., bytes]:
        prefix = bytearray()
        self._put_count(prefix, size)
        packer = partial(Struct(f">{len(prefix)}s{_repeated(self._item, size)}").pack, bytes(prefix))
        if size < _KEPT_SIZES:
            self[size] = packer
        return packer


def array_reader(item: str, compact: bool) -> Reader:
    """A reader of an array of fixed-size items, or of null. Lists of replicas are short: those take the quick way."""
    size = Struct(">" + item).size
    count_of = get_compact_count if compact else get_count
    quick = {count + 1: (_unpacker(item, count), 1 + count * size) for count in range(_QUICK_SIZES if compact else 0)}

    def get(data: Buffer, at: int) -> tuple[list[Any] | None, int]:
        known = quick.get(data[at])
        if known is not None:
            unpack, length = known
            return list(unpack(data, at + 1)), at + length
        count, at = count_of(data, at)
        if count < 0:
            return None, at
        end = at + count * size
        if end > len(data):
            raise MalformedError(f"an array of {count} items at {at} runs past the end")
        return list(_unpacker(item, count)(data, at)), end

    return get


def _unpacker(item: str, count: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
    return Struct(">" + _repeated(item, count)).unpack_from
