"""Append, read, roll, truncate, retention: the log under a consumer's and an operator's eyes."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.deletion import delete_old_segments
from kafkad.log.durability import SEGMENTS_AT_ONCE
from kafkad.log.log import Log
from kafkad.log.retention import BELOW_START, Deletion
from kafkad.log.time_search import max_timestamp, offset_for_timestamp
from kafkad.log.truncation import read_ahead, truncate_to
from kafkad.names import TopicPartition
from kafkad.turns import Pieces, at_once
from kafkad.wire.records import iter_batches
from tests.log.conftest import Home, append, batch, fetch, path_of, pieces_of, records, remove_doomed, searched
from tests.log.consistency import check


def fill(log: Log, count: int, *, size: int = 200, timestamp: int = 1000) -> None:
    for i in range(count):
        append(log, batch(b"v%d" % i + b"." * size, timestamp=timestamp + i))


def test_offsets_and_epochs_are_set_in_the_batch(home: Home) -> None:
    log = home.open()
    assert append(log, batch(b"a", b"b"), epoch=3) == 0
    assert append(log, batch(b"c"), epoch=5) == 2
    data = fetch(log, 0)
    assert data is not None
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for _, h in iter_batches(memoryview(data))] == [
        (0, 1, 3),
        (2, 2, 5),
    ]
    assert log.epochs.entries == [(3, 0), (5, 2)]
    assert log.end_offset == 3


def test_every_offset_can_be_read_from_every_segment(home: Home) -> None:
    log = home.open()
    fill(log, 60)
    assert len(log.segments) > 3
    for offset in range(60):
        assert records(log, offset)[0].offset == offset
    log = home.reopen()
    for offset in range(60):
        assert [record.offset for record in records(log, offset)] == list(range(offset, 60))


def test_a_read_holds_whole_batches_up_to_its_limit(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    fill(log, 50)
    for limit in (1, 300, 1000, 1500, 5000):
        data = fetch(log, 7, limit)
        assert data is not None
        sizes = [header.size for _, header in iter_batches(memoryview(data))]
        assert sum(sizes) == len(data)
        assert len(sizes) == 1 or len(data) <= limit
    assert log.read(7, 10, log.end_offset, at_least_one=False) is None


def test_a_read_stops_before_the_offset_it_may_not_see(home: Home) -> None:
    log = home.open()
    fill(log, 40)
    for upto in range(41):
        seen = []
        offset = 0
        while (data := fetch(log, offset, 1 << 20, upto)) is not None:
            seen += [header.last_offset for _, header in iter_batches(memoryview(data))]
            offset = seen[-1] + 1
        assert seen == list(range(upto))


def test_reading_outside_the_log_is_refused(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    log.increment_start_offset(1)
    for offset in (-1, 0, 4):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 100, log.end_offset)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(3, 100, 3) is None


def test_a_slice_outlives_its_segment(home: Home) -> None:
    log = home.open(file_delete_delay_ms=0)
    fill(log, 40)
    part = log.read(0, 1 << 20, log.end_offset)
    assert part is not None
    log.truncate_fully_at(100)
    remove_doomed(log, home.clock.now_ms())
    assert len(os.pread(part.file.fd, part.length, part.position)) == part.length
    assert os.listdir(home.directory).count("00000000000000000000.log") == 0


def test_a_copied_log_is_the_same_log(home: Home, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = home.open()
    for epoch in range(4):
        for i in range(12):
            append(log, batch(b"%d-%d" % (epoch, i) * 20, timestamp=2000 + i), epoch)
    follower = Home(tmp_path_factory.mktemp("follower") / "t-0")
    copy = follower.open()
    while copy.end_offset < log.end_offset:
        data = fetch(log, copy.end_offset, 3000)
        assert data is not None
        copy.append_copied(memoryview(data + b"part of a batch that follows"))
    assert records(copy) == records(log)
    assert copy.epochs.entries == log.epochs.entries
    copy.close()


def test_a_copied_batch_must_fit_and_be_whole(home: Home) -> None:
    log = home.open()
    good = batch(b"a", b"b")
    log.append_copied(memoryview(good))
    broken = bytearray(good)
    broken[-1] ^= 1
    broken[7] = 2
    for data in (good, broken):
        with pytest.raises(KafkaError) as refused:
            log.append_copied(memoryview(data))
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.end_offset == 2


def test_a_copy_begins_in_the_middle_of_a_batch_as_the_log_does_that_it_is_made_from(
    home: Home, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = home.open()
    for epoch in range(3):
        append(log, batch(*(b"%d" % n for n in range(10))), epoch)
    log.increment_start_offset(13)
    data = fetch(log, 13)
    assert data is not None
    other = Home(tmp_path_factory.mktemp("copy") / "t-0")
    copy = other.open(start_offset=13)
    copy.flush()
    cuts: list[int] = []
    copy.on_cut = lambda log, end: cuts.append(end)
    other.files.tear_next_write(30)
    with pytest.raises(StorageError):
        copy.append_copied(memoryview(data))
    assert (copy.start_offset, copy.end_offset, copy.durability.recovery_point, cuts) == (13, 13, 10, [13, 13])
    copy = other.reopen()
    copy.append_copied(memoryview(data))
    for again in (copy, other.reopen(clean=False), other.reopen()):
        assert (again.start_offset, again.end_offset) == (13, 30)
        assert records(again) == records(log)
        assert again.epochs.entries == log.epochs.entries
    other.reopen().close()
    assert check(str(other.directory)) == []


@pytest.mark.parametrize(("has_records", "base"), [(True, 10), (False, 2)])
def test_only_an_empty_log_begins_in_the_middle_of_a_batch_that_goes_on_behind_its_end(
    home: Home, has_records: bool, base: int
) -> None:
    log = home.open(start_offset=12)
    if has_records:
        append(log, batch())
    data = batch(*(b"%d" % n for n in range(10)))
    data[:8] = base.to_bytes(8, "big")
    with pytest.raises(KafkaError) as refused:
        log.append_copied(memoryview(data))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.start_offset, log.end_offset) == (12, 12 + has_records)


def test_a_segment_rolls_by_time_between_its_records(home: Home) -> None:
    log = home.open(segment_ms=1000)
    for timestamp in (5000, 5900, 6000, 6001):
        append(log, batch(timestamp=timestamp))
    assert [segment.base for segment in log.segments] == [0, 3]


@pytest.mark.parametrize(("policy", "bases"), [("compact", [0, 3]), ("delete", [0])])
def test_a_segment_rolls_before_its_records_have_to_be_compacted(home: Home, policy: str, bases: list[int]) -> None:
    log = home.open(max_compaction_lag_ms=1000, cleanup_policy=frozenset({policy}))
    for timestamp in (5000, 5900, 6000, 6001):
        append(log, batch(timestamp=timestamp))
    assert [segment.base for segment in log.segments] == bases


def test_a_segment_without_timestamps_rolls_by_its_age(home: Home) -> None:
    log = home.open(segment_ms=1000)
    append(log, batch(timestamp=-1))
    home.clock.advance(1000)
    append(log, batch(timestamp=-1))
    home.clock.advance(1)
    append(log, batch(timestamp=-1))
    assert [segment.base for segment in log.segments] == [0, 2]


def test_a_segment_rolls_when_an_index_is_full(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20, segment_index_bytes=48, index_interval_bytes=0)
    fill(log, 20)
    assert len(log.segments) > 3
    assert all(os.path.getsize(segment.path(".timeindex")) <= 48 for segment in log.segments[:-1])
    assert [record.offset for record in records(log)] == list(range(20))


def test_a_segment_rolls_before_offsets_outgrow_its_index(home: Home) -> None:
    log = home.open()
    append(log, batch())
    far = batch()
    far[:8] = (2**31).to_bytes(8, "big")
    log.append_copied(memoryview(far))
    assert [segment.base for segment in log.segments] == [0, 1]
    assert log.end_offset == 2**31 + 1
    part = log.read(5, 1000, log.end_offset)
    assert part is not None, "the offsets in between are a gap, as the cleaner leaves them"


def test_truncation_forgets_batches_epochs_and_timestamps(home: Home) -> None:
    log = home.open()
    for i in range(40):
        append(log, batch(b"." * 200, timestamp=1000 + i), epoch=i // 10)
    truncate_to(log, 25)
    assert log.end_offset == 25
    assert log.epochs.entries == [(0, 0), (1, 10), (2, 20)]
    assert searched(max_timestamp(log)) == (1024, 24, 2)
    assert searched(offset_for_timestamp(log, 1025)) is None
    append(log, batch(timestamp=1), epoch=7)
    assert [record.offset for record in records(log)] == list(range(26))
    truncate_to(log, 0)
    assert (log.end_offset, log.epochs.entries) == (0, [])


def test_truncation_reads_nothing_again_that_says_nothing(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    append(log, batch(timestamp=5000))
    costs = []
    for count in (100, 3000):
        for _ in range(count):
            append(log, batch(timestamp=1000))
        append(log, batch(timestamp=1000))
        before = home.files.count["pread"]
        truncate_to(log, log.end_offset - 1)
        costs.append(home.files.count["pread"] - before)
    assert costs[1] <= costs[0] + 10, "the indexes are longer"
    assert searched(max_timestamp(log)) == (5000, 0, 0)
    append(log, batch(timestamp=6000))
    assert searched(max_timestamp(log)) == (6000, 3101, 0)
    truncate_to(log, 3101)
    assert searched(max_timestamp(log)) == (5000, 0, 0)


def of_producers(log: Log, count: int) -> None:
    """A batch of each of seven producers, one after the other."""
    for n in range(log.end_offset, log.end_offset + count):
        append(log, batch(b".", producer_id=n % 7, producer_epoch=0, base_sequence=n // 7))


def test_what_a_cut_has_to_know_of_many_batches_is_read_ahead_in_pieces(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    of_producers(log, 3_500)
    count, ahead = pieces_of(read_ahead(log, 3_200))
    assert count == 3
    with pytest.MonkeyPatch.context() as patched:
        patched.delattr("kafkad.log.recovery.reloading_producers")
        truncate_to(log, 3_200, ahead)
    known = list(log.producers.describe())
    assert [last.last_sequence for last in sorted(known)] == [457, *[456] * 6]
    log = home.reopen(clean=False)
    assert sorted(log.producers.describe()) == sorted(known)


def test_a_segment_begins_without_waiting_for_the_snapshot_of_its_producers(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    put_off: list[Pieces[None]] = []
    log.in_pieces = put_off.append
    of_producers(log, 20)
    log.roll()
    of_producers(log, 7)
    assert list(log.producers.snapshots.offsets) == []
    at_once(put_off.pop())
    assert list(log.producers.snapshots.offsets) == [20]
    log.roll()
    log.close(clean=False)
    assert pieces_of(put_off.pop()) == (0, None)
    assert not (home.directory / f"{27:020d}.snapshot").exists()
    log = home.reopen(clean=False)
    log.close()


@pytest.mark.parametrize("end", [3_100, 3_300])
def test_what_was_read_ahead_for_another_cut_is_of_no_use(home: Home, end: int) -> None:
    log = home.open(segment_bytes=1 << 20)
    of_producers(log, 3_500)
    _, ahead = pieces_of(read_ahead(log, 3_200))
    reading = read_ahead(log, 3_200)
    next(reading)
    truncate_to(log, end, ahead)
    known = sorted(log.producers.describe())
    assert pieces_of(reading) == (0, None)
    assert sorted(home.reopen(clean=False).producers.describe()) == known


def test_a_broken_snapshot_that_a_cut_has_met_is_known_no_more(home: Home) -> None:
    """Else none is taken at that offset again."""
    log = home.open(segment_bytes=1 << 20)
    of_producers(log, 20)
    log.producers.take_snapshot(20)
    of_producers(log, 5)
    (home.directory / f"{20:020d}.snapshot").write_bytes(b"broken")
    truncate_to(log, 20)
    assert 20 not in log.producers.snapshots.offsets
    log.producers.take_snapshot(20)
    assert list(log.producers.snapshots.offsets) == [20]
    log.close()


def test_truncation_at_the_end_forgets_an_epoch_without_records(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a"), epoch=3)
    log.assign_epoch(5, 1)
    truncate_to(log, 1)
    assert log.epochs.entries == [(3, 0)]
    append(log, batch(b"b"), epoch=5)
    assert log.epochs.entries == [(3, 0), (5, 1)]


def test_truncation_inside_a_batch_removes_it_whole(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d", b"e", b"f"))
    truncate_to(log, 4)
    assert log.end_offset == 3


def test_delete_records_moves_the_start_and_retention_takes_the_files(home: Home) -> None:
    log = home.open(retention_ms=-1)
    fill(log, 60)
    second, third = log.segments[1].base, log.segments[2].base
    log.increment_start_offset(third + 1)
    assert log.segments[0].base == 0
    assert delete_old_segments(log, home.clock.now_ms()) == 2
    assert (log.segments[0].base, log.start_offset) == (third, third + 1)
    assert second > 0
    with pytest.raises(KafkaError):
        log.increment_start_offset(61)
    log = home.reopen()
    assert log.start_offset == third + 1


def test_what_was_deleted_is_not_read_though_it_is_in_the_last_batch(home: Home) -> None:
    log = home.open()
    append(log, batch(b"a", b"b", b"c", b"d"))
    log.increment_start_offset(2)
    for offset in (0, 1):
        with pytest.raises(KafkaError, match="has offsets 2 to 4"):
            log.read(offset, 1000, 4)
    for offset in (2, 3):
        assert log.read(offset, 1000, 4) is not None


def test_retention_by_time_empties_a_log_that_is_all_old(home: Home) -> None:
    log = home.open(retention_ms=10_000, file_delete_delay_ms=500)
    fill(log, 60)
    now = home.clock.now_ms()
    assert delete_old_segments(log, now, upto=5) == 0, "nothing above the high watermark goes"
    old = len(log.segments)
    assert delete_old_segments(log, now, upto=59) == old - 1
    fill(log, 20)
    assert delete_old_segments(log, now) > 1
    assert (log.start_offset, log.end_offset, log.size) == (80, 80, 0)
    assert log.doomed.due(now + 499) == []
    doomed = log.doomed.due(now + 500)
    assert doomed and all(due.path.endswith(".deleted") and os.path.exists(due.path) for due in doomed)
    assert append(log, batch()) == 80


@pytest.mark.parametrize("cut", [False, True])
def test_a_producer_snapshot_that_goes_waits_for_its_removal_as_files_of_segments_do(home: Home, cut: bool) -> None:
    """Unlinking waits for the disk, and others would wait with it."""
    log = home.open(retention_ms=10_000, file_delete_delay_ms=500)
    of_producers(log, 250)
    taken = [*log.producers.snapshots.offsets]
    assert len(taken) > 2
    (home.directory / f"{taken[-2]:020d}.snapshot").write_bytes(b"broken")
    home.files.fail("unlink")
    if cut:
        truncate_to(log, taken[-2])
        gone = taken[-2:]
    else:
        delete_old_segments(log, home.clock.now_ms())
        gone = taken
    assert not set(gone).intersection(log.producers.snapshots.offsets)
    waiting = {name for name in home.names() if ".snapshot" in name and name.endswith(".deleted")}
    assert waiting == {f"{offset:020d}.snapshot.deleted" for offset in gone}
    assert waiting <= {os.path.basename(due.path) for due in log.doomed.due(home.clock.now_ms() + 500)}
    assert not log.doomed.due(home.clock.now_ms() + 499)


def test_retention_by_size_keeps_at_least_that_much(home: Home) -> None:
    log = home.open(retention_bytes=6000, retention_ms=-1)
    fill(log, 100)
    delete_old_segments(log, home.clock.now_ms())
    assert 6000 <= log.size < 6000 + 4096
    assert records(log)[-1].offset == 99


@pytest.mark.parametrize(
    ("settings", "cut_at", "reasons"),
    [
        ({"retention_ms": 10_000}, 0, ("retention.ms=10000",)),
        ({"retention_ms": -1, "retention_bytes": 6000}, 0, ("retention.bytes=6000",)),
        ({"retention_ms": -1}, 60, (BELOW_START,)),
        ({"retention_ms": -1, "retention_bytes": 6000}, 60, (BELOW_START, "retention.bytes=6000")),
    ],
)
def test_a_deletion_says_what_went_and_which_setting_decided(
    home: Home, settings: dict[str, Any], cut_at: int, reasons: tuple[str, ...]
) -> None:
    log = home.open(**settings)
    fill(log, 200)
    log.increment_start_offset(cut_at)
    told: list[tuple[TopicPartition, Deletion]] = []
    log.on_deleted = lambda tp, deletion: told.append((tp, deletion))
    size, count, upto = log.size, len(log.segments), log.segments.active.base
    while delete_old_segments(log, home.clock.now_ms(), upto):
        pass
    deletion = reduce(Deletion.followed_by, [deletion for _, deletion in told])
    gone = count - len(log.segments)
    assert deletion == Deletion(gone, 0, log.segments.first_base, size - log.size, reasons)
    assert gone > 1
    assert {tp for tp, _ in told} == {log.topic_partition}


def test_nothing_is_retained_away_from_a_compacted_topic(home: Home) -> None:
    log = home.open(cleanup_policy=frozenset({"compact"}), retention_ms=1, retention_bytes=1)
    fill(log, 60)
    assert delete_old_segments(log, home.clock.now_ms()) == 0


def test_timestamps_are_found_where_they_first_occur(home: Home) -> None:
    log = home.open()
    stamps = [(i * 7919) % 1000 for i in range(120)]
    for stamp in stamps:
        append(log, batch(b"." * 100, timestamp=stamp))
    for wanted in range(0, 1001, 13):
        expected = next(((stamp, i, 0) for i, stamp in enumerate(stamps) if stamp >= wanted), None)
        assert searched(offset_for_timestamp(log, wanted)) == expected
    assert searched(max_timestamp(log)) == (max(stamps), stamps.index(max(stamps)), 0)
    log.increment_start_offset(50)
    found = searched(offset_for_timestamp(log, 900))
    assert found is not None and found[1] >= 50


def test_however_sparse_an_index_may_be_a_read_looks_at_few_batches(home: Home) -> None:
    log = home.open(segment_bytes=1 << 30, index_interval_bytes=2**31 - 1)
    for _ in range(40):
        append(log, batch(b"." * 10_000))
    log.roll()
    assert len(log.segments[0].offsets) == 2
    log.update_config(replace(log.config, index_interval_bytes=1 << 30))
    assert log.segments[0].interval == 128 * 1024


def test_the_largest_timestamp_of_records_without_one_is_that_of_no_record(home: Home) -> None:
    log = home.open()
    append(log, batch(timestamp=1000))
    append(log, batch(timestamp=-1))
    log.increment_start_offset(1)
    assert searched(max_timestamp(log)) is None


@pytest.mark.parametrize(("segment_ms", "jitter_ms"), [(-1, 5), (0, 5), (1000, -5)])
def test_times_to_roll_that_were_taken_once_and_mean_nothing_stop_no_log(
    home: Home, segment_ms: int, jitter_ms: int
) -> None:
    log = home.open(segment_ms=segment_ms, segment_jitter_ms=jitter_ms)
    fill(log, 3)
    assert log.end_offset == 3


def test_a_flush_moves_the_recovery_point_only_over_what_it_synced(home: Home) -> None:
    log = home.open(flush_messages=5)
    fill(log, 4)
    assert not log.needs_flush(home.clock.now_ms())
    fill(log, 1)
    assert log.needs_flush(home.clock.now_ms())
    flush = log.start_flush()
    fill(log, 3)
    flush.sync()
    log.end_flush(flush)
    assert (log.durability.recovery_point, log.end_offset) == (5, 8)


def test_nothing_is_appended_behind_the_end_of_a_stop(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    log.close()
    before = os.path.getsize(path_of(log, ".log"))
    data = batch(b"late")
    data[:8] = (3).to_bytes(8, "big")
    for attempt in (lambda: append(log, batch(b"late")), lambda: log.append_copied(memoryview(data))):
        with pytest.raises(KafkaError) as refused:
            attempt()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert os.path.getsize(path_of(log, ".log")) == before


def many_segments(home: Home) -> Log:
    """Twice as many as a flush has at once, and a few; of all but the last, no file is open."""
    log = home.open(segment_bytes=300)
    fill(log, 2 * SEGMENTS_AT_ONCE + 5)
    log.let_go_of_files()
    return log


def test_a_flush_has_so_many_segments_and_opens_their_files_when_their_turn_comes(home: Home) -> None:
    log = many_segments(home)
    before = home.files.count["open"]
    flush = log.start_flush()
    assert home.files.count["open"] == before
    flush.sync()
    log.end_flush(flush)
    assert (log.durability.recovery_point, log.flushed_until) == (SEGMENTS_AT_ONCE, SEGMENTS_AT_ONCE)
    assert log.durability.unflushed_bytes == sum(segment.size for segment in log.segments[SEGMENTS_AT_ONCE:])
    assert not any(segment.open_files for segment in log.segments[:-1])
    synced = len(home.files.synced)
    log.flush()
    assert len(home.files.synced) > synced + (SEGMENTS_AT_ONCE + 5) * 3
    assert log.durability.is_complete(log.end_offset)


def test_a_segment_that_is_rolled_during_a_flush_is_left_to_the_next(home: Home) -> None:
    log = many_segments(home)
    for _ in range(2):
        flush = log.start_flush()
        flush.sync()
        log.end_flush(flush)
    flush = log.start_flush()
    base = log.segments.active.base
    home.files.fail("pwrite", errno.ENOSPC, once=False)
    log.roll()
    home.files.heal()
    flush.sync()
    log.end_flush(flush)
    assert not log.segments[-2].is_complete
    assert log.durability.recovery_point == base


def test_a_flush_may_be_wanted_by_bytes(home: Home) -> None:
    log = home.open(flush_bytes=3 * 1024, segment_bytes=2048)
    append(log, batch(b"." * 1400))
    assert 1400 < log.durability.unflushed_bytes < 1600
    assert not log.must_flush
    append(log, batch(b"." * 1400))
    append(log, batch(b"." * 1400))
    assert len(log.segments) == 3
    assert log.must_flush
    flush = log.start_flush()
    append(log, batch(b"." * 700))
    flush.sync()
    log.end_flush(flush)
    assert 700 < log.durability.unflushed_bytes < 900
    assert not log.must_flush
    truncate_to(log, 2)
    assert log.durability.unflushed_bytes == 0


def test_what_is_flushed_is_told_to_who_waits_for_it(home: Home) -> None:
    log = home.open(read_flushed_only=True)
    told: list[int] = []
    log.on_flushed = lambda: told.append(log.flushed_until)
    fill(log, 3)
    assert log.flushed_until == 0
    assert log.needs_flush(home.clock.now_ms())
    log.flush()
    assert not log.needs_flush(home.clock.now_ms())
    fill(log, 2)
    overtaken = log.start_flush()
    truncate_to(log, 2)
    fill(log, 3)
    overtaken.sync()
    log.end_flush(overtaken)
    assert (told, log.flushed_until) == ([3], 2)


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_kill_what_was_not_flushed_is_not_taken_for_that(home: Home, clean: bool) -> None:
    log = home.open(read_flushed_only=True)
    fill(log, 2)
    log.flush()
    fill(log, 3)
    log = home.reopen(clean=clean)
    assert (log.flushed_until, log.needs_flush(home.clock.now_ms())) == ((5, False) if clean else (2, True))
    log.flush()
    assert log.flushed_until == 5


def test_a_flush_that_a_truncation_overtook_counts_for_nothing(home: Home) -> None:
    log = home.open()
    fill(log, 10)
    flush = log.start_flush()
    flush.sync()
    truncate_to(log, 3)
    fill(log, 20)
    log.end_flush(flush)
    assert log.durability.recovery_point <= 3


def test_a_flush_that_overtakes_another_waits_for_the_same_names(home: Home) -> None:
    log = home.open()
    fill(log, 30)
    slow = log.start_flush()
    fill(log, 1)
    quick = log.start_flush()
    home.files.synced.clear()
    quick.sync()
    log.end_flush(quick)
    assert log.durability.recovery_point == 31
    assert {log.directory, log.epochs.path} <= set(home.files.synced)
    slow.sync()
    log.end_flush(slow)
    assert not log.durability.new_names


def test_names_that_come_during_a_flush_are_left_to_the_next(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    flush = log.start_flush()
    log.roll()
    log.assign_epoch(3, 3)
    flush.sync()
    log.end_flush(flush)
    home.files.synced.clear()
    log.flush()
    assert {log.directory, log.epochs.path} <= set(home.files.synced)


def test_a_clean_stop_waits_for_the_name_of_its_snapshot(home: Home) -> None:
    """Without it, the next start would take the log for one without producers."""
    log = home.open()
    append(log, batch(producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.flush()
    home.files.synced.clear()
    log.close()
    assert f"{1:020}.snapshot" in home.names()
    assert log.directory in home.files.synced
    again = home.open()
    home.files.synced.clear()
    again.close()
    assert again.directory not in home.files.synced, "nothing has changed since"


def test_a_flush_of_a_log_that_is_renamed_meanwhile_vouches_for_no_names(home: Home) -> None:
    log = home.open()
    fill(log, 3)
    flush = log.start_flush()
    log.rename(str(home.directory.with_name("t-1")))
    flush.sync()
    log.end_flush(flush)
    assert not log.durability.is_complete(3)
    assert log.flushed_until == 0, "its files may not have been found"
    home.files.synced.clear()
    log.flush()
    assert log.flushed_until == 3
    assert {log.directory, os.path.dirname(log.directory), log.epochs.path} <= set(home.files.synced)


def test_a_rename_takes_open_logs_along(home: Home) -> None:
    log = home.open()
    fill(log, 30)
    renamed = home.directory.with_name("t-0.0123456789abcdef0123456789abcdef-delete")
    log.rename(str(renamed))
    fill(log, 30)
    assert len(records(log)) == 60
    log.close()
    home.directory = renamed
    assert len(records(home.open())) == 60


def test_a_live_change_of_the_segment_size_takes_effect(home: Home) -> None:
    log = home.open(segment_bytes=1 << 20)
    fill(log, 20)
    assert len(log.segments) == 1
    log.update_config(home.config.__class__(segment_bytes=1000))
    fill(log, 20)
    assert len(log.segments) > 5


def test_a_look_up_costs_the_same_in_a_long_log(home: Home) -> None:
    log = home.open(segment_bytes=1000, index_interval_bytes=0)
    costs = []
    for segments in (3, 300):
        while len(log.segments) < segments:
            fill(log, 4, timestamp=log.end_offset)
        middle = log.segments[segments // 2].base + 1
        for warm in (True, False):
            before = sum(home.files.count.values())
            assert searched(offset_for_timestamp(log, middle)) == (middle, middle, 0)
            assert log.read(middle, 1, log.end_offset) is not None
            if not warm:
                costs.append(sum(home.files.count.values()) - before)
    assert costs[1] <= costs[0] + 1
