"""The start offset of each leader epoch: the `leader-epoch-checkpoint` of a partition.

Followers and leaders compare these to find where their logs part (KIP-101, KIP-279). Every batch carries its epoch, so
the file can be made anew from the log: it is written at each change (unless the disk is full) but not waited for,
`Log.flush` makes it durable before the recovery point passes the batches it speaks of, and recovery reads the rest from
the batches.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache

from kafkad.log.files import Files, as_far_as_there_is_room
from kafkad.model import NO_EPOCH

FILE_NAME = "leader-epoch-checkpoint"
_LARGEST = 2**31 - 1
UNDEFINED = (NO_EPOCH, -1)


class LeaderEpochs:
    """Epochs and their first offsets, both growing. `changes` counts the writes of the file."""

    __slots__ = ("_epochs", "_files", "_starts", "_stored", "changes", "directory")

    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self.changes = 0
        self._stored = True
        self._files = files
        self._epochs: list[int] = []
        self._starts: list[int] = []

    @property
    def path(self) -> str:
        return f"{self.directory}/{FILE_NAME}"

    def load(self) -> bool:
        """Read the file; False when it is empty or makes no sense, and the batches must be asked."""
        self._epochs, self._starts = [], []
        try:
            data = self._files.read(self.path)
            entries = decode(data)
        except FileNotFoundError:
            return True
        except ValueError:
            return False
        if any(not 0 <= epoch <= _LARGEST or start < 0 for epoch, start in entries):
            return False
        for epoch, start in entries:
            self._put(epoch, start)
        return bool(data)

    def restore(self, entries: Iterable[tuple[int, int]]) -> None:
        """Take the entries that the file has, as `entries` gave them."""
        for epoch, start in entries:
            self._epochs.append(epoch)
            self._starts.append(start)

    def store(self) -> None:
        self.changes += 1
        self._stored = False
        with as_far_as_there_is_room():
            self._write()

    def _write(self) -> None:
        self._files.write_file(self.path, encode(self.entries), durable=False)
        self._stored = True

    def catch_up(self) -> None:
        """Called before a flush: writes what a full disk had no room for."""
        if not self._stored:
            self._write()

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of each."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> int | None:
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start: int) -> None:
        """`epoch` begins at `start`. Nothing new if it is the latest already and does not begin earlier."""
        if self._put(epoch, start):
            self.store()

    def _put(self, epoch: int, start: int) -> bool:
        if epoch < 0 or start < 0:
            raise ValueError(f"epoch {epoch} from offset {start}")
        if self._epochs and self._epochs[-1] == epoch and self._starts[-1] <= start:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start):
            del self._epochs[-1], self._starts[-1]
        self._epochs.append(epoch)
        self._starts.append(start)
        return True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch not above `epoch` and where it ended; (-1, -1) when this log cannot know.

        For an epoch older than the first known: that epoch, with the offset at which the first known begins.
        """
        if epoch == NO_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED
        if epoch == self._epochs[-1]:
            return epoch, log_end
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def common_end(self, end: int, other: LeaderEpochs, other_end: int) -> int:
        """The end of what a log with these epochs, up to `end`, has in common with another one, up to `other_end`: what
        is behind the last epoch that both have is of another history, also where it is an earlier epoch that goes on.
        """
        epoch = self.latest
        while epoch is not None and other.latest is not None:
            shared, shared_end = other.end_offset_for(min(epoch, other.latest), other_end)
            epoch, own_end = self.end_offset_for(shared, end)
            if epoch == shared:
                return min(own_end, shared_end)
        return min(end, other_end)

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the batch that holds `offset`."""
        number = bisect_right(self._starts, offset)
        return self._epochs[number - 1] if number else None

    def previous(self, epoch: int) -> int | None:
        """The largest known epoch below `epoch`."""
        lower = [known for known in self._epochs if known < epoch]
        return lower[-1] if lower else None

    def truncate_from_end(self, end: int) -> None:
        """The log ends at `end` now: forget epochs that begin there or later."""
        if self._starts and self._starts[-1] >= end:
            while self._starts and self._starts[-1] >= end:
                del self._epochs[-1], self._starts[-1]
            self.store()

    def truncate_from_start(self, start: int) -> None:
        """The log begins at `start` now: the epoch in force there begins there, older ones are forgotten."""
        number = bisect_right(self._starts, start)
        if number and (number > 1 or self._starts[0] != start):
            del self._epochs[: number - 1], self._starts[: number - 1]
            self._starts[0] = start
            self.store()

    def clear(self) -> None:
        if self._epochs:
            self._epochs, self._starts = [], []
            self.store()


def encode(entries: list[tuple[int, int]]) -> bytes:
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


@lru_cache(maxsize=256)
def decode(data: bytes) -> tuple[tuple[int, int], ...]:
    """ValueError when it is not such a file, whole. Kafka makes an empty one, and fills it with the first epoch.

    The files of many partitions are alike: they are in their first epoch.
    """
    if not data:
        return ()
    version, count, *lines = data.decode("ascii").splitlines() or ["", ""]
    if int(version) != 0 or int(count) != len(lines) or not data.endswith(b"\n"):
        raise ValueError(f"version {version}, {len(lines)} of {count} lines, or not all of the last")
    entries = []
    for line in lines:
        epoch, start = line.split(" ")
        entries.append((int(epoch), int(start)))
    return tuple(entries)
