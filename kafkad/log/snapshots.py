"""Producer snapshots (`<offset>.snapshot`): what is known of every producer of a partition as of an offset.

They spare a reader the whole log: state = newest snapshot + what the log has after it. Kafka's format, version 1: a
version, a CRC-32C of the rest, and 46 bytes a producer.
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kafkad.log.files import Files, disk_errors, storage_error
from kafkad.turns import Pieces
from kafkad.wire.crc import crc32c

SUFFIX = ".snapshot"
NONE_TAKEN = -1

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_CRC_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_AT_ONCE = 256 * 1024
"""Bytes that are written before others get a turn."""


class ProducerEntry(NamedTuple):
    """One producer of a snapshot; only the last of its batches is kept there. -1 is none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_start: int


class BrokenSnapshotError(ValueError):
    """Not the bytes of a snapshot."""


def decode(data: bytes) -> Iterator[ProducerEntry]:
    """Checked at once, as a whole; the entries are made one by one, for there may be a hundred thousand."""
    if len(data) < _HEAD.size:
        raise BrokenSnapshotError(f"{len(data)} bytes are too few")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise BrokenSnapshotError(f"version {version} where {_VERSION} was expected")
    if crc32c(memoryview(data)[_CRC_FROM:]) != crc:
        raise BrokenSnapshotError("its checksum does not fit")
    if count * _ENTRY.size != len(data) - _HEAD.size:
        raise BrokenSnapshotError(f"{count} producers in {len(data)} bytes")
    return map(ProducerEntry._make, _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]))


Fields = tuple[int, int, int, int, int, int, int, int]
"""Those of a ProducerEntry."""


def pack(fields: Fields) -> bytes:
    """The entry of one producer."""
    return _ENTRY.pack(*fields)


def encode(packed: bytes | bytearray) -> bytes:
    """A snapshot of entries that are packed already."""
    rest = struct.pack(">i", len(packed) // _ENTRY.size) + packed
    return struct.pack(">hI", _VERSION, crc32c(rest)) + rest


def file_name(offset: int) -> str:
    return f"{offset:020d}{SUFFIX}"


class Snapshots:
    """The snapshot files of one partition directory; `offsets` are those that the caller found there.

    What is in a snapshot is not waited for on the disk: its checksum tells a torn one, and the log has everything.
    """

    __slots__ = ("_doubtful", "_files", "_offsets", "directory", "remove")

    def __init__(
        self,
        directory: str,
        files: Files,
        offsets: Iterable[int] = (),
        remove: Callable[[str], None] | None = None,
    ) -> None:
        self.directory = directory
        self.remove = remove or files.unlink
        """Called with the path of a snapshot that is of no more use. Unlinking it waits for the disk, as only a thread
        may, such as the one that loads logs."""
        self._files = files
        self._offsets = sorted(offsets)
        self._doubtful: set[int] = set()

    @property
    def offsets(self) -> Sequence[int]:
        return self._offsets

    @property
    def newest(self) -> int:
        return self._offsets[-1] if self._offsets else NONE_TAKEN

    def path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset)}"

    def write(self, offset: int, packed: bytes | bytearray) -> Pieces[None]:
        """Put a snapshot of these entries there in one step, but work on it in pieces: a hundred thousand producers are
        some 5 MB. Closed before its end, it leaves nothing."""
        data = encode(packed)
        if offset not in self._doubtful or self._read(offset) != data:
            with disk_errors(self.directory, f"writing {file_name(offset)}"):
                yield from self._write_file(offset, data)
        self._doubtful.discard(offset)
        at = bisect_left(self._offsets, offset)
        if self._offsets[at : at + 1] != [offset]:
            self._offsets.insert(at, offset)

    def _write_file(self, offset: int, data: bytes) -> Pieces[None]:
        """The directory may be renamed between two pieces."""
        file = self._files.open_log_file(f"{self.path(offset)}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        view = memoryview(data)
        try:
            for at in range(0, len(data), _AT_ONCE):
                if at:
                    yield
                self._files.write_all(file.fd, view[at : at + _AT_ONCE], at)
        except (OSError, GeneratorExit):
            with contextlib.suppress(OSError):
                self._files.unlink(f"{self.path(offset)}.tmp")
            raise
        self._files.rename(f"{self.path(offset)}.tmp", self.path(offset))

    def load_newest(self) -> tuple[int, Iterator[ProducerEntry]] | None:
        """The newest that is whole; broken ones are deleted on the way."""
        while self._offsets:
            offset = self._offsets[-1]
            try:
                return offset, decode(self._read(offset))
            except BrokenSnapshotError:
                self.delete(offset)
        return None

    def _read(self, offset: int) -> bytes:
        try:
            return self._files.read(self.path(offset))
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error(self.directory, f"reading {file_name(offset)}", error) from error

    def delete(self, offset: int) -> None:
        """Also called with the base offset of each segment that is deleted: its snapshot is of no more use."""
        at = bisect_left(self._offsets, offset)
        if self._offsets[at : at + 1] == [offset]:
            self._remove(offset)
            del self._offsets[at]

    def keep_within(self, start_offset: int, end_offset: int) -> None:
        """Delete those at or below the start of the log and past its end."""
        first = bisect_right(self._offsets, start_offset)
        after = max(bisect_right(self._offsets, end_offset), first)
        for offset in self._offsets[:first] + self._offsets[after:]:
            self.delete(offset)

    def doubt(self, offset: int) -> None:
        """Do not believe those past `offset`, nor delete them yet: most will be written again as they are.

        Thousands of new files beside thousands that were just deleted cost ext4 quadratic time.
        """
        after = bisect_right(self._offsets, offset)
        self._doubtful.update(self._offsets[after:])
        del self._offsets[after:]

    def delete_doubtful(self) -> None:
        for offset in self._doubtful:
            self._remove(offset)
        self._doubtful.clear()

    def _remove(self, offset: int) -> None:
        with disk_errors(self.directory, f"deleting {file_name(offset)}"), contextlib.suppress(FileNotFoundError):
            self.remove(self.path(offset))
