"""The threads for the disks are there before they are needed, or the broker does not start."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kafkad.broker.disk_threads import start_all
from kafkad.broker.identity import StartError
from tests.fakes import no_more_threads


def test_work_needs_no_new_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(4) as threads:
        start_all(threads, 4)
        no_more_threads(monkeypatch)
        side_by_side = Barrier(4)
        calls = [threads.submit(side_by_side.wait, 30) for _ in range(4)]
        assert sorted(call.result(30) for call in calls) == [0, 1, 2, 3]


def test_a_start_without_threads_says_so_and_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    no_more_threads(monkeypatch, left=2)
    with ThreadPoolExecutor(4) as threads, pytest.raises(StartError, match="TasksMax"):
        start_all(threads, 4)
