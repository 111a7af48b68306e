"""Of a file that is written while it is read again, only what has stayed the same for a moment is taken."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

import pytest

from kafkad.config import Config, ConfigError, load
from kafkad.config.reloading import settled

HALF, WHOLE = ConfigError("it ends too soon"), ConfigError("nobody knows message.max.byte")


def readings(tmp_path: Path, says: Iterable[int | ConfigError], file: str | None = "kafkad.yaml") -> Config:
    """What is taken of a file that says these `message.max.bytes`, one after the other."""
    left = iter(says)

    def read() -> Config:
        now = next(left)
        if isinstance(now, ConfigError):
            raise ConfigError(*now.problems)
        return load(None, [f"log.dirs={tmp_path}", f"message.max.bytes={now}"], {})

    return taken(read, file)


def taken(read: Callable[[], Config], file: str | None) -> Config:
    async def sleep(ms: float) -> None:
        assert ms > 0

    return asyncio.run(settled(read, file, sleep))


@pytest.mark.parametrize("says", [(1, 1), (1, 2, 1, 3, 3), (HALF, 3, 3), (1, HALF, 1, HALF, 3, 3)])
def test_two_readings_in_a_row_say_what_is_taken(tmp_path: Path, says: tuple[int | ConfigError, ...]) -> None:
    assert readings(tmp_path, says).int("message.max.bytes") == says[-1]


@pytest.mark.parametrize("says", [(WHOLE, WHOLE), (1, HALF, WHOLE, WHOLE), (HALF, 1, WHOLE, WHOLE)])
def test_two_readings_in_a_row_say_what_is_wrong(tmp_path: Path, says: tuple[int | ConfigError, ...]) -> None:
    with pytest.raises(ConfigError, match=r"nobody knows message\.max\.byte"):
        readings(tmp_path, says)


def test_a_file_that_changes_all_the_time_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"kafkad\.yaml changes all the time; send SIGHUP again once it does not"):
        readings(tmp_path, count(1))


def test_without_a_file_one_reading_is_enough(tmp_path: Path) -> None:
    assert readings(tmp_path, [7], file=None).int("message.max.bytes") == 7


@pytest.mark.parametrize("was_file", [False, True])
def test_a_pipe_is_not_read_again(tmp_path: Path, was_file: bool) -> None:
    """Nobody may write to it any more, and the broker would wait for that. Also where it takes the place of a file
    between two readings."""
    path = tmp_path / "kafkad.yaml"
    if was_file:
        path.write_text("num.partitions: 3\n")
    else:
        os.mkfifo(path)
    read = []

    def load_again() -> Config:
        read.append(load(str(path), [], {}, again=True))
        path.unlink()
        os.mkfifo(path)
        return read[-1]

    with pytest.raises(
        ConfigError, match="is no regular file, and cannot be read again; to change what it said, restart"
    ):
        taken(load_again, str(path))
    assert len(read) == was_file
