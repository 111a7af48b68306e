"""Consistency check of a partition's directory, for the end of every test of the log and for operators.

Reads only, opens no Log, repairs nothing; the log may be Kafka's own. Nothing may write to it meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from kafkad.log import snapshots, txnindex
from kafkad.log.batches import BadBatch, read_whole
from kafkad.log.epochs import FILE_NAME as EPOCHS
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files
from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex, used_entries
from kafkad.log.indexed import INDEX, LOG, TIME_INDEX, segment_path
from kafkad.log.names import base_of
from kafkad.wire.records import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    Header,
    crc_matches,
)

MISSING = "is missing"


class Problem(NamedTuple):
    """A defect of a file; in a `.log` file with its offset, and whether reading could not go on from there."""

    path: str
    text: str
    offset: int = -1
    stops: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Checked(NamedTuple):
    """`end` is the offset after the last batch that could be read."""

    problems: list[Problem]
    end: int


def examine(directory: str, files: Files) -> Checked:
    """Everything that is wrong with one partition."""
    return _Check(directory, files).run()


class _Check:
    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self.files = files
        self.problems: list[Problem] = []
        self.end = 0
        self.names = set(os.listdir(directory))

    def run(self) -> Checked:
        bases = sorted(base for name in self.names if name.endswith(LOG) and (base := base_of(name)) is not None)
        if not bases:
            self._problem(self.directory, "no segment")
        epochs = LeaderEpochs(self.directory, self.files)
        if not epochs.load() and self.files.size(epochs.path):
            self._problem(epochs.path, "no leader epochs can be read from it")
        known = _KnownEpochs(epochs, self.problems) if EPOCHS in self.names else None
        for base, following in zip_longest(bases, bases[1:]):
            readable = self._segment(base, following, known)
            self._transaction_index(base, self.end if readable else 2**63)
        self._snapshots()
        return Checked(self.problems, self.end)

    def _problem(self, path: str, text: str) -> None:
        self.problems.append(Problem(path, text))

    def _segment(self, base: int, following: int | None, epochs: _KnownEpochs | None) -> bool:
        """The batches of a segment and its indexes against them; whether it could be read to its end."""
        path = segment_path(self.directory, base, LOG)
        offsets = _OffsetEntries(*self._index(base, INDEX, OFFSET_ENTRY_SIZE), base, self.problems)
        times = _TimeEntries(*self._index(base, TIME_INDEX, TIME_ENTRY_SIZE), base, self.problems)
        self.end = max(self.end, base)
        file = self.files.open_log_file(path, os.O_RDONLY)
        position, size = 0, file.size
        readable = True
        try:
            for view, at, header in read_whole(self.files, file.fd, 0, size):
                first = header[BASE_OFFSET]
                if first < self.end:
                    text = f"offset {first} at byte {position} where {self.end} is next"
                    self.problems.append(Problem(path, text, first))
                if not crc_matches(view, at, header):
                    text = f"the batch with offset {first} at byte {position} fails its checksum"
                    self.problems.append(Problem(path, text, first))
                offsets.take(position, header)
                times.take(header)
                if epochs:
                    epochs.take(header)
                self.end = first + header[LAST_OFFSET_DELTA] + 1
                position += header[LENGTH] + PREFIX_SIZE
        except BadBatch as bad:
            self.problems.append(Problem(path, str(bad), self.end, stops=True))
            readable = False
        if following is not None and self.end > following:
            text = f"ends with offset {self.end - 1}, but {following} begins the next segment"
            self.problems.append(Problem(path, text, following))
        offsets.finish(None if readable else position)
        indexed = f"{base:020d}{TIME_INDEX}" in self.names
        times.finish(sealed=indexed and following is not None, until=None if readable else self.end)
        return readable

    def _index(self, base: int, suffix: str, entry_size: int) -> tuple[str, bytes]:
        path = segment_path(self.directory, base, suffix)
        if os.path.basename(path) not in self.names:
            self._problem(path, MISSING)
            return path, b""
        size = self.files.size(path)
        if size % entry_size:
            self._problem(path, f"{size} bytes are no whole number of entries")
        return path, used_entries(self.files.read_to_hole(path), entry_size)

    def _transaction_index(self, base: int, end: int) -> None:
        path = segment_path(self.directory, base, txnindex.SUFFIX)
        if os.path.basename(path) not in self.names:
            return
        try:
            entries = txnindex.decode(self.files.read(path))
        except txnindex.BrokenTransactionIndexError as error:
            self._problem(path, str(error))
            return
        for entry in entries:
            if not base <= entry.last_offset < end:
                self._problem(path, f"the marker at offset {entry.last_offset} is not in this segment")

    def _snapshots(self) -> None:
        for name in sorted(self.names):
            offset = base_of(name)
            if offset is None or not name.endswith(snapshots.SUFFIX):
                continue
            path = f"{self.directory}/{name}"
            if offset > self.end:
                self._problem(path, f"is past the end of the log, {self.end}")
            self._decodes(path, snapshots.decode)

    def _decodes(self, path: str, decode: Callable[[bytes], object]) -> None:
        try:
            decode(self.files.read(path))
        except snapshots.BrokenSnapshotError as error:
            self._problem(path, str(error))


class _OffsetEntries:
    """The entries of an offset index, each of which has to lead to a batch."""

    def __init__(self, path: str, data: bytes, base: int, problems: list[Problem]) -> None:
        self._path = path
        self._base = base
        self._problems = problems
        index = OffsetIndex(data)
        problems += _not_growing(path, index.offsets)
        problems += _not_growing(path, index.positions)
        self._expected: dict[int, list[int]] = {}
        for offset, position in zip(index.offsets, index.positions, strict=True):
            self._expected.setdefault(position, []).append(base + offset)

    def take(self, position: int, header: Header) -> None:
        for offset in self._expected.pop(position, ()):
            if offset < header[BASE_OFFSET]:
                self._problems.append(Problem(self._path, f"offset {offset} is before the batch at byte {position}"))

    def finish(self, readable_until: int | None) -> None:
        """Entries behind damage cannot be judged."""
        for position, offsets in self._expected.items():
            if readable_until is None or position < readable_until:
                self._problems += (
                    Problem(self._path, f"offset {offset}: no batch begins at byte {position}") for offset in offsets
                )


class _TimeEntries:
    """The entries of a time index: up to the offset of each, no batch may be later than it says."""

    def __init__(self, path: str, data: bytes, base: int, problems: list[Problem]) -> None:
        self._path = path
        self._problems = problems
        index = TimeIndex(data)
        problems += _not_growing(path, index.offsets)
        problems += _not_growing(path, index.timestamps)
        self._offsets = [base + offset for offset in index.offsets]
        self._timestamps = index.timestamps
        self._next = 0
        self._largest = -1

    def take(self, header: Header) -> None:
        self._judge_before(header[BASE_OFFSET] + header[LAST_OFFSET_DELTA])
        if header[MAX_TIMESTAMP] > self._largest:
            self._largest = header[MAX_TIMESTAMP]

    def _judge_before(self, last: int) -> None:
        """Those entries that the batch with this last offset does not count for."""
        while self._next < len(self._offsets) and self._offsets[self._next] < last:
            self._judge(self._offsets[self._next], self._timestamps[self._next])
            self._next += 1

    def _judge(self, offset: int, timestamp: int) -> None:
        if self._largest > timestamp:
            text = f"{timestamp} until offset {offset}, where {self._largest} is the largest"
            self._problems.append(Problem(self._path, text))

    def finish(self, *, sealed: bool, until: int | None) -> None:
        self._judge_before(until if until is not None else 2**63)
        if sealed and until is None and self._largest > max(self._timestamps, default=-1):
            text = f"the largest timestamp of the segment, {self._largest}, is missing"
            self._problems.append(Problem(self._path, text))


class _KnownEpochs:
    """The file of leader epochs, which every batch has to agree with."""

    def __init__(self, epochs: LeaderEpochs, problems: list[Problem]) -> None:
        self._epochs = epochs
        self._problems = problems
        self._first = epochs.entries[0][1] if epochs.entries else None
        self._told = False

    def take(self, header: Header) -> None:
        offset, epoch = header[BASE_OFFSET], header[LEADER_EPOCH]
        if epoch < 0 or self._told or (self._first is not None and offset < self._first):
            return
        if self._first is None:
            self._told = True
            text = f"has no entries, and the log has batches of epoch {epoch} from offset {offset} on"
            self._problems.append(Problem(self._epochs.path, text))
            return
        known = self._epochs.epoch_at(offset)
        if known != epoch:
            text = f"epoch {known} at offset {offset}, whose batch says {epoch}"
            self._problems.append(Problem(self._epochs.path, text))


def _not_growing(path: str, values: Sequence[int]) -> list[Problem]:
    return [
        Problem(path, f"entry {number} does not grow: {values[number - 1]}, then {values[number]}")
        for number in range(1, len(values))
        if values[number] <= values[number - 1]
    ]
