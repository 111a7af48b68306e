"""The threads for the disks are there before they are needed, or the broker does not start."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier

import pytest

from kafkad.replica.disk_threads import OF_EACH, DiskThreads, NoThreads
from tests.fakes import no_more_threads


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    threads = DiskThreads.of_each(["/a", "/b"])
    yield threads
    threads.end()


def test_work_needs_no_new_thread_and_none_of_another_directory(
    threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.start()
    no_more_threads(monkeypatch)
    side_by_side = Barrier(2 * OF_EACH)
    calls = [threads.of(path).submit(side_by_side.wait, 30) for path in ("/a", "/b") for _ in range(OF_EACH)]
    assert sorted(call.result(30) for call in calls) == list(range(2 * OF_EACH))


def test_a_start_without_threads_says_so_and_leaves_none_behind(
    threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_more_threads(monkeypatch, left=OF_EACH + 2)
    with pytest.raises(NoThreads, match=r"no 8 threads.*TasksMax"):
        threads.start()
