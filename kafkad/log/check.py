"""Is what lies in a partition's directory consistent? For the end of every test of the log, and for an operator.

Reads only, opens no Log, repairs nothing; the log may be Kafka's own. Nothing may write to it meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkad.log import snapshots, txnindex
from kafkad.log.batches import (
    BASE_OFFSET,
    LAST_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    BadBatch,
    Header,
    read_whole,
)
from kafkad.log.epochs import FILE_NAME as EPOCHS
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files
from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE, OffsetIndex, TimeIndex, used_entries
from kafkad.log.indexed import INDEX, LOG, TIME_INDEX, segment_path
from kafkad.log.names import base_of
from kafkad.wire.records import crc_matches


class Problem(NamedTuple):
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class _Batch(NamedTuple):
    position: int
    header: Header

    @property
    def last(self) -> int:
        return self.header[BASE_OFFSET] + self.header[LAST_DELTA]


def check(directory: str) -> list[Problem]:
    """Everything that is wrong with one partition."""
    return _Check(directory).run()


class _Check:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.files = Files()
        self.problems: list[Problem] = []
        self.end = 0
        self.names = os.listdir(directory)

    def run(self) -> list[Problem]:
        bases = sorted(base for name in self.names if name.endswith(LOG) and (base := base_of(name)) is not None)
        if not bases:
            self._problem(self.directory, "no segment")
        epochs = LeaderEpochs(self.directory, self.files)
        if not epochs.load():
            self._problem(epochs.path, "no leader epochs can be read from it")
        known = EPOCHS in self.names
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            batches = self._batches(base, following)
            self._offset_index(base, batches)
            self._time_index(base, batches, sealed=following is not None)
            self._transaction_index(base)
            if known:
                self._epochs(base, epochs, batches)
        self._snapshots()
        return self.problems

    def _problem(self, path: str, text: str) -> None:
        self.problems.append(Problem(path, text))

    def _batches(self, base: int, following: int | None) -> list[_Batch]:
        """The batches of a segment, in so far as they are sound."""
        path = segment_path(self.directory, base, LOG)
        found: list[_Batch] = []
        self.end = max(self.end, base)
        file = self.files.open_log_file(path, os.O_RDONLY)
        position = 0
        try:
            for view, at, header in read_whole(self.files, file.fd, 0, file.size):
                batch = _Batch(position, header)
                if header[BASE_OFFSET] < self.end:
                    self._problem(path, f"offset {header[BASE_OFFSET]} at byte {position} where {self.end} is next")
                if not crc_matches(view, at, header):
                    self._problem(path, f"the batch with offset {header[BASE_OFFSET]} fails its checksum")
                self.end = batch.last + 1
                found.append(batch)
                position += header[1] + 12
        except BadBatch as bad:
            self._problem(path, str(bad))
        if following is not None and self.end > following:
            self._problem(path, f"ends with offset {self.end - 1}, but {following} begins the next segment")
        return found

    def _read_index(self, base: int, suffix: str, entry_size: int) -> bytes:
        path = segment_path(self.directory, base, suffix)
        if os.path.basename(path) not in self.names:
            self._problem(path, "is missing")
            return b""
        data = self.files.read(path)
        if len(data) % entry_size:
            self._problem(path, f"{len(data)} bytes are no whole number of entries")
        return used_entries(data, entry_size)

    def _offset_index(self, base: int, batches: list[_Batch]) -> None:
        index = OffsetIndex(self._read_index(base, INDEX, OFFSET_ENTRY_SIZE))
        path = segment_path(self.directory, base, INDEX)
        self._growing(path, index.offsets)
        self._growing(path, index.positions)
        starts = {batch.position: batch for batch in batches}
        for offset, position in zip(index.offsets, index.positions, strict=True):
            batch = starts.get(position)
            if batch is None:
                self._problem(path, f"offset {base + offset}: no batch begins at byte {position}")
            elif not batch.header[BASE_OFFSET] <= base + offset:
                self._problem(path, f"offset {base + offset} is before the batch at byte {position}")

    def _time_index(self, base: int, batches: list[_Batch], *, sealed: bool) -> None:
        index = TimeIndex(self._read_index(base, TIME_INDEX, TIME_ENTRY_SIZE))
        path = segment_path(self.directory, base, TIME_INDEX)
        self._growing(path, index.offsets)
        self._growing(path, index.timestamps)
        number = 0
        largest = -1
        for timestamp, offset in zip(index.timestamps, index.offsets, strict=True):
            while number < len(batches) and batches[number].last <= base + offset:
                largest = max(largest, batches[number].header[MAX_TIMESTAMP])
                number += 1
            if largest > timestamp:
                self._problem(path, f"{timestamp} until offset {base + offset}, where {largest} is the largest")
        largest = max((batch.header[MAX_TIMESTAMP] for batch in batches), default=-1)
        if sealed and largest > max(index.timestamps, default=-1):
            self._problem(path, f"the largest timestamp of the segment, {largest}, is missing")

    def _growing(self, path: str, values: Sequence[int]) -> None:
        for number in range(1, len(values)):
            if values[number] <= values[number - 1]:
                self._problem(path, f"entry {number} does not grow: {values[number - 1]}, then {values[number]}")

    def _transaction_index(self, base: int) -> None:
        path = segment_path(self.directory, base, txnindex.SUFFIX)
        if os.path.basename(path) not in self.names:
            return
        try:
            entries = txnindex.decode(self.files.read(path))
        except txnindex.BrokenTransactionIndexError as error:
            self._problem(path, str(error))
            return
        for entry in entries:
            if not base <= entry.last_offset < self.end:
                self._problem(path, f"the marker at offset {entry.last_offset} is not in this segment")

    def _epochs(self, base: int, epochs: LeaderEpochs, batches: list[_Batch]) -> None:
        first = epochs.entries[0][1] if epochs.entries else None
        for batch in batches:
            offset, epoch = batch.header[BASE_OFFSET], batch.header[LEADER_EPOCH]
            if epoch < 0 or (first is not None and offset < first):
                continue
            if epochs.epoch_at(offset) != epoch:
                self._problem(
                    epochs.path, f"epoch {epochs.epoch_at(offset)} at offset {offset}, whose batch says {epoch}"
                )

    def _snapshots(self) -> None:
        for name in self.names:
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
