"""Producer snapshots and transaction indexes against the files that real Kafka wrote."""

from __future__ import annotations

import contextlib
import os
import re
from array import array
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkad.errors import StorageError
from kafkad.log import snapshots, txnindex
from kafkad.log.files import Files
from kafkad.log.snapshots import ProducerEntry, Snapshots
from kafkad.log.txnindex import AbortedTransaction, TransactionIndex
from kafkad.turns import at_once
from tests.log.mutated import mutated

GOLDEN = Path(__file__).parent.parent / "golden" / "logs"
SNAPSHOTS = sorted(p for p in GOLDEN.rglob("*.snapshot") if "damaged" not in p.parts)
TXN_INDEXES = sorted(p for p in GOLDEN.rglob("*.txnindex") if "damaged" not in p.parts)
ENTRY = ProducerEntry(7, 1, 41, 99, 3, 1_700_000_000_000, 2, 90)


def expected(path: Path) -> str:
    return (GOLDEN / "expected" / path.relative_to(GOLDEN)).with_name(path.name + ".txt").read_text()


def numbers(line: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", line)]


def encoded(entries: Iterable[ProducerEntry]) -> bytes:
    return snapshots.encode(b"".join(map(snapshots.pack, entries)))


def write(taken: Snapshots, offset: int, entries: Iterable[ProducerEntry]) -> None:
    at_once(taken.write(offset, b"".join(map(snapshots.pack, entries))))


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_kafkas_snapshots_are_read_and_rewritten_byte_for_byte(path: Path) -> None:
    entries = list(snapshots.decode(path.read_bytes()))
    assert encoded(entries) == path.read_bytes()
    lines = [line for line in expected(path).splitlines() if line.startswith("producerId")]
    assert len(lines) == len(entries)
    for line, entry in zip(lines, entries, strict=True):
        assert f"producerId: {entry.producer_id} producerEpoch: {entry.epoch}" in line
        assert f"coordinatorEpoch: {entry.coordinator_epoch}" in line
        assert f"lastTimestamp: {entry.timestamp}" in line


@pytest.mark.parametrize("path", TXN_INDEXES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_kafkas_transaction_indexes_are_read_and_rewritten_byte_for_byte(path: Path) -> None:
    entries = txnindex.decode(path.read_bytes())
    assert txnindex.encode(entries) == path.read_bytes()
    lines = [line for line in expected(path).splitlines() if "producerId" in line]
    assert [numbers(line)[-4:] for line in lines] == [list(entry) for entry in entries]


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b"", lambda b: b[:9], lambda b: b[:12] + b"\xff" + b[13:], lambda b: b"\0\2" + b[2:]],
)
def test_a_broken_snapshot_is_told(damage) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(snapshots.BrokenSnapshotError):
        snapshots.decode(damage(encoded([ENTRY])))


def test_the_newest_whole_snapshot_is_loaded_and_a_broken_one_deleted(tmp_path: Path) -> None:
    taken = Snapshots(str(tmp_path), Files())
    write(taken, 10, [ENTRY])
    write(taken, 20, [])
    (tmp_path / snapshots.file_name(20)).write_bytes(b"torn")
    newest = taken.load_newest()
    assert newest is not None
    assert (newest[0], list(newest[1])) == (10, [ENTRY])
    assert os.listdir(tmp_path) == [snapshots.file_name(10)]
    assert taken.newest == 10


def test_snapshots_outside_the_log_go(tmp_path: Path) -> None:
    taken = Snapshots(str(tmp_path), Files())
    for offset in (30, 10, 20, 40):
        write(taken, offset, [])
    taken.keep_within(10, 30)
    assert list(taken.offsets) == [20, 30]
    assert sorted(os.listdir(tmp_path)) == [snapshots.file_name(20), snapshots.file_name(30)]
    taken.keep_within(50, 50)
    assert os.listdir(tmp_path) == []


def test_what_is_in_doubt_stays_if_it_is_written_again_as_it_was_and_goes_if_not(tmp_path: Path) -> None:
    taken = Snapshots(str(tmp_path), Files())
    for offset in (10, 20, 30, 40):
        write(taken, offset, [ENTRY])
    files = {offset: tmp_path / snapshots.file_name(offset) for offset in (20, 30)}
    inodes = {offset: file.stat().st_ino for offset, file in files.items()}
    taken.doubt(10)
    assert list(taken.offsets) == [10]
    write(taken, 20, [ENTRY])
    write(taken, 30, [])
    assert files[20].stat().st_ino == inodes[20]
    assert list(snapshots.decode(files[30].read_bytes())) == []
    taken.delete_doubtful()
    assert sorted(os.listdir(tmp_path)) == [snapshots.file_name(offset) for offset in taken.offsets]
    assert list(taken.offsets) == [10, 20, 30]


