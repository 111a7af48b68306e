"""Copies that no move goes on with: beside their replica, or of an earlier one."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from kafkad.log.move import Moves
from kafkad.names import TopicPartition
from tests.log.conftest import append, batch, records
from tests.log.managers import CONFIG, T0, TOPIC_ID, forget_predecessors
from tests.log.moving import BadDisk, copied, filled, opened, partition_names, ready


def test_a_replica_that_is_made_where_its_copy_was_growing_gives_that_up(tmp_path: Path) -> None:
    """The disk that it was moved away from has died and is named in `log.dirs` no more."""
    manager, _, _ = ready(tmp_path)
    manager.close()
    manager = opened(tmp_path, "b")
    forget_predecessors(manager, T0)
    append(manager.create(T0, TOPIC_ID, CONFIG, is_new=False), batch(b"anew"), epoch=9)
    moves = Moves(manager)
    assert moves.future(T0) is None
    moves.start(T0, str(tmp_path / "b"))
    assert moves.future(T0) is None
    assert sorted(name.endswith("-delete") for name in partition_names(tmp_path / "b")) == [False, True]
    manager.close()


def test_a_copy_beside_its_replica_is_put_away_at_the_start(tmp_path: Path) -> None:
    manager = opened(tmp_path)
    before = records(filled(manager, tmp_path))
    copied(manager, tmp_path)
    manager.close()
    shutil.move(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    manager = opened(tmp_path)
    assert Moves(manager).future(T0) is None
    assert manager.live == manager.directories
    assert records(manager.logs[T0]) == before
    assert sorted(name.endswith("-delete") for name in partition_names(tmp_path / "b")) == [False, True]
    manager.close()


def test_a_copy_beside_its_replica_that_cannot_be_put_away_is_no_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _, _ = ready(tmp_path)
    manager.close()
    shutil.move(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    BadDisk(tmp_path / "b", "rename", errno.ENOSPC, monkeypatch)
    manager = opened(tmp_path)
    assert Moves(manager).future(T0) is not None
    assert Moves(manager).under_way(manager.directories[1]) == []
    assert manager.live == manager.directories


def test_a_disk_that_fails_when_a_copy_beside_its_replica_is_put_away_ends_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, _, _ = ready(tmp_path)
    for topic in "su":
        manager.create(TopicPartition(topic, 0), bytes(15) + topic.encode(), CONFIG, directory=str(tmp_path / "b"))
    manager.close()
    shutil.move(tmp_path / "a" / "t-0", tmp_path / "b" / "t-0")
    BadDisk(tmp_path / "b", "rename", errno.EIO, monkeypatch)
    manager = opened(tmp_path)
    assert [directory.path for directory in manager.live] == [str(tmp_path / "a")]
    assert manager.get(T0) is None


def test_a_copy_of_an_earlier_topic_of_that_name_is_put_away(tmp_path: Path) -> None:
    """The topic was deleted while the directory of the copy was away."""
    manager, _, _ = ready(tmp_path)
    manager.close()
    manager = opened(tmp_path, "a")
    manager.delete(T0)
    forget_predecessors(manager, T0)
    manager.create(T0, bytes(16 * [7]), CONFIG)
    manager.close()
    manager = opened(tmp_path)
    assert Moves(manager).under_way(manager.directories[1]) == []
    assert [name.endswith("-delete") for name in partition_names(tmp_path / "b")] == [True]
    manager.close()
