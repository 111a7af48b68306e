"""Aborted transactions are known whatever has become of the index that notes them."""

from __future__ import annotations

import errno
import os

import pytest

from kafkad.errors import StorageError
from kafkad.log.cleaning import dirt_of
from kafkad.log.log import Log
from kafkad.log.transactions import aborted_transactions
from kafkad.log.truncation import truncate_to
from kafkad.wire.control import ControlRecord, build_marker
from tests.fakes import FaultyFiles
from tests.log.conftest import Home, append, batch, fill


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
    assert log.segments.active.path(".txnindex") in log.start_flush().paths
    log = home.reopen(clean=False)
    assert aborted_transactions(log, 0, 10) == ([] if fully else [(5, 0)])


def test_a_flush_waits_for_the_name_of_a_new_index(home: Home) -> None:
    log = home.open()
    aborted(log, 5)
    log.flush()
    home.files.synced.clear()
    aborted(log, 6)
    log.flush()
    assert log.directory not in home.files.synced
    log.roll()
    log.flush()
    home.files.synced.clear()
    aborted(log, 7)
    log.flush()
    assert log.directory in home.files.synced


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
