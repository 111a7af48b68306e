"""Reading segments as they lie on the disk: whole ones, damaged ones, and those that a broker is writing to.

Nothing is written, locked or mapped into memory: a broker may cut a segment while it is read here.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import NamedTuple

from kafkad.log.batches import BadBatch, header_at, read_whole
from kafkad.log.checkpoint import META_PROPERTIES
from kafkad.log.files import Files, LogFile
from kafkad.log.names import base_of, parse_name
from kafkad.opening import open_at_once
from kafkad.wire.records import BASE_OFFSET, HEADER_SIZE, LENGTH, PREFIX_SIZE, BatchHeader, Header, crc_matches
from kctl.errors import Exit, KctlError


class RegularFiles(Files):
    """Others than regular ones cannot be read: a named pipe would be waited for, and a device may have no end."""

    @staticmethod
    def open(
        path: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        flags: int,
        mode: int = 0o777,
        *,
        dir_fd: int | None = None,
    ) -> int:
        fd = open_at_once(path, flags, mode, dir_fd=dir_fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "is no regular file", path)
        return fd


FILES = RegularFiles()
BROKERS = "brokers"
"""`kafkad --brokers N` keeps the log directories of all brokers but the first in `brokers/ID` of the first one's."""

_CHUNK = 4 << 20
_CANDIDATE = rb"(?s)(?=\x00\x00.{6}(?!\x00{4})[\x00-\x3f].{3}.{4}[\x00-\x02])"
"""Bytes that may begin a batch: an offset below 2^48, a length that is not 0, a magic that exists."""


_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint\b")


class Batch(NamedTuple):
    """One batch. `view` is overwritten when the next one is read; it begins in it at `at`."""

    position: int
    header: BatchHeader
    crc_ok: bool
    view: memoryview
    at: int


class Damage(NamedTuple):
    """The bytes from `position` to `end` belong to no batch."""

    position: int
    end: int
    reason: str

    @property
    def size(self) -> int:
        return self.end - self.position


def span_text(damage: Damage) -> str:
    return f"{damage.size} bytes from {damage.position:,} to {damage.end:,} are no batch: {damage.reason}"


def place_text(batch: Batch) -> str:
    return f"the batch with offset {batch.header.base_offset} at byte {batch.position}"


class Segment(NamedTuple):
    path: str
    base: int

    @property
    def partition(self) -> str:
        """The name of the directory it is in, which says the topic; of a file elsewhere, nothing certain."""
        return os.path.basename(os.path.dirname(os.path.abspath(self.path)))

    @property
    def topic(self) -> str:
        name = parse_name(self.partition)
        return name.topic_partition.topic if name else ""

    def sibling(self, suffix: str) -> str:
        """Another file of the same segment; one that waits for deletion has siblings that wait too."""
        directory, name = os.path.split(self.path)
        return os.path.join(directory, name.replace(".log", suffix, 1))


def segments_in(directory: str) -> list[Segment]:
    """The segments of one partition, in order."""
    found = [
        Segment(os.path.join(directory, name), base)
        for name in os.listdir(directory)
        if name.endswith(".log") and (base := base_of(name)) is not None
    ]
    return sorted(found, key=lambda segment: segment.base)


def partitions_in(directory: str) -> list[str]:
    """The partition directories of a log directory, in order; those that are put aside too."""
    found = [entry.name for entry in os.scandir(directory) if entry.is_dir() and parse_name(entry.name)]
    found.sort(key=_partition_order)
    return [os.path.join(directory, name) for name in found]


