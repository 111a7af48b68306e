from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kafkad_etl.checkpoint.locking import Holder, Lock, is_running
from kafkad_etl.errors import EtlError, EtlExit

SINCE = "2026-11-21T23:00:00Z"
_NOBODY = 2**22 + 1
"""A number that Linux gives no process."""
_HOLD = """
import sys, time
from pathlib import Path
from kafkad_etl.checkpoint.locking import Lock
with Lock(Path(sys.argv[1]), "2026-11-21T22:00:00Z"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_told_who_has_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "job.lock"
    with Lock(path, SINCE):
        running = is_running(path)
        assert running is not None and running.pid == os.getpid()
        with pytest.raises(EtlError) as refused, Lock(path, SINCE):
            pass
    assert refused.value.exit_code == EtlExit.CHECKPOINT
    assert f"process {os.getpid()} on " in refused.value.what and f"since {SINCE}" in refused.value.what
    assert is_running(path) is None


def test_a_lock_that_was_given_back_names_nobody(tmp_path: Path) -> None:
    with Lock(tmp_path / "job.lock", SINCE):
        pass
    with Lock(tmp_path / "job.lock", SINCE) as lock:
        assert lock.left is None


def test_the_lock_of_a_killed_run_is_taken_over_and_its_holder_known(tmp_path: Path) -> None:
    path = tmp_path / "job.lock"
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        process.send_signal(signal.SIGKILL)
    with Lock(path, SINCE) as lock:
        assert lock.left is not None
        assert (lock.left.pid, lock.left.since) == (process.pid, "2026-11-21T22:00:00Z")


def test_of_a_run_that_was_killed_its_spark_may_still_have_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "job.lock"
    with Lock(path, SINCE):
        path.write_bytes(msgspec.json.encode(Holder(socket.gethostname(), _NOBODY, SINCE)))
        with pytest.raises(EtlError, match=r"; it was killed, and its Spark ends after its batch$") as refused:
            Lock(path, SINCE).__enter__()
    assert refused.value.hints[1] == f"wait for it to finish; fuser -v {path} shows its processes"
    assert not Holder("elsewhere", _NOBODY, SINCE).is_gone
    assert not Holder(socket.gethostname(), 1, SINCE).is_gone


def test_who_only_looks_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    import fcntl

    path = tmp_path / "job.lock"
    path.touch()
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)

        def sleep(seconds: float) -> None:
            fcntl.flock(looking, fcntl.LOCK_UN)
            time.sleep(0)

        with Lock(path, SINCE, sleep):
            assert is_running(path) is not None


@pytest.mark.parametrize(
    ("name", "number"), [("fcntl.flock", errno.ENOLCK), ("os.pwrite", errno.ENOSPC), ("os.ftruncate", errno.EIO)]
)
def test_a_lock_that_cannot_be_had_is_told_with_its_path_and_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    path = tmp_path / "job.lock"
    with monkeypatch.context() as broken:
        broken.setattr(f"kafkad_etl.checkpoint.locking.{name}", failing(number))
        with pytest.raises(EtlError, match=rf"job\.lock: {os.strerror(number)}$") as refused:
            Lock(path, SINCE).__enter__()
        assert refused.value.exit_code == EtlExit.ENVIRONMENT
    with Lock(path, SINCE) as lock:
        assert lock.left is None


def test_a_lock_is_given_back_though_its_holder_stays_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = Lock(tmp_path / "job.lock", SINCE)
    with monkeypatch.context() as broken, lock:
        broken.setattr("kafkad_etl.checkpoint.locking.os.ftruncate", failing(errno.EIO))
    with Lock(tmp_path / "job.lock", SINCE) as next_one:
        assert next_one.left is not None


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("parent", ["a file", "a file/deeper"])
def test_a_directory_that_cannot_be_made_is_named_with_what_to_set(tmp_path: Path, parent: str) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(EtlError, match=r"a file.*: (File exists|Not a directory)") as refused:
        Lock(tmp_path / parent / "job.lock", SINCE).__enter__()
    assert refused.value.exit_code == EtlExit.ENVIRONMENT
    assert "KAFKAD_ETL_STATE" in refused.value.hints[0]
