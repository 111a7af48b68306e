"""Moves of a replica between two log directories of a test, a and b."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kafkad.errors import StorageError
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.marks import Mark
from kafkad.log.move import Moved, Moves
from tests.log.conftest import append, batch
from tests.log.managers import CONFIG, T0, TOPIC_ID, started


def opened(tmp_path: Path, names: str = "ab", files: Files | None = None) -> LogManager:
    """A manager of those of the directories a and b that are named by their letters."""
    return started(*(tmp_path / name for name in names), files=files)


def filled(manager: LogManager, tmp_path: Path, count: int = 30) -> Log:
    log = manager.create(T0, TOPIC_ID, CONFIG, directory=str(tmp_path / "a"))
    for n in range(count):
        append(log, batch(b"%d" % n + bytes(200)), epoch=n // 10)
    return log


def ready(tmp_path: Path, count: int = 30, *, files: Files | None = None) -> tuple[LogManager, Log, Moves]:
    """A replica with so many records, and a move of it whose copy has them all."""
    manager = opened(tmp_path, files=files)
    log = filled(manager, tmp_path, count)
    return manager, log, copied(manager, tmp_path)


class BadDisk:
    """A log directory for whose names one operation fails until `is_bad` is taken back."""

    def __init__(self, path: Path, operation: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_bad = True
        done = getattr(Files, operation)

        def tried(*arguments: Any) -> Any:
            names = [str(name) for name in arguments if isinstance(name, str)]
            if self.is_bad and str(path) in (names[-1], os.path.dirname(names[-1])):
                raise OSError(code, os.strerror(code))
            return done(*arguments)

        monkeypatch.setattr(Files, operation, staticmethod(tried))


def copy_all(moves: Moves) -> None:
    while not moves.step(T0, 1000).caught_up:
        pass


def copied(manager: LogManager, tmp_path: Path) -> Moves:
    """A move to the other directory whose copy has all that there is."""
    moves = Moves(manager)
    moves.start(T0, str(tmp_path / "b"))
    copy_all(moves)
    return moves


def future_of(moves: Moves) -> Log:
    future = moves.future(T0)
    assert future is not None
    return future


def marked(moves: Moves) -> Mark:
    """Of the replica, whose disk knows."""
    mark = moves.mark_of(T0)
    try:
        mark.put()
        mark.sync()
    except StorageError:
        mark.take_away()
        raise
    return mark


def exchanged(moves: Moves) -> Moved | None:
    """Whether the copy has taken the replica's place, with all that is to be on the disks before."""
    mark, moved = marked(moves), None
    future_of(moves).flush()
    try:
        moved = moves.finish(T0)
    finally:
        if moved is None:
            mark.take_away()
    return moved


def finished(moves: Moves) -> Log | None:
    moved = exchanged(moves)
    if moved is None:
        return None
    moved.log.flush()
    for write in moved.put_away():
        write.write()
    return moved.log


def partition_names(path: Path) -> list[str]:
    return [name for name in os.listdir(path) if name.startswith("t-0")]