def brokers_in(directory: str) -> list[str]:
    """The log directories of other brokers that are in one of a host's first broker, in the order of their ids."""
    try:
        entries = list(os.scandir(os.path.join(directory, BROKERS)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [entry for entry in entries if entry.name.isdecimal() and entry.is_dir() and _is_used(entry.path)]
    return [entry.path for entry in sorted(found, key=lambda entry: int(entry.name))]


def _is_used(directory: str) -> bool:
    """A broker has started with this log directory."""
    return os.path.exists(os.path.join(directory, META_PROPERTIES)) or bool(partitions_in(directory))


def _partition_order(name: str) -> tuple[str, int, str]:
    parsed = parse_name(name)
    assert parsed is not None
    return (*parsed.topic_partition, name)


def is_log(path: str) -> bool:
    """Also a snapshot of a KRaft cluster's metadata: it has the same batches, from offset 0 on."""
    name = os.path.basename(path)
    return (".log" in name and base_of(name) is not None) or snapshot_of(path) is not None


def snapshot_of(path: str) -> tuple[int, int] | None:
    """The end offset and epoch in the name of such a snapshot."""
    found = _SNAPSHOT.match(os.path.basename(path))
    return (int(found[1]), int(found[2])) if found else None


def segments_of(path: str) -> list[Segment]:
    """The segments that a command line names: one, or those of a partition's directory or a log directory."""
    if not os.path.isdir(path):
        base = base_of(os.path.basename(path))
        os.stat(path)
        return [Segment(path, base or 0)]
    found = segments_in(path)
    if not found:
        found = [segment for partition in partitions_in(path) for segment in segments_in(partition)]
    if not found:
        hints = tuple(f"{other} is of another broker of the host" for other in brokers_in(path))
        raise KctlError(f"{path}: no segment found", exit_code=Exit.NOT_FOUND, hints=hints)
    return found


def read_batches(file: LogFile, start: int = 0, end: int | None = None) -> Iterator[Batch | Damage]:
    """Every batch from `start`, a position, and what is between them. Goes on after damage at the next sound batch."""
    limit = file.size if end is None else end
    position = start
    while position < limit:
        suspect: int | None = None
        try:
            for view, at, header in read_whole(FILES, file.fd, position, limit):
                sound = crc_matches(view, at, header)
                suspect = None if sound else position
                yield Batch(position, BatchHeader._make(header), sound, view, at)
                position += header[LENGTH] + PREFIX_SIZE
        except BadBatch as bad:
            if end is None and file.size > limit:  # a broker was in the middle of writing
                limit = file.size
                continue
            damage = _damage(file, bad, suspect, limit)
            yield damage
            position = damage.end


def _damage(file: LogFile, bad: BadBatch, suspect: int | None, limit: int) -> Damage:
    """A damaged stretch, up to the next sound batch. A batch with a bad CRC may have a wrong length: look inside."""
    if _only_zeros(file, bad.position, limit):
        return Damage(bad.position, limit, "zeros to the end of the file")
    following = find_batch(file, bad.position + 1 if suspect is None else suspect + 1, limit)
    start = bad.position if suspect is None or following is None or following > bad.position else suspect
    return Damage(start, limit if following is None else following, bad.reason)


def _only_zeros(file: LogFile, position: int, end: int) -> bool:
    while position < end:
        chunk = FILES.pread(file.fd, min(_CHUNK, end - position), position)
        if chunk.count(0) != len(chunk) or not chunk:
            return False
        position += len(chunk)
    return True


def find_batch(file: LogFile, position: int, end: int) -> int | None:
    """The first position at or after `position` where a batch with a right CRC begins."""
    while position < end:
        chunk = FILES.pread(file.fd, min(_CHUNK, end - position), position)
        for match in re.finditer(_CANDIDATE, chunk):
            if _is_batch(file, chunk, match.start(), position + match.start(), end):
                return position + match.start()
        if position + len(chunk) >= end or len(chunk) <= HEADER_SIZE:
            return None
        position += len(chunk) - HEADER_SIZE
    return None


def _is_batch(file: LogFile, chunk: bytes, at: int, position: int, end: int) -> bool:
    if len(chunk) - at < HEADER_SIZE:
        chunk, at = FILES.pread(file.fd, HEADER_SIZE, position), 0
    try:
        header = header_at(chunk, at, end - position)
    except (ValueError, IndexError):
        return False
    size = header[LENGTH] + PREFIX_SIZE
    view = memoryview(FILES.pread(file.fd, size, position))
    return len(view) == size and crc_matches(view, 0, header)


# --- from which position on


def position_of(segment: Segment, file: LogFile, offset: int, time_ms: int | None) -> int:
    """A position at or before the first batch with this offset and a record of this time, by the indexes.

    0 where they are missing or do not fit the log: then the whole segment is read.
    """
    if snapshot_of(segment.path) or (time_ms is None and offset <= segment.base):
        return 0
    from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex, used_entries

    def read(suffix: str, entry_size: int) -> bytes:
        try:
            return used_entries(FILES.read_to_hole(segment.sibling(suffix)), entry_size)
        except FileNotFoundError:
            return b""

    if time_ms is not None:
        times = TimeIndex(read(".timeindex", TIME_ENTRY_SIZE))
        number = times.before(time_ms)
        if number:
            offset = max(offset, segment.base + times.offsets[number - 1])
    index = OffsetIndex(read(".index", OFFSET_ENTRY_SIZE))
    number = index.at_or_after(offset - segment.base) if offset > segment.base else 0
    if not number:
        return 0
    position = index.entry(number - 1)[1]
    header = _header_at(file, position) if position > 0 else None
    return position if header is not None and segment.base <= header[BASE_OFFSET] <= offset else 0


def _header_at(file: LogFile, position: int) -> Header | None:
    try:
        return header_at(FILES.pread(file.fd, HEADER_SIZE, position), 0, file.size - position)
    except (ValueError, IndexError):
        return None
