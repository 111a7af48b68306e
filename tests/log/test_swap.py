"""A cleaned segment takes the place of others, in an open log and when the process or the disk dies on the way."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.config import LogConfig
from kafkad.errors import KafkaError, StorageError
from kafkad.log.cleaning import put_in_place
from kafkad.log.compaction import Replacement
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.removal import DoomedFiles
from kafkad.log.time_search import offset_for_timestamp
from kafkad.log.transactions import aborted_transactions
from kafkad.log.truncation import truncate_to
from kafkad.names import TopicPartition
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.records import Record, build_batch
from tests.cleaner.cleaner import clean, write_cleaned
from tests.fakes import Died, FakeClock, MortalFiles
from tests.log.conftest import Home, append, fetch, records, remove_doomed, searched
from tests.log.consistency import check

KEYS = 5
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, cleanup_policy=frozenset({"compact"}))


def keyed(log: Log, count: int, **options: int) -> None:
    for _ in range(count):
        number = log.end_offset
        record = Record(0, 1000 + number, b"k%d" % (number % KEYS), b"v%d" % number + b"." * 80)
        append(log, build_batch([record], base_offset=0, **options))


def aborted(log: Log, producer_id: int) -> None:
    """A transaction without end in its first segment."""
    for sequence in range(6):
        record = Record(0, 1000, b"t%d" % sequence, b"." * 100)
        data = build_batch(
            [record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        append(log, data)
    append(log, build_marker(ControlRecord(False, 0), producer_id=producer_id, producer_epoch=0, timestamp=1000))


def filled(home: Home) -> Log:
    log = home.open(segment_bytes=CONFIG.segment_bytes, index_interval_bytes=CONFIG.index_interval_bytes)
    keyed(log, 12)
    aborted(log, 7)
    keyed(log, 12)
    assert len(log.segments) > 4
    return log


def values(log: Log) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.key) for record in records(log)]


def test_what_compaction_left_is_read_in_place_of_the_old(home: Home) -> None:
    log = filled(home)
    active, end = log.segments[-1].base, log.end_offset
    before, transactions = values(log), aborted_transactions(log, 0, log.end_offset)
    olds = [segment.base for segment in log.segments[1:-1]]
    new = clean(log)
    expected = [(o, k) for o, k in before if o >= active or not any(k == k2 and o < o2 < active for o2, k2 in before)]
    assert put_in_place(log, new)
    assert [segment.base for segment in log.segments] == [0, active]
    assert values(log) == expected != before
    assert aborted_transactions(log, 0, log.end_offset) == transactions
    assert not set(log.producers.snapshots.offsets) & set(olds)
    assert all(fetch(log, offset, 1) is not None for offset in range(end)), "every gap leads to what follows it"
    keyed(log, 3)
    assert records(log)[-1].offset == end + 2
    for clean_stop in (True, False):
        log = home.reopen(clean=clean_stop)
        assert values(log)[:-3] == expected
        assert aborted_transactions(log, 0, log.end_offset) == transactions


def test_offsets_of_whole_segments_may_be_gone(home: Home) -> None:
    log = filled(home)
    home.was_compacted = True
    bases = [segment.base for segment in log.segments]
    assert put_in_place(log, write_cleaned(log, bases[0:2], []))
    assert put_in_place(log, write_cleaned(log, bases[2:3], []))
    assert [segment.size == 0 for segment in log.segments[:2]] == [True, True]
    for offset in range(bases[3]):
        assert next(iter(records(log, offset))).offset == bases[3]
        assert fetch(log, offset, upto=bases[3]) is None
    assert searched(offset_for_timestamp(log, 0)) == (1000 + bases[3], bases[3], 0) or bases[3] < 19
    log = home.reopen(clean=False)
    assert records(log)[0].offset == bases[3]


def test_readers_go_on_with_what_they_were_given(home: Home) -> None:
    log = filled(home)
    part = log.read(0, 1 << 20, log.end_offset)
    assert part is not None
    before = os.pread(part.file.fd, part.length, part.position)
    log.update_config(CONFIG)
    assert put_in_place(log, clean(log))
    assert len(list(home.directory.glob("*.deleted"))) >= 9
    assert log.doomed.due(home.clock.now_ms()) == []
    home.clock.advance(CONFIG.file_delete_delay_ms)
    remove_doomed(log, home.clock.now_ms())
    assert not list(home.directory.glob("*.deleted"))
    assert os.pread(part.file.fd, part.length, part.position) == before


def test_a_log_that_changed_meanwhile_keeps_its_segments(home: Home) -> None:
    log = filled(home)
    new = clean(log)
    truncate_to(log, log.segments[-2].base)
    before = values(log)
    assert not put_in_place(log, new)
    assert values(log) == before
    assert not list(home.directory.glob("*.cleaned"))
    new = clean(log)
    with_active = new._replace(old=(*new.old, log.segments[-1].base))
    assert not put_in_place(log, with_active), "the active one is never replaced"
    for base in (new.base + 1, new.old[1]):
        assert not put_in_place(log, Replacement(base, new.size, new.old))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("after", range(3))
def test_a_disk_that_refuses_at_the_beginning_leaves_the_old(home: Home, code: int, after: int) -> None:
    log = filled(home)
    before = values(log)
    new = clean(log)
    home.files.fail("rename", code, after=after)
    with pytest.raises(StorageError) as refused:
        put_in_place(log, new)
    assert isinstance(refused.value.__cause__, OSError)
    assert not [*home.directory.glob("*.cleaned"), *home.directory.glob("*.swap")]
    assert values(log) == before
    assert put_in_place(log, clean(log))


def test_an_incomplete_product_is_refused(home: Home) -> None:
    log = filled(home)
    new = clean(log)
    next(home.directory.glob("*.index.cleaned")).unlink()
    with pytest.raises(StorageError):
        put_in_place(log, new)
    assert not [*home.directory.glob("*.cleaned"), *home.directory.glob("*.swap")]


def test_a_disk_that_refuses_half_way_costs_the_directory(home: Home) -> None:
    log = filled(home)
    new = clean(log)
    after = {record.offset for record in records(log)}
    home.files.fail("rename", errno.ENOSPC, after=6)
    with pytest.raises(StorageError) as refused:
        put_in_place(log, new)
    assert refused.value.__cause__ is None, "not one of the errors that may pass"
    assert refused.value.directory == str(home.directory.parent)
    log.close(clean=False)
    log = home.open(clean=False)
    assert {record.offset for record in records(log)} < after


def test_producers_of_records_that_are_gone_may_go_on(home: Home) -> None:
    """Kafka forgets a silent producer, and takes its next batch whatever its number is."""
    log = home.open(segment_bytes=900)
    keyed(log, 1, producer_id=5, producer_epoch=0, base_sequence=0)
    keyed(log, 12)
    assert put_in_place(log, write_cleaned(log, [segment.base for segment in log.segments[:-1]], []))
    log.close(clean=False)
    for path in home.directory.glob("*.snapshot"):
        path.unlink()
    log = home.open(clean=False)
    keyed(log, 1, producer_id=5, producer_epoch=0, base_sequence=1)
    with pytest.raises(KafkaError):
        keyed(log, 1, producer_id=5, producer_epoch=0, base_sequence=9)


class Scene:
    """A directory in which a cleaned segment waits, and what may be read before and after it took its place."""

    def __init__(self, home: Home, tmp_path: Path) -> None:
        log = filled(home)
        self.before = set(values(log))
        self.transactions = aborted_transactions(log, 0, log.end_offset)
        self.end = log.end_offset
        log.flush()
        self.new = [clean(log, log.segments[0:2]), clean(log, log.segments[2:-1])]
        self.recovery_point = log.durability.recovery_point
        log.close(clean=False)
        self.waiting = tmp_path / "waiting"
        shutil.copytree(home.directory, self.waiting)
        for new in self.new:
            assert put_in_place(log, new)
        self.after = set(values(log))
        self._copies = tmp_path
        self._count = 0

    def copy(self, source: Path | None = None) -> Path:
        self._count += 1
        directory = self._copies / f"copy-{self._count}" / "t-0"
        shutil.copytree(source or self.waiting, directory)
        return directory

    def open(self, directory: Path, files: Files, *, clean: bool = False) -> Log:
        return Log.open(
            str(directory),
            CONFIG,
            files,
            FakeClock(),
            topic_partition=TopicPartition("t", 0),
            recovery_point=self.recovery_point,
            clean=clean,
        )

    def deaths(self) -> Iterator[Path]:
        """The directory after a death at each step of both replacements."""
        for lives in range(100):
            directory = self.copy()
            files = MortalFiles(1 << 30)
            log = self.open(directory, files)
            shutil.rmtree(directory)
            shutil.copytree(self.waiting, directory)
            files.lives = lives
            try:
                for new in self.new:
                    assert put_in_place(log, new)
            except Died:
                yield directory
            else:
                return

    def judge(self, log: Log) -> None:
        found = set(values(log))
        assert self.after <= found <= self.before
        assert log.end_offset == self.end
        assert aborted_transactions(log, 0, log.end_offset) == self.transactions
        names = os.listdir(log.directory)
        assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        log.close()
        assert check(log.directory) == []


def test_a_death_at_every_step_leads_to_the_old_or_the_new(home: Home, tmp_path: Path) -> None:
    scene = Scene(home, tmp_path)
    outcomes = []
    for directory in scene.deaths():
        log = scene.open(directory, Files())
        outcomes.append(len(values(log)))
        scene.judge(log)
    assert len(outcomes) > 20
    assert outcomes[0] == len(scene.before) and outcomes[-1] == len(scene.after)
    assert sorted(outcomes, reverse=True) == outcomes, "each step leads on, none back"


def test_starts_that_die_one_after_the_other_get_there_in_the_end(home: Home, tmp_path: Path) -> None:
    scene = Scene(home, tmp_path)
    starts = 0
    for directory in scene.deaths():
        for lives in range(100):
            starts += 1
            files = MortalFiles(lives)
            with contextlib.suppress(Died):
                log = scene.open(directory, files)
                break
        files.lives = 1 << 30
        scene.judge(log)
    assert starts > 60


@pytest.mark.slow
def test_a_death_at_every_step_of_the_next_start_changes_nothing(home: Home, tmp_path: Path) -> None:
    scene = Scene(home, tmp_path)
    starts = 0
    for directory in scene.deaths():
        for lives in range(100):
            again = scene.copy(directory)
            try:
                scene.open(again, MortalFiles(lives))
            except Died:
                starts += 1
                scene.judge(scene.open(again, Files()))
            else:
                break
    assert starts > 150


def test_what_gets_the_name_of_a_file_that_is_being_removed_is_removed_later(home: Home) -> None:
    """The disk takes a while to remove a large one, whose name is free for the next meanwhile."""
    log = home.open()
    path = f"{log.directory}/{9:020d}.index"
    doomed = DoomedFiles(log.directory, home.files, home.clock, 0)

    def doom(due_ms: int) -> None:
        Path(path).write_bytes(b"")
        doomed.delay_ms = due_ms - home.clock.now_ms()
        doomed.add(path)

    doom(1000)
    [being_removed] = doomed.due(1000)
    was_at = being_removed.path
    doomed.forget(being_removed.name)
    doom(2000)
    being_removed.was_tried(was_at, 1001, is_gone=True)
    assert [due.path for due in doomed.due(2000)] == [was_at]
