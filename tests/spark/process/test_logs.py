from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

import pytest

from kafkad_etl.errors import EtlError, EtlExit
from kafkad_etl.process.logs import Log, log_of
from tests.spark.jobs import job


@pytest.mark.parametrize("made", ["state", "state/logs/orders-to-lake.log/x"])
def test_a_log_that_cannot_be_written_is_told_with_what_to_set(tmp_path: Path, made: str) -> None:
    """A file stands where a directory has to be, and then the other way round."""
    (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / made).touch()
    with pytest.raises(EtlError, match=r": (Not a directory|Is a directory)$") as refused:
        log_of(job(), {"KAFKAD_ETL_STATE": str(tmp_path / "state")}).open()
    assert refused.value.exit_code == EtlExit.ENVIRONMENT
    assert "KAFKAD_ETL_STATE" in refused.value.hints[0]


def test_a_full_disk_is_told_with_the_path_of_the_log(tmp_path: Path) -> None:
    log = Log(tmp_path / "try.log")
    log.path.symlink_to("/dev/full")
    with pytest.raises(EtlError, match=r"/try\.log: No space left on device$"):
        log.add("anything")


def test_a_log_that_grows_during_a_run_makes_room_for_who_has_it_open(tmp_path: Path) -> None:
    log = Log(tmp_path / "try.log")
    aside = tmp_path / "try.log.1"
    with log.open() as spark:
        spark.write(b"small\n")
        spark.flush()
        log.make_room()
        assert not aside.exists()
        spark.write(b"x" * (10 << 20))
        spark.flush()
        log.make_room()
        assert (log.path.stat().st_size, aside.stat().st_size) == (0, (10 << 20) + 6)
        spark.write(b"later\n")
    assert log.path.read_bytes() == b"later\n"
    assert log.last_lines(3) == ["later"]
    assert aside.stat().st_mode & 0o7 == 0


def test_a_log_that_cannot_be_copied_stays_as_it_is(tmp_path: Path) -> None:
    log = Log(tmp_path / "try.log")
    log.add("x" * (10 << 20))
    (tmp_path / "try.log.1").symlink_to("/dev/full")
    log.make_room()
    assert log.path.stat().st_size == (10 << 20) + 1


def test_a_copy_that_has_no_room_does_not_take_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path / "try.log")
    log.add("x" * (10 << 20))

    def copied(_: BinaryIO, aside: BinaryIO) -> None:
        aside.write(b"the last blocks")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", copied)
    log.make_room()
    assert (tmp_path / "try.log.1").read_bytes() == b""
    assert log.path.stat().st_size == (10 << 20) + 1


def test_a_log_that_was_missing_for_a_while_makes_room_at_the_same_size(tmp_path: Path) -> None:
    log = Log(tmp_path / "try.log")
    log.make_room()
    log.add("x" * (10 << 20))
    log.make_room()
    assert log.path.stat().st_size == 0


def test_strangers_cannot_read_it(tmp_path: Path) -> None:
    log = Log(tmp_path / "try.log")
    log.add("anything")
    assert log.path.stat().st_mode & 0o7 == 0
    log.path.chmod(0o644)
    assert Log(log.path).path.stat().st_mode & 0o777 == 0o640
