"""Calls that wait for somebody else hold up nobody."""

from __future__ import annotations

import subprocess
import sys
from threading import Barrier

import pytest

from kafkad.broker.asking import Asking


def test_none_waits_for_another() -> None:
    asking, all_there = Asking(), Barrier(20)
    calls = [asking.submit(all_there.wait, 30) for _ in range(20)]
    assert sorted(call.result(30) for call in calls) == list(range(20))


def test_what_is_raised_comes_back() -> None:
    with pytest.raises(ZeroDivisionError):
        Asking().submit(divmod, 1, 0).result(30)


def test_the_process_ends_while_one_has_no_answer() -> None:
    program = "import threading; from kafkad.broker.asking import Asking; Asking().submit(threading.Event().wait)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
