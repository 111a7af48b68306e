"""A hole that damage has left in a segment, filled with the bytes of another replica."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from kafkad.errors import StorageError
from kafkad.log.files import may_pass
from kafkad.log.indexed import Hole
from kafkad.log.log import Log
from kafkad.log.mending import Mending, verify_batch
from kafkad.log.segment import Segment
from kafkad.log.truncation import truncate_to
from kafkad.turns import at_once
from tests.log.conftest import Home, append, batch, fill, flip_a_bit, path_of, records
from tests.log.consistency import check


def mend(log: Log, segment: Segment, hole: Hole, records: bytes) -> bool | None:
    mending = Mending(log, segment, hole, records)
    at_once(mending.write())
    mending.sync()
    return at_once(mending.serve())


def damaged_in_its_middle(home: Home, count: int) -> tuple[Log, bytes]:
    """A log with one segment, a few batches of which are damaged; that file as it was."""
    log = home.open(segment_bytes=1 << 22, index_interval_bytes=500)
    fill(log, count)
    whole = path_of(log, ".log").read_bytes()
    flip_a_bit(log, 4)
    verify_batch(log, 4)
    return log, whole


def test_a_hole_is_filled_in_pieces_while_records_come(home: Home) -> None:
    log, whole = damaged_in_its_middle(home, 2_500)
    [(segment, hole)] = log.damage
    mending = Mending(log, segment, hole, whole[hole.start : hole.end])
    at_once(mending.write())
    mending.sync()
    serving = mending.serve()
    count = 0
    with suppress(StopIteration):
        while True:
            next(serving)
            count += 1
            fill(log, 1)
    assert count >= 3
    assert not log.is_damaged
    fill(log, 20)
    assert [record.offset for record in records(log, 0)] == list(range(2_520 + count))
    log.close()
    assert check(str(home.directory)) == []


def test_a_hole_of_a_log_that_is_cut_back_meanwhile_is_filled_no_further(home: Home) -> None:
    log, whole = damaged_in_its_middle(home, 20)
    [(segment, hole)] = log.damage
    first, second = (Mending(log, segment, hole, whole[hole.start : hole.end]) for _ in range(2))
    at_once(first.write())
    first.sync()
    truncate_to(log, 4)
    fill(log, 20)
    after = path_of(log, ".log").read_bytes()
    at_once(second.write())
    assert at_once(first.serve()) is None
    assert path_of(log, ".log").read_bytes() == after
    assert [record.offset for record in records(log, 0)] == list(range(24))


@pytest.mark.parametrize("transactional", [False, True])
def test_a_hole_is_filled_with_the_bytes_of_another_replica(home: Home, transactional: bool) -> None:
    log = home.open()
    for sequence in range(60):
        kind = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if transactional else {}
        append(log, batch(b"x" * 200, transactional=transactional, **kind))
    second = log.segments[1]
    path, position = second.path(".log"), second.locate(second.base + 3)
    log.close(clean=False)
    with open(path, "r+b") as file:
        whole = file.read()
        file.seek(position + 80)
        file.write(b"!!")
    log = home.open(clean=False)
    [(segment, hole)] = log.damage
    assert mend(log, segment, hole, whole[hole.start : hole.end]) is not transactional
    with open(path, "rb") as file:
        assert file.read() == whole
    assert log.is_damaged is transactional
    if transactional:
        log.close(clean=False)
        log = home.open(clean=False)
    assert not log.is_damaged
    assert [record.offset for record in records(log, 0)] == list(range(60))


def test_a_hole_is_filled_in_the_segment_that_is_written_to(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20, index_interval_bytes=500)
    fill(log, 20)
    whole = path_of(log, ".log").read_bytes()
    with path_of(log, ".log").open("r+b") as file:
        file.seek(log.segments[0].locate(4) + 100)
        file.write(b"!!")
    verify_batch(log, 4)
    [(segment, hole)] = log.damage
    assert mend(log, segment, hole, whole[hole.start : hole.end])
    fill(log, 20)
    assert [record.offset for record in records(log, 0)] == list(range(40))
    log.close()


def test_a_read_error_behind_a_hole_that_was_filled_is_one_of_the_log_directory(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20, index_interval_bytes=500)
    fill(log, 20)
    whole = path_of(log, ".log").read_bytes()
    flip_a_bit(log, 4)
    verify_batch(log, 4)
    [(segment, hole)] = log.damage
    home.files.fail("pread")
    with pytest.raises(StorageError):
        mend(log, segment, hole, whole[hole.start : hole.end])


def test_an_fsync_of_a_mended_segment_that_finds_no_room_is_final(home: Home) -> None:
    """Records that others wait for are lost with it."""
    log, whole = damaged_in_its_middle(home, 20)
    [(segment, hole)] = log.damage
    mending = Mending(log, segment, hole, whole[hole.start : hole.end])
    at_once(mending.write())
    home.files.fail("sync", errno.ENOSPC)
    with pytest.raises(StorageError) as failed:
        mending.sync()
    assert not may_pass(failed.value)
