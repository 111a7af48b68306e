"""What a checkpoint says of partitions that are made anew, whenever it was collected and while it is written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.log import checkpoint
from kafkad.log.checkpoint_file import CheckpointFile
from kafkad.log.files import Files
from kafkad.names import TopicPartition
from tests.fakes import FaultyFiles

ANEW, STAYS = TopicPartition("t", 0), TopicPartition("u", 0)


class SlowFiles(Files):
    """Does something while a write of the disk is under way."""

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], None]] = []

    def write_file(self, path: str, data: bytes, *, durable: bool = True) -> None:
        while self.meanwhile:
            self.meanwhile.pop()()
        super().write_file(path, data, durable=durable)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / checkpoint.HIGH_WATERMARKS)


def on_disk(path: str) -> dict[TopicPartition, int]:
    return checkpoint.read_offsets(path, Files())


def test_what_waits_to_be_written_loses_what_it_says_of_a_predecessor(path: str) -> None:
    """Nobody waits for a disk: the file says nothing of it."""
    file = CheckpointFile(path, Files())
    versions = file.collect(), file.collect()
    assert not file.forget({ANEW})
    anew = file.collect()
    for version in versions:
        file.write({ANEW: 100, STAYS: 7}, version)
        assert on_disk(path) == {STAYS: 7}
    file.write({ANEW: 1, STAYS: 7}, anew)
    assert file.offsets == on_disk(path) == {ANEW: 1, STAYS: 7}


def test_what_is_being_written_of_a_predecessor_is_written_anew(path: str) -> None:
    files = SlowFiles()
    file = CheckpointFile(path, files)
    told: list[bool] = []
    version = file.collect()
    files.meanwhile.append(lambda: told.append(file.forget({ANEW})))
    file.write({ANEW: 100, STAYS: 7}, version)
    file.rewrite_without({ANEW})
    assert told == [True]
    assert on_disk(path) == {STAYS: 7}
    assert not file.forget({ANEW})


def test_a_partition_that_is_not_in_what_is_being_written_waits_for_no_disk(path: str) -> None:
    files = SlowFiles()
    file = CheckpointFile(path, files)
    early = file.collect()
    told: list[bool] = []

    def make_anew() -> None:
        told.append(file.forget({ANEW}))
        file.rewrite_without({ANEW})

    files.meanwhile.append(make_anew)
    file.write({STAYS: 7}, file.collect())
    assert told == [False]
    file.write({ANEW: 100, STAYS: 5}, early)
    assert on_disk(path) == {STAYS: 7}


def test_a_write_that_has_no_room_is_tried_again_without_the_predecessor(path: str) -> None:
    files = FaultyFiles()
    file = CheckpointFile(path, files)
    version = file.collect()
    files.fail("pwrite", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        file.write({ANEW: 100, STAYS: 7}, version)
    assert not file.forget({ANEW})
    file.write({ANEW: 100, STAYS: 7}, version)
    assert on_disk(path) == {STAYS: 7}


def test_a_rewrite_does_not_overtake_what_was_collected_before(path: str) -> None:
    """Of the damage, for example, which has to be on the disk before recovery points that are past it."""
    file = CheckpointFile(path, Files())
    file.write({ANEW: 100, STAYS: 7}, file.collect())
    later = file.collect()
    assert file.forget({ANEW})
    file.rewrite_without({ANEW})
    assert on_disk(path) == {STAYS: 7}
    assert file.is_about_to_be_written
    file.write({STAYS: 8}, later)
    assert on_disk(path) == {STAYS: 8}


def test_partitions_are_remembered_no_longer_than_a_write_may_name_their_predecessors(path: str) -> None:
    file = CheckpointFile(path, Files())
    version = file.collect()
    file.forget({ANEW, STAYS})
    file.write({}, version)
    file.forget({ANEW, STAYS})
    assert not file._forgotten
