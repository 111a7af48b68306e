"""Random histories of moves between three log directories, each ended by a kill or a power cut: one replica is there,
and has all that it promised."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kafkad.errors import StorageError
from kafkad.log.fsync import OnDone, SharedFsync
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.marks import Mark
from kafkad.log.move import Moved, Moves
from kafkad.log.truncation import truncate_to
from tests.fakes import FakeClock
from tests.log.conftest import append, batch, records
from tests.log.managers import CONFIG, T0, TOPIC_ID
from tests.sim.disk import SimFiles
from tests.sim.world import ProcessClock, World


class History:
    """What is done to a replica, and to its moves from one log directory to another, and back."""

    def __init__(self, root: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._root = root
        root.mkdir()
        self._files = SimFiles(str(root), ProcessClock(World(0)))
        self._written = 0
        self._values: list[bytes] = []
        """Those that the replica has, from offset 0 on."""
        self._promised = 0
        """The offset before which all of it is on the disk."""
        self._epoch = 0
        """The leader epoch, another one with each process."""
        self.moved = 0
        """So many moves have ended."""
        self._begin()
        self._manager.create(T0, TOPIC_ID, CONFIG, directory=str(root / "a")).flush()

    def _begin(self) -> None:
        """A process starts."""
        self._manager = LogManager([str(self._root / name) for name in "abc"], self._files, FakeClock())
        self._manager.lock()
        self._manager.claim("cluster", 1)
        self._manager.load(lambda topic: CONFIG, id_of=lambda tp: TOPIC_ID)
        self._moves = Moves(self._manager)
        self._waiting: list[Callable[[], None]] = []
        """Work in threads, and then what the loop does with its end."""
        self._group = SharedFsync(self._files, self._in_thread, lambda error: None)
        self._mark: Mark | None = None
        self._disk_knows_mark = False
        self._moved: Moved | None = None

    @property
    def _log(self) -> Log:
        return self._manager.logs[T0]

    def _in_thread(self, directory: str, work: Callable[[], None], done: OnDone) -> None:
        def run() -> None:
            work()
            done(None)

        self._waiting.append(run)

    def run(self) -> None:
        actions = [self._append] * 4 + [self._sync] * 2 + [self._work] * 6 + [self._move] * 12
        actions += [self._roll, self._flush, self._checkpoint, self._give_up]
        for _ in range(self._chance.randrange(20, 60)):
            self._chance.choice(actions)()
        self._crash()

    # -- the replica ---------------------------------------------------------------------------------------------------

    def _append(self) -> None:
        self._written += 1
        value = b"%08d" % self._written
        assert append(self._log, batch(value), self._epoch) == len(self._values)
        self._values.append(value)

    def _promise(self, end: int, error: StorageError | None) -> None:
        assert error is None
        self._promised = max(self._promised, end)

    def _sync(self) -> None:
        self._group.fsync(self._log, partial(self._promise, self._log.end_offset))

    def _flush(self) -> None:
        log = self._log
        flush = log.start_flush()
        self._in_thread(log.log_directory, flush.sync, lambda error: log.end_flush(flush))

    def _roll(self) -> None:
        if not self._log.cut_may_return:  # as an append rolls it
            self._log.roll()

    def _work(self) -> None:
        if self._waiting:
            self._waiting.pop(self._chance.randrange(len(self._waiting)))()
        self._promised = max(self._promised, self._log.flushed_until)

    def _checkpoint(self) -> None:
        for write in (*self._manager.collect_recovery_points(), *self._manager.collect_start_offsets()):
            write.write()

    # -- its move ------------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """The next step of it."""
        future = self._moves.future(T0)
        if self._moved is not None:
            self._group.fsync(self._moved.log, partial(self._put_away, self._moved))
            self._moved = None
        elif future is None:
            home = self._manager.directory_of(T0)
            free = [each for each in self._manager.live if each is not home and T0 not in each.replaced]
            if free:
                target = self._chance.choice(free)
                for _, forget in self._moves.forget_predecessors({T0: target.path}):
                    forget()
                self._moves.start(T0, target.path)
        elif not self._moves.step(T0, self._chance.choice([300, 30_000])).caught_up:
            pass
        elif self._mark is None:
            mark = self._mark = self._moves.mark_of(T0)
            mark.put()
            self._in_thread("", mark.sync, partial(self._marked, mark))
        elif self._disk_knows_mark:
            self._moved = self._moves.finish(T0)
            if self._moved is None:
                self._group.fsync(future, lambda error: None)
            else:
                self._mark, self._disk_knows_mark = None, False

    def _marked(self, mark: Mark, error: StorageError | None) -> None:
        self._disk_knows_mark = mark is self._mark

    def _put_away(self, moved: Moved, error: StorageError | None) -> None:
        self.moved += 1
        for write in moved.put_away():
            self._in_thread("", write.write, lambda error: None)

    def _give_up(self) -> None:
        if self._mark is not None:
            self._mark.take_away()
            self._mark, self._disk_knows_mark = None, False
        if self._chance.random() < 0.5:
            self._moves.cancel(T0)

    # -- crashes -------------------------------------------------------------------------------------------------------

    def _crash(self) -> None:
        for directory in self._manager.live:
            directory.release()
        if self._chance.random() < 0.3:
            self._promised = len(self._values)  # of what the kernel has a kill takes nothing
        else:
            self._files.lose_power(self._chance, self._chance.choice([0.0, 0.3, 0.7, 0.95]))
        self._begin()
        assert not self._manager.broken
        log = self._log
        whole_until = min((hole.first for _, hole in log.damage), default=log.end_offset)
        truncate_to(log, whole_until)
        found = records(log)
        assert [record.offset for record in found] == list(range(log.end_offset))
        assert [record.value for record in found] == self._values[: len(found)]
        assert len(found) >= self._promised
        self._epoch += 1
        self._values = self._values[: len(found)]
        self._promised = log.flushed_until


def survive(root: Path, seed: int, times: int) -> int:
    """How many moves ended."""
    history = History(root, seed)
    for _ in range(times):
        history.run()
    return history.moved


@pytest.mark.parametrize("seed", range(10))
def test_what_was_promised_survives_moves(tmp_path: Path, seed: int) -> None:
    assert sum(survive(tmp_path / str(number), 1000 * seed + number, 5) for number in range(5))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_what_was_promised_survives_moves_longer(tmp_path: Path, seed: int) -> None:
    assert survive(tmp_path / "disk", seed, 50)
