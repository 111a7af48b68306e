"""A disk that fails, a process that dies, bits that flip: what is left is a log, and nobody is lied to."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.deletion import delete_old_segments, outlives_retention
from kafkad.log.files import LogFile, may_pass
from kafkad.log.mending import verify_batch
from kafkad.log.time_search import offset_for_timestamp
from tests.log.conftest import Home, append, batch, fill, flip_a_bit, path_of, records, searched
from tests.log.consistency import check


@pytest.mark.parametrize("fault", ["error", "torn", "short"])
@pytest.mark.parametrize("before", [0, 3])
def test_nothing_of_a_failed_append_stays(home: Home, fault: str, before: int) -> None:
    log = home.open()
    fill(log, before)
    size = log.size
    if fault == "error":
        home.files.fail("pwrite", errno.ENOSPC, once=False)
    elif fault == "torn":
        home.files.tear_next_write(70)
    else:
        home.files.shorten_next_write(70)
    with pytest.raises(StorageError) as failed:
        fill(log, 1)
    home.files.heal()
    assert failed.value.directory == str(home.directory.parent)
    assert (log.end_offset, log.size, os.path.getsize(path_of(log, ".log"))) == (before, size, size)
    fill(log, 20)
    assert [record.offset for record in records(log)] == list(range(before + 20))


def test_no_append_before_a_torn_one_is_cleared_away(home: Home) -> None:
    log = home.open()
    fill(log, 2)
    size = log.size
    home.files.tear_next_write(70)
    home.files.fail("truncate", once=False)
    for _ in range(3):
        with pytest.raises(StorageError):
            fill(log, 1)
    assert os.path.getsize(path_of(log, ".log")) == size + 70
    home.files.heal()
    fill(log, 1)
    assert len(records(log)) == 3


def test_no_segment_is_completed_before_a_torn_write_is_cleared_away(home: Home) -> None:
    log = home.open()
    fill(log, 2)
    home.files.shorten_next_write(70)
    home.files.fail("truncate", errno.ENOSPC, once=False)
    with pytest.raises(StorageError):
        fill(log, 1)
    for attempt in (log.roll, log.close):
        with pytest.raises(StorageError):
            attempt()
    home.files.heal()
    log.roll()
    assert [os.path.getsize(segment.path(".log")) for segment in log.segments] == [s.size for s in log.segments]
    log = home.reopen()
    fill(log, 2)
    assert (len(records(log)), log.found) == (4, [])


def test_a_torn_write_that_a_bad_disk_keeps_costs_the_directory(home: Home) -> None:
    log = home.open()
    home.files.shorten_next_write(70)
    home.files.fail("truncate", errno.EIO)
    with pytest.raises(StorageError) as failed:
        fill(log, 1)
    assert not may_pass(failed.value)


def test_a_copied_run_that_fails_is_taken_back(home: Home) -> None:
    log = home.open()
    log.append_copied(memoryview(_copied(0, 1, 2)))
    home.files.synced.clear()
    home.files.tear_next_write(100)
    with pytest.raises(StorageError):
        log.append_copied(memoryview(_copied(3, 4, 5)))
    assert home.files.synced == []
    log.append_copied(memoryview(_copied(3, 4, 5)))
    assert [record.offset for record in records(log)] == list(range(6))
    assert home.files.synced == [str(path_of(log, ".log")), log.directory]  # whole batches may come back otherwise


def test_a_copied_run_that_fails_on_a_disk_that_says_nothing_any_more_costs_the_directory(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: LogFile | str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    log = home.open()
    home.files.fail("pwrite", errno.EIO)
    with monkeypatch.context() as disk, pytest.raises(StorageError) as failed:
        disk.setattr(LogFile, "size", property(refuse))
        disk.setattr(home.files, "size", refuse)
        log.append_copied(memoryview(_copied(0, 1, 2)))
    assert not may_pass(failed.value)


def test_a_read_without_a_file_descriptor_is_refused_as_one_of_the_disk(home: Home) -> None:
    log = home.open()
    fill(log, 2)
    log.segments.active.give_up_files()
    for offset in range(2):
        home.files.fail("open", errno.EMFILE)
        with pytest.raises(StorageError) as failed:
            log.read(offset, 1 << 20, log.end_offset)
        assert may_pass(failed.value)
    assert len(records(log)) == 2


def _copied(*offsets: int) -> bytearray:
    run = bytearray()
    for offset in offsets:
        data = batch(b"c%d" % offset)
        data[:8] = offset.to_bytes(8, "big")
        run += data
    return run


def test_the_recovery_point_stays_where_a_sync_failed(home: Home) -> None:
    log = home.open()
    fill(log, 5)
    home.files.fail("sync")
    with pytest.raises(StorageError) as failed:
        log.flush()
    assert failed.value.directory == str(home.directory.parent)
    assert log.durability.recovery_point == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_every_fsync_of_a_flush_that_finds_no_room_is_final(home: Home, code: int) -> None:
    """The kernel has dropped what it could not write, also of an index or of names: the next one would pass."""
    log = home.open()
    fill(log, 1)
    syncs = 6  # of the segment, two indexes, the epochs, the names in the directory, and its own
    for number in range(syncs):
        home.files.fail("sync", code, after=number)
        with pytest.raises(StorageError, match="is lost") as failed:
            log.flush()
        assert not may_pass(failed.value)
        assert log.durability.recovery_point == 0
    home.files.count.clear()
    log.flush()
    assert home.files.count["sync"] == syncs


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_failed_flush_has_left_out_is_left_to_the_next(home: Home, whole: bool) -> None:
    """Too many open files are no reason to take the directory offline."""
    log = home.open()
    fill(log, 1)
    home.files.fail("open", errno.EMFILE)
    with pytest.raises(StorageError):
        if whole:
            log.flush()
        else:
            log.start_flush().sync()
    assert log.durability.recovery_point == 0
    home.files.synced.clear()
    log.flush()
    assert {log.directory, log.epochs.path} <= set(home.files.synced)
    assert log.durability.recovery_point == 1


def test_a_flush_syncs_every_segment_since_the_recovery_point_and_the_names(home: Home) -> None:
    log = home.open()
    fill(log, 40)
    home.files.synced.clear()
    log.flush()
    synced = set(home.files.synced)
    assert {str(path_of(log, ".log", number)) for number in range(len(log.segments))} <= synced
    assert {str(home.directory), log.epochs.path} <= synced
    home.files.synced.clear()
    fill(log, 1)
    log.flush()
    logs = [path for path in home.files.synced if path.endswith(".log")]
    assert logs == [str(path_of(log, ".log"))]
    assert str(home.directory) not in home.files.synced


def test_a_failing_disk_is_reported_by_every_way_in(home: Home) -> None:
    log = home.open()
    fill(log, 40)
    log = home.reopen()
    home.files.fail("open", once=False)
    for attempt in (
        lambda: log.read(0, 100, 40),
        lambda: log.roll(),
        lambda: searched(offset_for_timestamp(log, 5)),
        lambda: fill(log, 1),
    ):
        with pytest.raises(StorageError):
            attempt()


@pytest.mark.parametrize("kept", [0, 1, 16, 17, 60, 61, 100, 260])
def test_a_torn_tail_is_cut_off(home: Home, kept: int) -> None:
    log = home.open()
    fill(log, 30)
    log.close(clean=False)
    path = path_of(log, ".log")
    with path.open("ab") as file:
        file.write(batch(b"." * 300)[:kept])
    log = home.open(clean=False)
    assert len(records(log)) == log.end_offset == 30
    assert path.stat().st_size == log.segments[-1].size
    home.files.synced.clear()
    for _ in range(2):
        fill(log, 1)
        assert home.files.synced == ([str(path), log.directory] if kept else [])  # before anything is written over it


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 700, bytes(16) + b"\x02" + bytes(80)])
def test_a_tail_of_rubbish_is_cut_off(home: Home, tail: bytes) -> None:
    log = home.open()
    fill(log, 30)
    log.close(clean=False)
    with path_of(log, ".log").open("ab") as file:
        file.write(tail)
    assert home.open(clean=False).end_offset == 30
    fill(home.log or log, 5)


def test_an_old_batch_after_the_end_does_not_come_back(home: Home) -> None:
    """Blocks of a file that was truncated and written again may hold what they held before."""
    log = home.open()
    fill(log, 4)
    log.close(clean=False)
    data = path_of(log, ".log").read_bytes()
    with path_of(log, ".log").open("ab") as file:
        file.write(data)
    assert home.open(clean=False).end_offset == 4


def test_a_clean_mark_is_not_believed_when_the_log_says_otherwise(home: Home) -> None:
    log = home.open()
    fill(log, 10)
    log.close()
    with path_of(log, ".log").open("ab") as file:
        file.write(b"rubbish")
    assert home.open(clean=True).end_offset == 10
    assert path_of(log, ".log").stat().st_size == log.size


def test_losing_what_was_on_the_disk_is_damage(home: Home) -> None:
    log = home.open()
    fill(log, 10)
    log.close()
    os.truncate(path_of(log, ".log"), log.segments[-1].size - 10)
    log = home.open(clean=True)
    home.expect_problems = True
    assert log.end_offset == 10
    assert [(hole.first, hole.next) for _, hole in log.damage] == [(9, 10)]
    assert append(log, batch()) == 10
    assert [record.offset for record in records(log, 10)] == [10]


def test_damage_without_a_believable_length_hides_the_rest_of_its_segment_only(home: Home) -> None:
    log = home.open()
    fill(log, 60)
    second = log.segments[1]
    start, after = second.locate(second.base + 3), log.segments[2].base
    log.close(clean=False)
    with open(second.path(".log"), "r+b") as file:
        file.seek(start + 8)
        file.write(b"\x7f")
    told: list[tuple[int, int]] = []
    log = home.open(clean=False, progress=lambda done, to_do: told.append((done, to_do)))
    home.expect_problems = True
    assert (log.end_offset, len(log.segments)) == (60, len(told))
    assert told[-1][0] == told[-1][1] == log.size
    [(segment, hole)] = log.damage
    assert (segment.base, hole.first, hole.next) == (second.base, second.base + 3, after)
    assert [record.offset for record in records(log, after)] == list(range(after, 60))
    for offset in (hole.first, after - 1):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 100, 60)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    fill(log, 10)
    log.flush()
    assert (log.durability.recovery_point, log.damaged_from) == (70, second.base)
    log.truncate_fully_at(60)
    assert not log.damage
    assert log.damaged_from is None


def test_damage_in_an_old_segment_lets_nothing_be_cut_off_behind_it_that_was_on_the_disk(home: Home) -> None:
    log = home.open()
    fill(log, 60)
    log.flush()
    old, last = log.segments[1].base, log.segments[-1].base
    assert last < 58
    flip_a_bit(log, old + 3)
    verify_batch(log, old + 3)
    flip_a_bit(log, last + 1)
    home.expect_problems = True
    for clean in (False, True):
        log.close(clean)
        log = home.open(clean=clean)
        assert [hole.first for _, hole in log.damage] == [old + 3, last + 1]
        assert (log.end_offset, log.durability.recovery_point, log.damaged_from) == (60, 60, old)
        assert [record.offset for record in records(log, last + 2)] == list(range(last + 2, 60))


def test_what_was_torn_off_behind_damage_is_cut_off(home: Home) -> None:
    log = home.open()
    fill(log, 60)
    log.flush()
    old = log.segments[1].base
    flip_a_bit(log, old + 3)
    verify_batch(log, old + 3)
    fill(log, 2)
    flip_a_bit(log, 61)
    log.close(clean=False)
    log = home.open(clean=False)
    home.expect_problems = True
    assert ([hole.first for _, hole in log.damage], log.end_offset) == ([old + 3], 61)


def test_what_is_missing_before_a_later_segment_stays_known_when_more_is_flushed(home: Home) -> None:
    log = home.open()
    fill(log, 60)
    torn, following = log.segments[1], log.segments[2].base
    log.close(clean=False)
    with path_of(log, ".log", 1).open("r+b") as file:
        file.truncate(torn.locate(following - 2))
    home.expect_problems = True
    log = home.open(clean=False, recovery_point=0)
    for _ in range(2):
        assert [(hole.first, hole.next, hole.lost) for _, hole in log.damage] == [(following - 2, following, True)]
        assert log.whole_until == following - 2
        log.flush()
        assert log.durability.recovery_point == 60
        log = home.reopen(clean=False)


def test_a_producer_whose_batches_were_damaged_goes_on(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    fill(log, 2)
    append(log, batch(producer_id=5, producer_epoch=0, base_sequence=0))
    fill(log, 2)
    log.flush()
    flip_a_bit(log, 2)
    log.close(clean=False)
    home.expect_problems = True
    for path in home.directory.glob("*.snapshot"):
        path.unlink()
    log = home.open(clean=False)
    assert [hole.first for _, hole in log.damage] == [2]
    assert append(log, batch(producer_id=5, producer_epoch=0, base_sequence=1)) == 5


def test_a_tail_is_what_comes_after_the_recovery_point(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    fill(log, 10)
    log.flush()
    fill(log, 10)
    position = log.segments[0].locate(4)
    log.close(clean=False)
    with path_of(log, ".log").open("r+b") as file:
        file.seek(position + 100)
        file.write(b"!!")
    home.expect_problems = True
    for _ in range(3):
        log = home.open(clean=False)
        assert log.end_offset == 20
        [(_, hole)] = log.damage
        assert (hole.first, hole.next) == (4, 5)
        log.close()


def test_damage_found_while_a_log_is_open_is_no_torn_end_at_the_next_start(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    fill(log, 20)
    with path_of(log, ".log").open("r+b") as file:
        file.seek(log.segments[0].locate(4) + 100)
        file.write(b"!!")
    home.expect_problems = True
    verify_batch(log, 4)
    log.close()
    for _ in range(2):
        log = home.open(clean=False)
        assert (log.end_offset, len(log.damage)) == (20, 1)
        log.close()


@pytest.mark.parametrize("damaged", [4, 19])
def test_damage_found_while_a_log_is_open_is_refused_and_what_is_before_it_is_served(home: Home, damaged: int) -> None:
    """Also the last batch, to which a read goes straight, and to who may see no more than what is before it: followers
    that refuse a batch keep the high watermark there."""
    log = home.open(segment_bytes=1 << 20)
    fill(log, 20)
    flip_a_bit(log, damaged)
    position = log.segments.active.locate(damaged)
    verify_batch(log, damaged)
    with pytest.raises(KafkaError) as refused:
        log.read(damaged, 1 << 20, log.end_offset)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    for upto in (damaged, log.end_offset):
        found = log.read(damaged - 1, 1 << 20, upto)
        assert found is not None
        assert found.position + found.length == position
    fill(log, 1)
    assert log.read(20, 1 << 20, log.end_offset) is not None
    home.expect_problems = True
    log.close()


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_indexes_are_no_truth(home: Home, suffix: str, damage: str) -> None:
    log = home.open()
    fill(log, 60)
    log.close()
    for segment in log.segments:
        path = Path(segment.path(suffix))
        data = path.read_bytes()
        if damage == "missing":
            path.unlink()
        elif damage == "noise":
            path.write_bytes(b"\x12\x34\x56\x78" * (len(data) // 4))
        else:
            path.write_bytes(data[: len(data) - 3] if damage == "cut" else b"")
    log = home.open()
    home.expect_problems = damage == "empty"  # an empty index is a possible one, only slow
    assert [record.offset for record in records(log)] == list(range(60))
    if not home.expect_problems:
        assert [searched(offset_for_timestamp(log, 1000 + i)) for i in range(60)] == [
            (1000 + i, i, 0) for i in range(60)
        ]


def test_reads_behind_damage_begin_where_the_index_says(home: Home) -> None:
    home.expect_problems = True
    log = home.open(segment_bytes=1 << 20)
    fill(log, 3000)
    log.roll()
    positions = {offset: log.segments[0].locate(offset) for offset in (99, 101, 102, 2990)}
    flip_a_bit(log, 100)
    verify_batch(log, 100)
    assert [(hole.first, hole.next) for _, hole in log.damage] == [(100, 101)]
    for offset, position in positions.items():
        before = home.files.count["pread"]
        read = log.read(offset, 1, log.end_offset)
        assert read is not None and read.position == position
        assert home.files.count["pread"] - before < 40, "of two hundred blocks"


def test_leader_epochs_are_found_in_the_batches_again(home: Home) -> None:
    log = home.open()
    for epoch in range(5):
        append(log, batch(b"x" * 900), epoch)
    log.close()
    for content in (b"", b"0\n5\n0 0\n", b"\0" * 30, b"0\n1\n0 -5\n", b"0\n1\n-1 0\n", b"0\n1\n99999999999 0\n"):
        Path(log.epochs.path).write_bytes(content)
        assert home.open().epochs.entries == [(epoch, epoch) for epoch in range(5)]


def test_a_log_whose_data_is_gone_goes_on_where_its_start_is(home: Home) -> None:
    log = home.open()
    fill(log, 5)
    log.close(clean=False)
    log = home.open(clean=False, start_offset=50)
    assert (log.start_offset, log.end_offset) == (50, 50)
    assert append(log, batch()) == 50


def test_orphaned_indexes_are_removed(home: Home) -> None:
    home.open().close()
    for suffix in (".index", ".timeindex", ".txnindex"):
        (home.directory / f"{77:020d}{suffix}").write_bytes(b"")
    home.open()
    assert not list(home.directory.glob("*77.*"))


def test_check_sees_what_is_wrong(home: Home) -> None:
    log = home.open()
    fill(log, 40)
    log.close()
    assert check(str(home.directory)) == []
    log_path, index = path_of(log, ".log", 0), path_of(log, ".index", 0)
    for path, at in ((log_path, 100), (index, 7), (path_of(log, ".timeindex", 1), 3)):
        data = bytearray(path.read_bytes())
        data[at] ^= 0x10
        path.write_bytes(data)
        assert str(path) in {problem.path for problem in check(str(home.directory))}
        data[at] ^= 0x10
        path.write_bytes(data)
    Path(log.epochs.path).write_text("0\n1\n7 0\n")
    assert check(str(home.directory))
    Path(log.epochs.path).write_text("0\n1\n0 0\n")


def test_blocks_are_reserved_ahead_and_given_back(home: Home) -> None:
    log = home.open(segment_bytes=8 << 20, preallocate=True)
    fill(log, 1)
    stat = path_of(log, ".log").stat()
    assert stat.st_size == log.size
    reserved = stat.st_blocks * 512
    if reserved < 8 << 20:
        pytest.skip("this file system cannot reserve blocks past the end of a file")
    log.roll()
    assert path_of(log, ".log", 0).stat().st_blocks * 512 < 1 << 20
    assert len(records(log)) == 1


def test_log_of_a_full_disk_opens_and_is_read(home: Home) -> None:
    log = home.open(segment_bytes=1000)
    fill(log, 20)
    log.close(clean=False)
    for suffix in ("index", "timeindex", "snapshot"):
        for path in home.directory.glob(f"*.{suffix}"):
            path.unlink()
    home.files.fail("pwrite", errno.ENOSPC, once=False)
    log = home.open(clean=False)
    log.assign_epoch(3, 20)
    assert [record.offset for record in records(log)] == list(range(20))
    assert searched(offset_for_timestamp(log, 1007)) == (1007, 7, 0)
    with pytest.raises(StorageError):
        log.flush()
    home.files.heal()
    log.flush()
    assert log.durability.recovery_point == 20
    for _ in range(5):
        append(log, batch(), epoch=3)
    log = home.reopen()
    assert (log.end_offset, log.epochs.latest) == (25, 3)
    assert [record.offset for record in records(log)] == list(range(25))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("made", [0, 1, 2])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_roll_that_is_refused_half_way_leaves_nothing(home: Home, code: int, made: int, clean: bool) -> None:
    """The next batches fit into the old segment: they are behind the name that the new one had."""
    log = home.open()
    fill(log, 12)
    end = log.end_offset
    names = home.names()
    home.files.fail("create", code, after=made, once=False)
    with pytest.raises(StorageError):
        append(log, batch(b"." * 2000))
    home.files.heal()
    assert {name for name in home.names() if not name.endswith(".snapshot")} == names
    for i in range(3):
        assert append(log, batch(b"small", timestamp=2000 + i)) == end + i
    log = home.reopen(clean=clean)
    assert append(log, batch()) == end + 3
    assert [record.offset for record in records(log)] == list(range(end + 4))


@pytest.mark.parametrize("operation", ["pwrite", "create"])
def test_retention_deletes_on_a_full_disk_what_was_closed_before_it_needs_room_itself(
    home: Home, operation: str
) -> None:
    """Everything is too old; the last segment can only go when another one can be made."""
    log = home.open(retention_ms=1000)
    append(log, batch(producer_id=5, producer_epoch=0, base_sequence=0, timestamp=1000))
    fill(log, 60)
    last = log.segments[-1].base
    home.files.fail(operation, errno.ENOSPC, once=False)
    if operation == "create":
        with pytest.raises(StorageError) as refused:
            delete_old_segments(log, home.clock.now_ms())
        assert may_pass(refused.value)
        assert (log.start_offset, [segment.base for segment in log.segments]) == (last, [last])
        home.files.heal()
        assert delete_old_segments(log, home.clock.now_ms()) == 1
    else:
        assert delete_old_segments(log, home.clock.now_ms()) == len(list(home.directory.glob("*.log.deleted")))
    assert (log.start_offset, log.end_offset, log.size) == (61, 61, 0)


@pytest.mark.parametrize("renamed", range(10))
def test_a_segment_that_retention_does_not_get_rid_of_is_readable_or_its_directory_offline(
    home: Home, renamed: int
) -> None:
    log = home.open(retention_ms=1000)
    fill(log, 60)
    log.let_go_of_files()
    home.files.fail("rename", errno.ENOSPC, after=renamed)
    with pytest.raises(StorageError) as refused:
        delete_old_segments(log, home.clock.now_ms(), log.segments[-1].base)
    whole = may_pass(refused.value)
    # The fourth of each is that of `.txnindex`, which is not there; all segments but the first have a snapshot, too.
    assert whole is (renamed in (0, 4, 9))
    if not whole:
        log.close(clean=False)
        log = home.open(clean=False, start_offset=0, recovery_point=0)
    assert log.start_offset == log.segments[0].base
    assert [record.offset for record in records(log)] == list(range(log.start_offset, 60))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("followed", [True, False])
def test_an_empty_segment_that_begins_within_the_one_before_is_no_part_of_the_log(
    home: Home, clean: bool, followed: bool
) -> None:
    """Earlier versions left them when a roll was refused half way."""
    log = home.open()
    fill(log, 12)
    if followed:
        log.roll()
        fill(log, 3)
    log.close(clean)
    stray = home.directory / f"{9:020d}.log"
    stray.touch()
    log = home.open(clean=clean)
    assert not stray.exists()
    assert [record.offset for record in records(log)] == list(range(12 + 3 * followed))
    assert append(log, batch()) == 12 + 3 * followed


def test_an_empty_segment_where_the_one_before_ends_stays_the_end_of_the_log(home: Home) -> None:
    log = home.open()
    fill(log, 12)
    log.roll()
    for clean in (True, False):
        log = home.reopen(clean=clean)
        assert [segment.base for segment in log.segments] == [0, 12]
        assert log.end_offset == 12


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kept", [0, 100])
def test_a_follower_that_rolled_for_a_batch_behind_a_gap_goes_on_before_it(home: Home, kept: int, clean: bool) -> None:
    """Compaction had left nothing before offset 20. The disk refuses the batch, and then the follower leads."""
    home.was_compacted = True
    log = home.open()
    fill(log, 12)
    data = batch(b"." * 2000)
    data[:8] = (20).to_bytes(8, "big")
    home.files.shorten_next_write(kept)
    with pytest.raises(StorageError):
        log.append_copied(memoryview(data))
    home.files.heal()
    assert log.segments[-1].base == log.end_offset == 12
    assert append(log, batch(b"new")) == 12
    log = home.reopen(clean=clean)
    assert [record.offset for record in records(log)] == list(range(13))


def test_what_compaction_had_removed_of_a_log_that_was_copied_is_not_taken_for_lost(home: Home) -> None:
    """The topic was compacted when its leader's log got those gaps. What the disk loses is found all the same."""
    log = home.open(segment_bytes=1000)
    offsets = (0, 7, 20, 33, 50, 60, 5 + 2**31)
    for offset in offsets:
        data = batch(b"." * 400)
        data[:8] = offset.to_bytes(8, "big")
        log.append_copied(memoryview(data))
    assert [segment.base for segment in log.segments] == [0, 8, 34, 61]
    log = home.reopen(clean=False)
    assert log.damage == []
    assert [record.offset for record in records(log)] == list(offsets)
    closed = log.segments[1]
    log.close(clean=False)
    os.truncate(closed.path(".log"), closed.size // 2)
    log = home.open(clean=False)
    assert [(hole.first, hole.next, hole.lost) for _, hole in log.damage] == [(21, 34, True)]


def test_a_read_error_while_old_records_are_looked_for_is_one_of_the_log_directory(home: Home) -> None:
    log = home.open()
    fill(log, 2)
    log = home.reopen()
    home.files.fail("open", once=False)
    with pytest.raises(StorageError):
        outlives_retention(log, 0)


@pytest.mark.parametrize("after", range(4))
def test_a_segment_that_lacks_open_files_is_made_ready_later(home: Home, after: int) -> None:
    log = home.open(index_interval_bytes=200)
    fill(log, 8)
    log = home.reopen()
    home.files.fail("open", errno.EMFILE, after=after)
    with pytest.raises(StorageError):
        fill(log, 1)
    fill(log, 2)
    assert [record.offset for record in records(log)] == list(range(10))
    assert searched(offset_for_timestamp(log, 1007)) == (1007, 7, 0)


def test_an_index_that_a_full_disk_has_no_room_for_is_that_of_the_segment_being_written(home: Home) -> None:
    log = home.open(index_interval_bytes=200)
    fill(log, 8)
    log.close()
    path = path_of(log, ".index")
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    log = home.open()
    home.files.fail("pwrite", errno.ENOSPC, once=False)
    with pytest.raises(StorageError):
        fill(log, 1)
    home.files.heal()
    fill(log, 1)
    log.flush()
    assert path.read_bytes()[: len(whole)] == whole


@pytest.mark.parametrize("stop", ["clean", "after a flush", "before a flush"])
@pytest.mark.parametrize("rolled_meanwhile", [True, False])
def test_the_recovery_point_waits_for_the_indexes_of_a_segment_that_was_rolled_on_a_full_disk(
    home: Home, rolled_meanwhile: bool, stop: str
) -> None:
    """Its records had been flushed; the last entry of its time index is made when it rolls."""
    log = home.open(index_interval_bytes=500)
    fill(log, 8)
    flush = log.start_flush()
    flush.sync()
    if not rolled_meanwhile:
        log.end_flush(flush)
    home.files.fail("pwrite", errno.ENOSPC, once=False)
    log.roll()
    home.files.heal()
    if rolled_meanwhile:
        log.end_flush(flush)
    assert log.durability.recovery_point == 0
    append(log, batch(timestamp=5000))
    if stop == "after a flush":
        log.flush()
        assert log.durability.recovery_point == 9
    log = home.reopen(clean=stop == "clean")
    assert log.segments[0].max_timestamp == 1007
    assert searched(offset_for_timestamp(log, 1007)) == (1007, 7, 0)