def test_a_disk_that_refuses_a_snapshot_names_its_log_directory(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refusal:
        write(Snapshots(str(tmp_path / "t-0"), Files()), 1, [])
    assert refusal.value.directory == str(tmp_path)


def aborted(first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(1, first, last, stable)


def test_a_transaction_index_has_no_file_until_a_transaction_is_aborted(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / "00000000000000000000.txnindex"
    path.parent.mkdir()
    index = TransactionIndex(str(path), Files(), exists=False)
    assert index.collect(0, 100) == ([], False)
    assert not path.exists()
    index.append(aborted(3, 9, 10))
    assert txnindex.decode(path.read_bytes()) == [aborted(3, 9, 10)]


def test_what_a_reader_must_skip_is_collected_until_no_later_entry_can_matter(tmp_path: Path) -> None:
    path = str(tmp_path / "00000000000000000000.txnindex")
    index = TransactionIndex(path, Files(), exists=False)
    entries = [aborted(0, 10, 5), aborted(5, 15, 12), aborted(12, 20, 21), aborted(30, 40, 41)]
    for entry in entries:
        index.append(entry)
    for asked in (index, TransactionIndex(path, Files(), exists=True)):
        assert asked.collect(0, 4) == ([entries[0]], True)
        assert asked.collect(11, 14) == (entries[1:3], True)
        assert asked.collect(0, 100) == (entries, False)
        assert asked.collect(25, 30) == ([], True)
    index.truncate(15)
    assert list(index.entries) == entries[:1]
    index.append(entries[2])
    assert list(TransactionIndex(path, Files(), exists=True).entries) == [entries[0], entries[2]]
    index.replace([])
    assert Path(path).read_bytes() == b""
    index.flush()


def test_of_many_transactions_behind_a_long_one_a_reader_looks_at_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more of them become objects than it gets, either."""
    looks, made = [], []

    class Column(array):  # type: ignore[type-arg]
        def __getitem__(self, number: Any) -> Any:
            looks.append(number)
            return super().__getitem__(number)

    class Made(AbortedTransaction):
        @classmethod
        def _make(cls, fields: Any) -> Made:
            made.append(fields)
            return super()._make(fields)

    path = tmp_path / "0.txnindex"
    entries = [aborted(10 + n * 2, 11 + n * 2, 5) for n in range(5000)]
    path.write_bytes(txnindex.encode(entries))
    monkeypatch.setattr(txnindex, "AbortedTransaction", Made)
    index = TransactionIndex(str(path), Files(), exists=True)
    index.entries._columns = tuple(Column("q", column) for column in index.entries._columns)
    index.collect(0, 0)
    looks.clear()
    assert index.collect(100, 120) == (entries[45:55], False)
    assert len(looks) < 1_200
    assert len(made) == 10
    index.append(aborted(110, 10_010, 5))
    assert index.collect(100, 120) == ([*entries[45:55], aborted(110, 10_010, 5)], False)


class OneFile(Files):
    def __init__(self, content: bytes) -> None:
        self.read = lambda path: content  # type: ignore[method-assign]


@settings(max_examples=30, deadline=None)
@given(st.randoms(use_true_random=False))
def test_what_is_collected_is_what_a_look_at_every_transaction_finds(random: Random) -> None:
    entries = []
    last = stable = 0
    for _ in range(random.randrange(1200)):
        last += random.randint(1, 3)
        first = max(last - random.choice((0, 1, 5, 3000)), 0)
        stable = max(stable, random.randint(0, last + 1)) if random.random() < 0.01 else stable
        entries.append(aborted(first, last, stable))
    index = TransactionIndex("t-0/0.txnindex", OneFile(txnindex.encode(entries)), exists=True)
    for _ in range(20):
        start = random.randint(0, last + 5)
        upto = start + random.choice((1, 10, 1000))
        assert index.collect(start, upto) == looked_for(entries, start, upto)


def looked_for(entries: list[AbortedTransaction], start: int, upto: int) -> tuple[list[AbortedTransaction], bool]:
    found = []
    for entry in entries:
        if entry.last_offset >= start:
            if entry.first_offset < upto:
                found.append(entry)
            if entry.last_stable_offset >= upto:
                return found, True
    return found, False


def test_a_broken_transaction_index_is_told() -> None:
    good = txnindex.encode([aborted(0, 10, 5), aborted(5, 15, 12)])
    for broken in (good[:-1], good[34:] + good[:34], b"\0\1" + good[2:]):
        with pytest.raises(txnindex.BrokenTransactionIndexError):
            txnindex.decode(broken)


def test_an_entry_out_of_order_is_refused(tmp_path: Path) -> None:
    index = TransactionIndex(str(tmp_path / "0.txnindex"), Files(), exists=False)
    index.append(aborted(0, 10, 11))
    with pytest.raises(ValueError, match="not after"):
        index.append(aborted(5, 10, 11))


@given(mutated(*(path.read_bytes() for path in (*SNAPSHOTS[:5], *TXN_INDEXES[:5]))))
def test_whatever_is_in_a_file_it_is_read_or_told_broken(content: bytes) -> None:
    with contextlib.suppress(snapshots.BrokenSnapshotError):
        assert encoded(snapshots.decode(content)) == content
    with contextlib.suppress(txnindex.BrokenTransactionIndexError):
        assert txnindex.encode(txnindex.decode(content)) == content
