"""A cut of a log on a disk that fails, and what a power cut leaves of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafkad.errors import StorageError
from kafkad.log.epochs import FILE_NAME
from kafkad.log.files import may_pass
from kafkad.log.truncation import truncate_to
from kafkad.wire.records import MAGIC_AT, iter_batches
from tests.log.conftest import Home, append, batch, fill, records


@pytest.mark.parametrize("left", [0, 100, 5_000])
def test_a_log_does_not_reach_to_the_names_of_segments_whose_content_a_power_cut_took(home: Home, left: int) -> None:
    """The file system had written out the names, and little or nothing of what was in the files."""
    log = home.open()
    for _ in range(200):
        append(log, batch())
    before = [segment.base for segment in log.segments]
    log.close(clean=False)
    middle, *behind = [home.directory / f"{base:020d}.log" for base in before[1:]]
    whole = middle.read_bytes()
    middle.write_bytes((whole + bytes(10_000))[:left])
    for path in behind:
        path.write_bytes(b"")
    log = home.open(clean=False, recovery_point=0)
    sound = whole[:left]
    fitting = [header for at, header in iter_batches(memoryview(whole)) if at + header.size <= len(sound)]
    assert log.end_offset == (fitting[-1].last_offset + 1 if fitting else before[1])
    append(log, batch(b"next"))
    assert [record.offset for record in records(log)] == list(range(log.end_offset))


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_a_file_of_leader_epochs_that_a_power_cut_left_in_part_is_not_believed(home: Home, lost: int) -> None:
    """With the last digit of the last line missing it would be a whole one of another history."""
    log = home.open()
    for epoch, count in ((0, 5), (1, 10), (2, 1)):
        for _ in range(count):
            append(log, batch(), epoch)
    epochs = log.epochs.entries
    log.close(clean=False)
    path = home.directory / FILE_NAME
    path.write_bytes(path.read_bytes()[:-lost])
    assert home.open(clean=False).epochs.entries == epochs == [(0, 0), (1, 5), (2, 15)]


def test_what_was_cut_away_and_came_back_with_a_power_cut_goes_again(home: Home) -> None:
    """A whole segment begins where the log had been cut, so that nothing is missing in the one before it."""
    log = home.open()
    for _ in range(10):
        append(log, batch(b"old"))
    path = home.directory / f"{0:020d}.log"
    old = path.read_bytes()
    truncate_to(log, 5)
    log.roll()
    append(log, batch(b"new"), epoch=1)
    log.close(clean=False)
    path.write_bytes(old)
    log = home.open(clean=False, recovery_point=0)
    assert [damage for damage in log.found if not damage.was_cut] == []
    assert [record.value for record in records(log)] == [b"old"] * 5 + [b"new"]


def test_the_name_of_a_segment_that_was_cut_away_does_not_begin_one_in_the_middle_of_another(home: Home) -> None:
    log = home.open()
    for _ in range(5):
        append(log, batch(b"old"))
    log.roll()
    append(log, batch(b"old"))
    truncate_to(log, 2)
    for _ in range(8):
        append(log, batch(b"new"), epoch=1)
    log.close(clean=False)
    for suffix in (".log", ".index", ".timeindex"):
        (home.directory / f"{5:020d}{suffix}").touch()
    log = home.open(clean=False, recovery_point=0)
    assert [segment.base for segment in log.segments] == [0]
    assert [record.value for record in records(log)] == [b"old"] * 2 + [b"new"] * 8


def test_a_flush_after_a_cut_covers_the_cut_and_the_names_of_what_went(home: Home) -> None:
    log = home.open()
    for _ in range(5):
        append(log, batch())
    log.roll()
    append(log, batch())
    log.flush()
    truncate_to(log, 3)
    log.roll()
    assert log.durability.recovery_point == 2
    append(log, batch(), epoch=1)
    home.files.synced.clear()
    log.flush()
    synced = {os.path.relpath(path, home.directory) for path in home.files.synced}
    assert {f"{0:020d}.log", f"{3:020d}.log", "."} <= synced
    assert log.durability.recovery_point == 4


@pytest.mark.parametrize("target", [0, 17])
@pytest.mark.parametrize(("operation", "code"), [("open", errno.EMFILE), ("create", errno.ENOSPC)])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 7])
@pytest.mark.parametrize("fully", [True, False])
def test_a_truncation_that_lacks_room_or_open_files_is_done_whole_or_not_begun(
    home: Home, operation: str, code: int, target: int, after: int, fully: bool
) -> None:
    log = home.open()
    for sequence in range(40):
        append(log, batch(b"." * 250, producer_id=5, producer_epoch=0, base_sequence=sequence))
    files = home.names()
    log.let_go_of_files()
    home.files.fail(operation, code, after=after, once=False)
    try:
        if fully:
            log.truncate_fully_at(target)
        else:
            truncate_to(log, target)
    except StorageError as error:
        assert may_pass(error)
        assert {name for name in home.names() if not name.endswith(".snapshot")} <= files
        end, start = 40, 0
    else:
        end, start = target, target if fully else 0
    home.files.heal()
    assert log.end_offset == end
    known = end == 40 or (end > 0 and not fully)
    assert append(log, batch(b"new", producer_id=5, producer_epoch=0, base_sequence=end if known else 0)) == end
    log = home.reopen(clean=after % 2 == 0)
    assert [record.offset for record in records(log)] == list(range(start, end + 1))


@pytest.mark.parametrize("rotten", [0, 10])
def test_a_truncation_is_done_whole_although_batches_that_stay_have_become_unreadable(home: Home, rotten: int) -> None:
    """They are read for the largest timestamp that is left."""
    home.expect_problems = True
    log = home.open(index_interval_bytes=200, segment_bytes=1 << 20)
    for timestamp in (5000, *[1000] * 38, 6000):
        append(log, batch(b"." * 200, timestamp=timestamp))
    segment = log.segments[-1]
    with Path(segment.path(".log")).open("r+b") as file:
        file.seek(segment.locate(rotten) + MAGIC_AT)
        file.write(b"\x7f")
    truncate_to(log, 39)
    assert (log.end_offset, log.history) == (39, 1)
    assert os.path.getsize(segment.path(".log")) == log.size
    assert (segment.max_timestamp, segment.newest_timestamp_offset) == (5000, 0)
    truncate_to(log, 30)
    assert append(log, batch(b"new")) == 30


@pytest.mark.parametrize("renamed", range(6))
@pytest.mark.parametrize("fully", [True, False])
def test_a_truncation_that_the_disk_breaks_off_is_final_and_leaves_a_log_without_gaps(
    home: Home, renamed: int, fully: bool
) -> None:
    log = home.open()
    fill(log, 40)
    ends = {*(segment.base for segment in log.segments), 40}
    home.files.fail("rename", errno.ENOSPC, after=renamed)
    with pytest.raises(StorageError) as refused:
        if fully:
            log.truncate_fully_at(100)
        else:
            truncate_to(log, 3)
    assert not may_pass(refused.value)
    log.close(clean=False)
    log = home.open(clean=False, recovery_point=0, start_offset=0)
    assert not log.damage
    assert [record.offset for record in records(log)] == list(range(log.end_offset))
    assert log.end_offset in ends
