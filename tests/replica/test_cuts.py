"""Logs that were cut back: their disks are told of it a few at a time, and of none that is gone."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kafkad.errors import StorageError
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.replica.cuts import Cuts
from kafkad.replica.disk_threads import DiskThreads
from kafkad.replica.durable import Durable
from tests.fakes import FakeClock
from tests.full_disk import FullDisk
from tests.log.managers import CONFIG, append, started

TOPIC_ID = bytes(range(16))


class Place:
    def __init__(self, *directories: Path) -> None:
        self.clock = FakeClock()
        self.logs: LogManager = started(*directories, clock=self.clock)
        self.threads = ThreadPoolExecutor(8)
        self.failures: list[StorageError] = []
        self.durable = Durable(self.logs.files, DiskThreads({}, self.threads))
        self.durable.on_failure = self.failures.append
        self.cuts = Cuts(self.logs, self.durable)

    def cut(self, number: int, directory: Path | None = None) -> Log:
        where = None if directory is None else os.fspath(directory)
        log = self.logs.create(TopicPartition("t", number), TOPIC_ID, CONFIG, directory=where)
        append(log, 3)
        truncate_to(log, 1)
        return log

    async def settled(self) -> None:
        self.cuts.begin()
        while ends := [end for log in self.logs.cut if (end := self.cuts.end_of(log)) is not None]:
            await asyncio.wait(ends)

    def close(self) -> None:
        self.threads.shutdown()
        self.logs.close()


@pytest.fixture
def place(disks: tuple[Path, Path]) -> Iterator[Place]:
    place = Place(*disks)
    yield place
    place.close()


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "0", tmp_path / "1"


def test_few_fsyncs_run_at_a_time(place: Place, disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for theirs in the same threads."""
    logs = [place.cut(number, disks[0]) for number in range(10)]
    running: set[int] = set()
    most, sync = 0, place.logs.files.sync

    def slow(fd: int) -> None:
        nonlocal most
        running.add(threading.get_ident())
        most = max(most, len(running))
        sync(fd)
        running.discard(threading.get_ident())

    monkeypatch.setattr(place.logs.files, "sync", slow)
    asyncio.run(place.settled())
    assert not any(log.cut_may_return for log in logs)
    assert not place.logs.cut
    assert most <= 2


def test_a_slow_disk_keeps_no_other_waiting(
    place: Place, disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do many threads."""
    slow = [place.cut(number, disks[0]) for number in range(5)]
    other = place.cut(5, disks[1])
    is_through, sync = threading.Event(), place.logs.files.sync

    def wait(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(f"{disks[0]}/"):
            assert is_through.wait(20)
        sync(fd)

    async def scenario() -> None:
        place.cuts.begin()
        end = place.cuts.end_of(other)
        assert end is not None
        await asyncio.wait_for(end, 20)
        assert not other.cut_may_return
        assert [log for log in slow if log.cut_may_return] == slow
        is_through.set()
        await place.settled()

    monkeypatch.setattr(place.logs.files, "sync", wait)
    asyncio.run(scenario())
    assert not place.logs.cut


def test_a_log_that_is_deleted_while_others_are_waited_for_is_no_fault_of_the_disk(place: Place) -> None:
    for number in range(5):
        place.cut(number)

    async def delete_meanwhile() -> None:
        place.cuts.begin()
        for number in range(5):
            place.logs.delete(TopicPartition("t", number))
        await place.settled()

    asyncio.run(delete_meanwhile())
    assert place.failures == []
    assert not place.logs.cut


def test_a_disk_that_refuses_rests_and_keeps_no_other_waiting(
    place: Place, disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = place.cut(0, disks[0])
    append(first, 3)
    first.flush()
    for write in place.logs.collect_recovery_points():
        write.write()
    truncate_to(first, 1)
    disk = FullDisk(os.fspath(disks[0]), monkeypatch)
    asyncio.run(place.settled())
    assert ([*place.logs.cut], disk.refused, len(place.failures)) == ([first], 1, 1)
    place.clock.advance(999)
    other = place.cut(1, disks[1])
    asyncio.run(place.settled())
    assert ([*place.logs.cut], disk.refused, other.cut_may_return) == ([first], 1, False)
    place.clock.advance(1)
    disk.is_full = False
    asyncio.run(place.settled())
    assert not place.logs.cut
