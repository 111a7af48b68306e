"""A scan goes on while its log is compacted, grows, or loses its files."""

from __future__ import annotations

import pytest

from kafkad.log.cleaning import put_in_place
from kafkad.log.log import Log
from kafkad.log.scan import SkippedStretch, scan
from kafkad.wire.records import Record, build_batch, iter_records
from tests.cleaner.cleaner import clean
from tests.log.conftest import Home, append

KEYS, COUNT = 5, 40


@pytest.fixture
def log(home: Home) -> Log:
    log = home.open(segment_bytes=900, index_interval_bytes=100)
    fill(log, COUNT)
    assert len(log.segments) > 4
    return log


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        number = log.end_offset
        record = Record(0, 1000 + number, b"k%d" % (number % KEYS), b"v%d" % number + b"." * 80)
        append(log, build_batch([record], base_offset=0))


def state(
    log: Log, pause_after: int = COUNT, disturb: object = None
) -> tuple[dict[bytes, bytes], list[SkippedStretch]]:
    """The last value of each key; after some batches, `disturb` is called."""
    latest: dict[bytes, bytes] = {}
    damage: list[SkippedStretch] = []
    for number, (data, at, header) in enumerate(scan(log, damage.append)):
        for record in iter_records(memoryview(data), at, header):
            assert record.key is not None and record.value is not None
            latest[record.key] = record.value
        if number == pause_after and callable(disturb):
            disturb()
    return latest, damage


@pytest.mark.parametrize("pause_after", [0, 3, 9, 20, 30])
def test_compaction_meanwhile_leaves_the_last_values(log: Log, pause_after: int) -> None:
    before, _ = state(log)

    def compact() -> None:
        assert put_in_place(log, clean(log))

    assert state(log, pause_after, compact) == (before, [])
    assert len(log.segments) == 2
    assert state(log) == (before, [])


def test_what_is_appended_meanwhile_is_seen(log: Log) -> None:
    found, damage = state(log, 3, lambda: fill(log, 7))
    assert found == state(log)[0]
    assert found[b"k1"].startswith(b"v46")
    assert not damage


def test_a_scan_begins_where_the_log_does(log: Log) -> None:
    log.increment_start_offset(COUNT - 2)
    assert {value.partition(b".")[0] for value in state(log)[0].values()} == {b"v38", b"v39"}


def test_a_batch_larger_than_what_is_read_at_once_is_given_whole(home: Home) -> None:
    log = home.open(segment_bytes=1 << 23, max_message_bytes=1 << 22)
    sizes = [10, 3 << 20, 10, (1 << 20) - 200, 10, 1 << 20, 10]
    for number, size in enumerate(sizes):
        append(log, build_batch([Record(0, 1, b"k%d" % number, b"." * size)], base_offset=0))
    found, damage = state(log)
    assert ([len(value) for value in found.values()], damage) == (sizes, [])
