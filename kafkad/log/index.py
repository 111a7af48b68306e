"""The offset index and the time index of a segment, byte for byte Kafka's.

`.index` holds (offset - base, position) in 4 + 4 bytes: "the batch at `position` ends with this offset".
`.timeindex` holds (timestamp, offset - base) in 8 + 4 bytes: "up to this offset no timestamp is larger than this one".
Both grow in every entry, so both are searched by bisection. The segment that is written to keeps its entries in arrays
and writes them to the file in batches; the entries of an older one are read from the file as they are needed, so that
a thousand segments cost neither memory nor time.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Protocol

from kafkad.log.files import Files, LogFile

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
OFFSET_ENTRY_SIZE = _OFFSET_ENTRY.size
TIME_ENTRY_SIZE = _TIME_ENTRY.size
_NEAR_BYTES = 4096
_SWAP = sys.byteorder == "little"


class OffsetEntries(Protocol):
    """The view of an offset index that a search needs, in memory or in a file."""

    def __len__(self) -> int: ...

    def entry(self, number: int) -> tuple[int, int]:
        """(relative offset, position)"""

    def at_or_after(self, relative_offset: int) -> int:
        """The number of the first entry that does not end before the offset; the length when all do."""

    def position_at_or_before(self, position: int) -> int:
        """The largest position in the index that is not past `position`; 0 when there is none."""


class TimeEntries(Protocol):
    def __len__(self) -> int: ...

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, relative offset)"""

    def before(self, timestamp: int) -> int:
        """The number of entries whose timestamp is smaller."""


class OffsetIndex:
    """The offset index of the active segment, in memory. `stored` entries are in the file already."""

    __slots__ = ("offsets", "positions", "stored")

    def __init__(self, data: bytes = b"") -> None:
        entries = array("i", data)
        if _SWAP:
            entries.byteswap()
        self.offsets = entries[0::2]
        self.positions = entries[1::2]
        self.stored = len(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def entry(self, number: int) -> tuple[int, int]:
        return self.offsets[number], self.positions[number]

    def at_or_after(self, relative_offset: int) -> int:
        return bisect_left(self.offsets, relative_offset)

    def position_at_or_before(self, position: int) -> int:
        number = bisect_right(self.positions, position)
        return self.positions[number - 1] if number else 0

    def truncate(self, relative_offset: int) -> None:
        """Forget the entries from this offset on."""
        number = bisect_left(self.offsets, relative_offset)
        del self.offsets[number:], self.positions[number:]
        self.stored = min(self.stored, number)

    def unstored(self) -> bytes:
        """The bytes of the entries the file does not have yet."""
        count = len(self.offsets) - self.stored
        entries = array("i", bytes(count * _OFFSET_ENTRY.size))
        entries[0::2] = self.offsets[self.stored :]
        entries[1::2] = self.positions[self.stored :]
        if _SWAP:
            entries.byteswap()
        return entries.tobytes()


class TimeIndex:
    """The time index of the active segment, in memory."""

    __slots__ = ("offsets", "stored", "timestamps")

    def __init__(self, data: bytes = b"") -> None:
        self.timestamps = array("q")
        self.offsets = array("i")
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            self.timestamps.append(timestamp)
            self.offsets.append(offset)
        self.stored = len(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets)

    def entry(self, number: int) -> tuple[int, int]:
        return self.timestamps[number], self.offsets[number]

    def before(self, timestamp: int) -> int:
        return bisect_left(self.timestamps, timestamp)

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Take the entry if it says something new; a batch without a timestamp (-1) never does."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(relative_offset)

    def truncate(self, relative_offset: int) -> None:
        number = bisect_left(self.offsets, relative_offset)
        del self.offsets[number:], self.timestamps[number:]
        self.stored = min(self.stored, number)

    def unstored(self) -> bytes:
        pairs = zip(self.timestamps[self.stored :], self.offsets[self.stored :], strict=True)
        return b"".join(_TIME_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs)


class StoredOffsetIndex:
    """The offset index of a closed segment, read from its file.

    Where the last search ended some entries are kept: a reader that goes on from there finds its way among them.
    """

    __slots__ = ("_count", "_file", "_files", "_first", "_near")

    def __init__(self, files: Files, file: LogFile, size: int) -> None:
        self._files = files
        self._file = file
        self._count = size // _OFFSET_ENTRY.size
        self._first = 0
        self._near = OffsetIndex()

    def __len__(self) -> int:
        return self._count

    def entry(self, number: int) -> tuple[int, int]:
        if 0 <= number - self._first < len(self._near):
            return self._near.entry(number - self._first)
        data = self._files.pread(self._file.fd, _OFFSET_ENTRY.size, number * _OFFSET_ENTRY.size)
        return _OFFSET_ENTRY.unpack(data)

    def at_or_after(self, relative_offset: int) -> int:
        offsets = self._near.offsets
        if not offsets or not offsets[0] < relative_offset <= offsets[-1]:
            number = bisect_left(range(self._count), relative_offset, key=lambda number: self.entry(number)[0])
            self._keep_near(number)
            return number
        return self._first + bisect_left(offsets, relative_offset)

    def position_at_or_before(self, position: int) -> int:
        positions = self._near.positions
        if not positions or not positions[0] <= position < positions[-1]:
            number = bisect_right(range(self._count), position, key=lambda number: self.entry(number)[1])
            self._keep_near(number)
            return self.entry(number - 1)[1] if number else 0
        return positions[bisect_right(positions, position) - 1]

    def _keep_near(self, number: int) -> None:
        """Keep the entries from a little before `number` on."""
        first = max(number - 2, 0)
        data = self._files.pread(self._file.fd, _NEAR_BYTES, first * _OFFSET_ENTRY.size)
        self._first, self._near = first, OffsetIndex(whole_entries(data, _OFFSET_ENTRY.size))


class StoredTimeIndex:
    """The time index of a closed segment, read from its file."""

    __slots__ = ("_count", "_file", "_files")

    def __init__(self, files: Files, file: LogFile, size: int) -> None:
        self._files = files
        self._file = file
        self._count = size // _TIME_ENTRY.size

    def __len__(self) -> int:
        return self._count

    def entry(self, number: int) -> tuple[int, int]:
        data = self._files.pread(self._file.fd, _TIME_ENTRY.size, number * _TIME_ENTRY.size)
        return _TIME_ENTRY.unpack(data)

    def before(self, timestamp: int) -> int:
        return bisect_left(range(self._count), timestamp, key=lambda number: self.entry(number)[0])


def whole_entries(data: bytes, size: int) -> bytes:
    """`data` without a last entry that was cut off."""
    return data[: len(data) - len(data) % size]


def used_entries(data: bytes, size: int) -> bytes:
    """`data` without what Kafka preallocates in the index of an active segment, zeros, and without half an entry."""
    data = whole_entries(data, size)
    used = len(data.rstrip(b"\0"))
    return data[: used + -used % size]
