"""Random histories of one log, and a power cut: what it promised is there, and nothing else stands beside it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.config import LogConfig
from kafkad.errors import StorageError
from kafkad.log.fsync import OnDone, SharedFsync
from kafkad.log.log import Log
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from tests.log.conftest import append, batch, records
from tests.sim.disk import SimFiles
from tests.sim.world import ProcessClock, World

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=200, segment_index_bytes=1 << 12, file_delete_delay_ms=0)


def _now(directory: str, work: Callable[[], None], done: OnDone) -> None:
    try:
        work()
    except StorageError as error:
        done(error)
    else:
        done(None)


class History:
    """What was done to the log of one partition: as a follower does it, whose leaders come and go."""

    def __init__(self, root: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._root = root / "disk"
        self._root.mkdir()
        self._files = SimFiles(str(self._root), ProcessClock(World(0)))
        self._epoch = 0
        self._written = 0
        self._expected: list[bytes] = []
        """The values it should have, from offset 0 on."""
        self._promised = 0
        """The offset before which all of it is on the disk."""
        self._checkpointed = 0
        self._log = self._open()
        self._group = SharedFsync(self._files, _now, lambda error: None)

    def run(self, steps: int) -> None:
        actions = [self._append] * 8 + [self._cut, self._cut, self._roll, self._flush, self._sync, self._checkpoint]
        for _ in range(steps):
            self._chance.choice(actions)()
        self._lose_power()

    def _open(self) -> Log:
        return Log.open(
            str(self._root / "t-0"),
            CONFIG,
            self._files,
            ProcessClock(World(0)),
            topic_partition=TopicPartition("t", 0),
            recovery_point=self._checkpointed,
            clean=False,
        )

    def _append(self) -> None:
        values = []
        for _ in range(self._chance.randint(1, 3)):
            self._written += 1
            values.append(b"%08d" % self._written)
        assert append(self._log, batch(*values), self._epoch) == len(self._expected)
        self._expected += values

    def _cut(self) -> None:
        """Another leader has less."""
        offset = max(len(self._expected) - self._chance.randrange(12), 0)
        truncate_to(self._log, offset)
        del self._expected[self._log.end_offset :]
        self._promised = min(self._promised, self._log.end_offset)
        self._checkpointed = min(self._checkpointed, self._log.durability.recovery_point)
        self._epoch += 1

    def _roll(self) -> None:
        self._log.roll()

    def _flush(self) -> None:
        self._log.flush()
        self._promised = self._log.end_offset

    def _sync(self) -> None:
        self._group.fsync(self._log, self._synced)

    def _synced(self, error: StorageError | None) -> None:
        assert error is None
        self._promised = self._log.end_offset

    def _checkpoint(self) -> None:
        self._checkpointed = self._log.durability.recovery_point

    def _lose_power(self) -> None:
        self._log.close(clean=False)
        self._files.lose_power(self._chance, self._chance.choice([0.0, 0.3, 0.7, 0.95]))
        if not os.path.isdir(self._root / "t-0"):
            assert not self._promised
        self._log = self._open()
        whole_until = min((hole.first for _, hole in self._log.damage), default=self._log.end_offset)
        assert whole_until >= self._promised
        truncate_to(self._log, whole_until)
        found: list[Record] = records(self._log)
        assert [record.offset for record in found] == list(range(self._log.end_offset))
        assert [record.value for record in found[: self._promised]] == self._expected[: self._promised]
        self._log.close()


@pytest.mark.parametrize("seed", range(20))
def test_what_was_promised_survives(tmp_path: Path, seed: int) -> None:
    for number in range(5):
        root = tmp_path / str(number)
        root.mkdir()
        History(root, 1000 * seed + number).run(30)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_what_was_promised_survives_longer(tmp_path: Path, seed: int) -> None:
    History(tmp_path, seed).run(200)
