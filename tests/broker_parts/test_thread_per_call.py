"""Calls that wait for somebody else hold up nobody."""

from __future__ import annotations

import subprocess
import sys
from threading import Barrier

import pytest

from kafkad.broker.thread_per_call import ThreadPerCall
from tests.fakes import no_more_threads


def test_none_waits_for_another() -> None:
    threads, all_there = ThreadPerCall(), Barrier(20)
    calls = [threads.submit(all_there.wait, 30) for _ in range(20)]
    assert sorted(call.result(30) for call in calls) == list(range(20))


def test_what_is_raised_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        ThreadPerCall().submit(divmod, 1, 0).result(30)


def test_without_a_thread_it_is_as_if_nobody_had_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    no_more_threads(monkeypatch)
    with pytest.raises(OSError, match="can't start new thread"):
        ThreadPerCall().submit(divmod, 7, 2).result(30)


def test_the_process_ends_while_one_has_no_answer() -> None:
    program = """import threading
from kafkad.broker.thread_per_call import ThreadPerCall
ThreadPerCall().submit(threading.Event().wait)"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
