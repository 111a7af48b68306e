"""The lock of a plan, and whom the kernel names as its holder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kctl.errors import KctlError
from kctl.partitions import plan_lock
from kctl.partitions.plan_lock import held, holder

FILE = os.stat_result((0o100644, 131, os.makedev(0xFE, 0), 1, 0, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("line", "pid"),
    [
        ("2: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF", 4711),
        ("2: -> FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF", None),
        ("2: POSIX  ADVISORY  WRITE 4711 fe:00:131 0 EOF", None),
        ("2: FLOCK  ADVISORY  WRITE 0 fe:00:131 0 EOF", None),
        ("2: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF", None),
    ],
)
def test_who_holds_a_file(line: str, pid: int | None) -> None:
    assert holder(["1: FLOCK  ADVISORY  WRITE 1 fe:00:13 0 EOF", line], FILE) == pid


@pytest.mark.parametrize(("pid", "who"), [(4711, "another kctl, process 4711, is"), (None, "another kctl is")])
def test_whoever_comes_second_is_told_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pid: int | None, who: str
) -> None:
    plan = tmp_path / "plan.json"
    plan.touch(0o444)
    monkeypatch.setattr(plan_lock, "_holder_of", lambda fd: pid)
    with held(str(plan)), pytest.raises(KctlError) as error, held(str(plan)):
        pass
    assert error.value.what == f"{who} at work on {plan}"
    assert (f"kill {pid}" if pid else "Ctrl-C") in error.value.hints[0]


def test_a_pipe_is_not_shared(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("pipe", "not-there"):
        with held(str(tmp_path / path)), held(str(tmp_path / path)):
            pass
