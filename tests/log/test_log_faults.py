"""A disk that fails, a process that dies, bits that flip: what is left is a log, and nobody is lied to."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.check import check
from kafkad.log.cleaning import dirt_of
from kafkad.log.deletion import delete_old_segments, outlives_retention
from kafkad.log.epochs import FILE_NAME
from kafkad.log.files import may_pass
from kafkad.log.indexed import Hole
from kafkad.log.log import Log
from kafkad.log.mending import Mending, verify_batch
from kafkad.log.segment import Segment
from kafkad.log.time_search import offset_for_timestamp
from kafkad.log.transactions import aborted_transactions
from kafkad.log.truncation import truncate_to
from kafkad.turns import at_once
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import MAGIC_AT, iter_batches
from tests.fakes import FaultyFiles
from tests.log.conftest import Home, append, batch, records, searched


def fill(log: Log, count: int) -> None:
    for i in range(count):
        append(log, batch(b"v%d" % i + b"." * 200, timestamp=1000 + i))


def flip_a_bit(log: Log, offset: int) -> None:
    """In the batch of one record that has this offset."""
    segment = next(segment for segment in reversed(log.segments) if segment.base <= offset)
    with Path(segment.path(".log")).open("r+b") as file:
        file.seek(segment.locate(offset) + 70)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def path_of(log: Log, suffix: str, number: int = -1) -> Path:
    return Path(log.segments[number].path(suffix))


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
            flush = log.start_flush()
            try:
                flush.sync()
            except StorageError:
                log.durability.flush_failed(flush)
                raise
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
    for content in (b"", b"0\n5\n0 0\n", b"\0" * 30):
        Path(log.epochs.path).write_bytes(content)
        assert home.open().epochs.entries == [(epoch, epoch) for epoch in range(5)]


def aborted(log: Log, producer_id: int, count: int = 3) -> None:
    for sequence in range(count):
        append(
            log,
            batch(b"t" * 300, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True),
        )
    marker = build_marker(ControlRecord(False, 0), producer_id=producer_id, producer_epoch=0, timestamp=1000)
    append(log, marker)


def test_aborted_transactions_are_known_after_every_kind_of_stop(home: Home) -> None:
    log = home.open(segment_bytes=2000)
    for producer_id in range(8):
        aborted(log, producer_id)
    expected = [(producer_id, producer_id * 4) for producer_id in range(8)]
    assert aborted_transactions(log, 0, log.end_offset) == expected
    assert aborted_transactions(log, 9, 14) == expected[2:4]
    for clean in (True, False):
        log = home.reopen(clean=clean)
        assert aborted_transactions(log, 0, log.end_offset) == expected
    truncate_to(log, 18)
    assert aborted_transactions(log, 0, log.end_offset) == expected[:4]
    assert log.first_unstable_offset(log.end_offset) == 16


def test_a_broken_transaction_index_is_made_anew(home: Home) -> None:
    log = home.open(segment_bytes=2000)
    for producer_id in range(8):
        aborted(log, producer_id)
    expected = aborted_transactions(log, 0, log.end_offset)
    log.close()
    for path in home.directory.glob("*.txnindex"):
        path.write_bytes(path.read_bytes()[:-1])
    for path in list(home.directory.glob("*.snapshot"))[1::2]:
        path.unlink()
    assert aborted_transactions(home.open(), 0, 32) == expected


class FullForTransactions(FaultyFiles):
    """A disk that has no block left for an index of transactions: those of the log are reserved ahead."""

    is_full = False

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        if self.is_full and path.endswith((".txnindex", ".txnindex.tmp")) and flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, flags, mode)


@pytest.fixture
def full_for_transactions(home: Home) -> FullForTransactions:
    home.files = files = FullForTransactions()
    return files


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("copied", [False, True])
def test_an_aborted_transaction_that_a_full_disk_does_not_note_is_known(
    home: Home, full_for_transactions: FullForTransactions, before: int, copied: bool
) -> None:
    log = home.open(segment_bytes=1 << 20)
    for producer_id in range(before):
        aborted(log, producer_id)
    log = home.reopen()  # what the file has is not in memory any more
    expected = [(producer_id, producer_id * 4) for producer_id in range(before + 2)]
    full_for_transactions.is_full = True
    for producer_id in range(before, before + 2):
        if copied:
            _copy_aborted(log, producer_id)
        else:
            aborted(log, producer_id)
    assert aborted_transactions(log, 0, log.end_offset) == expected
    log.segments[-1].give_up_files()
    assert aborted_transactions(log, 0, log.end_offset) == expected
    with pytest.raises(StorageError):
        log.flush()
    assert log.durability.recovery_point == before * 4
    with pytest.raises(StorageError):
        dirt_of(log, 0, log.end_offset)  # compaction would read the file
    full_for_transactions.is_full = False
    for clean in (True, False):
        log = home.reopen(clean=clean)
        assert aborted_transactions(log, 0, log.end_offset) == expected


@pytest.mark.parametrize("fully", [False, True])
def test_a_cut_leaves_the_fsync_of_aborted_transactions_to_the_next_flush(home: Home, fully: bool) -> None:
    log = home.open()
    aborted(log, 5)
    aborted(log, 6)
    log.flush()
    before = home.files.count["sync"]
    if fully:
        log.truncate_fully_at(0)
    else:
        truncate_to(log, 5)
    assert home.files.count["sync"] == before
    assert aborted_transactions(log, 0, 10) == ([] if fully else [(5, 0)])
    flush = log.start_flush()
    assert log.segments.active.path(".txnindex") in flush.paths
    log.durability.flush_failed(flush)
    log = home.reopen(clean=False)
    assert aborted_transactions(log, 0, 10) == ([] if fully else [(5, 0)])


def _copy_aborted(log: Log, producer_id: int) -> None:
    kind = {"producer_id": producer_id, "producer_epoch": 0}
    parts = [batch(b"t" * 300, base_sequence=i, transactional=True, **kind) for i in range(3)]
    parts.append(bytearray(build_marker(ControlRecord(False, 0), timestamp=1000, **kind)))
    for offset, part in enumerate(parts, start=log.end_offset):
        part[:8] = offset.to_bytes(8, "big")
    log.append_copied(memoryview(b"".join(parts)))


def test_a_segment_that_was_rolled_before_its_transactions_were_noted_has_them_noted_by_the_next_flush(
    home: Home, full_for_transactions: FullForTransactions
) -> None:
    log = home.open()
    full_for_transactions.is_full = True
    aborted(log, 5)
    log.roll()
    fill(log, 3)
    full_for_transactions.is_full = False
    log.flush()
    assert log.durability.recovery_point == log.end_offset
    log = home.reopen(clean=False)
    assert aborted_transactions(log, 0, log.end_offset) == [(5, 0)]


def test_a_transaction_that_was_not_noted_is_noted_under_the_new_name_of_the_directory(
    home: Home, full_for_transactions: FullForTransactions
) -> None:
    log = home.open()
    full_for_transactions.is_full = True
    aborted(log, 5)
    home.directory = home.directory.with_name("t-1")
    log.rename(str(home.directory))
    full_for_transactions.is_full = False
    log = home.reopen()
    assert aborted_transactions(log, 0, log.end_offset) == [(5, 0)]


def test_a_transaction_is_aborted_though_the_index_of_those_before_is_broken(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    aborted(log, 0)
    log.close()
    (path,) = home.directory.glob("*.txnindex")
    path.write_bytes(path.read_bytes()[:-1])
    log = home.open()
    aborted(log, 1)
    assert log.end_offset == 8
    for _ in range(2):
        assert aborted_transactions(log, 0, 8) == [(0, 0), (1, 4)]
        log = home.reopen()


def test_a_full_disk_does_not_leave_half_of_a_transaction_index_that_is_made_anew(
    home: Home, full_for_transactions: FullForTransactions
) -> None:
    log = home.open(segment_bytes=1 << 20)
    for producer_id in range(4):
        aborted(log, producer_id)
    expected = aborted_transactions(log, 0, log.end_offset)
    log.close()
    (path,) = home.directory.glob("*.txnindex")
    broken = path.read_bytes()[:-1]
    path.write_bytes(broken)
    log = home.open()
    full_for_transactions.is_full = True
    assert aborted_transactions(log, 0, log.end_offset) == expected
    assert path.read_bytes() == broken
    full_for_transactions.is_full = False
    log = home.reopen()
    assert aborted_transactions(log, 0, log.end_offset) == expected
    assert path.read_bytes() != broken


def test_a_start_on_a_full_disk_knows_the_transactions_whose_index_it_cannot_write(
    home: Home, full_for_transactions: FullForTransactions
) -> None:
    log = home.open(segment_bytes=2000)
    for producer_id in range(8):
        aborted(log, producer_id)
    expected = aborted_transactions(log, 0, log.end_offset)
    log.close(clean=False)
    for path in home.directory.glob("*.txnindex"):
        path.unlink()
    full_for_transactions.is_full = True
    log = home.open(clean=False)
    assert aborted_transactions(log, 0, log.end_offset) == expected
    full_for_transactions.is_full = False
    log = home.reopen()
    assert aborted_transactions(log, 0, log.end_offset) == expected


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


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("made", [0, 1, 2])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_roll_that_is_refused_half_way_leaves_nothing(home: Home, code: int, made: int, clean: bool) -> None:
    """The next batches fit into the old segment: they are behind the name that the new one had."""
    log = home.open()
    fill(log, 12)
    end = log.end_offset
    names = _names(home)
    home.files.fail("create", code, after=made, once=False)
    with pytest.raises(StorageError):
        append(log, batch(b"." * 2000))
    home.files.heal()
    assert {name for name in _names(home) if not name.endswith(".snapshot")} == names
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


@pytest.mark.parametrize("renamed", range(9))
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
    assert whole is (renamed % 4 == 0)  # the fourth is that of `.txnindex`, which is not there
    if not whole:
        log.close(clean=False)
        log = home.open(clean=False, start_offset=0, recovery_point=0)
    assert log.start_offset == log.segments[0].base
    assert [record.offset for record in records(log)] == list(range(log.start_offset, 60))


def _names(home: Home) -> set[str]:
    return {path.name for path in home.directory.iterdir()}


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
    files = _names(home)
    log.let_go_of_files()
    home.files.fail(operation, code, after=after, once=False)
    try:
        if fully:
            log.truncate_fully_at(target)
        else:
            truncate_to(log, target)
    except StorageError as error:
        assert may_pass(error)
        assert {name for name in _names(home) if not name.endswith(".snapshot")} <= files
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
    assert (log.end_offset, log.truncations) == (39, 1)
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


@pytest.mark.parametrize("read", [True, False])
def test_a_read_error_beside_the_index_of_transactions_is_one_of_the_log_directory(home: Home, read: bool) -> None:
    log = home.open()
    aborted(log, 5)
    fill(log, 2)
    part = log.read(0, 300, log.end_offset)
    if not read:
        part = None
        log = home.reopen()
    home.files.fail("pread", once=False)
    with pytest.raises(StorageError):
        aborted_transactions(log, 0, log.end_offset, part)


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
