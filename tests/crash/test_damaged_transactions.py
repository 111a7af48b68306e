"""A byte of `__transaction_state` flips: that is named, all other ids go on, and no end of a transaction is made up."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TRANSACTIONS_TOPIC, home_partition
from kafkad.wire.records import iter_batches
from tests.broker import KafkadProcess
from tests.txn.raw import Raw

PARTITIONS = 2
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": str(PARTITIONS),
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.cleaner.min.compaction.lag.ms": "0",
    "transaction.state.log.segment.bytes": "2000",
}
VALUE_AT = 90
"""Somewhere in the only record of a batch."""
S = 20

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def names(partition: int) -> Iterator[str]:
    """Transactional ids that are kept in this partition."""
    return (name for name in map("id-{}".format, itertools.count()) if home_partition(name, PARTITIONS) == partition)


def state_log(kafkad: KafkadProcess, partition: int) -> Path:
    return sorted((kafkad.log_directory() / f"{TRANSACTIONS_TOPIC}-{partition}").glob("*.log"))[0]


def flip(path: Path, number: int) -> int:
    """A byte in one of the file's batches; returns where that begins."""
    data = bytearray(path.read_bytes())
    at = [at for at, _ in iter_batches(memoryview(data))][number]
    data[at + VALUE_AT] ^= 1
    path.write_bytes(data)
    return at


def batches(path: Path) -> int:
    return len(list(iter_batches(memoryview(path.read_bytes()))))


def within_seconds(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + S
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def begin(raw: Raw, name: str, partition: int, timeout: int = 60_000) -> tuple[int, int]:
    """A transaction with one record in that partition of t."""
    producer = raw.new(name, timeout=timeout)
    assert raw.add(name, *producer, [("t", partition)]) == {f"t-{partition}": 0}
    assert raw.produce_one(name, *producer, 0, ("t", partition))[0] == 0
    return producer


def test_what_is_loaded_from_a_damaged_log(tmp_path: Path) -> None:
    lost, goes_on, done = itertools.islice(names(0), 3)
    elsewhere = next(names(1))
    settings = SETTINGS | {"transaction.state.log.segment.bytes": "1000000"}
    with KafkadProcess(tmp_path, settings) as kafkad:
        raw = Raw(kafkad.port)
        raw.create("t", 4)
        raw.coordinator([lost, elsewhere], 1)
        ended = begin(raw, done, 0)
        assert raw.end(done, *ended).error_code == 0
        producers = {
            lost: begin(raw, lost, 1, 2_000),
            goes_on: begin(raw, goes_on, 2),
            elsewhere: begin(raw, elsewhere, 3),
        }
        damaged = batches(state_log(kafkad, 0))
        assert raw.end(lost, *producers[lost]).error_code == 0, "that is damaged then, and what follows of it"
        last = batches(state_log(kafkad, 0))
        assert raw.add(goes_on, *producers[goes_on], [("t", 0)]) == {"t-0": 0}
        raw.close()
        kafkad.stop()
        path = state_log(kafkad, 0)
        places = [flip(path, number) for number in range(damaged, last)]
        kafkad.start()
        raw = Raw(kafkad.port)
        raw.coordinator([lost, elsewhere], 1)
        within_seconds(lambda: raw.describe(goes_on).error_code == 0, "the partition is loaded")
        assert f"skipped while loading {TRANSACTIONS_TOPIC}-0: {path}, position {places[0]}, " in kafkad.log
        assert f"transactional id {lost} cannot be used" in kafkad.log
        assert kafkad.log.count("cannot be used") == 1
        for name in (goes_on, elsewhere):
            assert raw.end(name, *producers[name]).error_code == 0
        assert raw.describe(done).transaction_state == "CompleteCommit"
        new = next(name for name in itertools.islice(names(0), 3, None))
        assert raw.end(new, *begin(raw, new, 0)).error_code == 0
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert raw.init(lost, wait=False).error_code == refused
        assert raw.end(lost, *producers[lost], commit=False).error_code == refused
        assert raw.describe(lost).error_code == refused
        time.sleep(2.1)  # longer than its time-out
        committed, end = (raw.offsets(("t", 1), isolation)[1] for isolation in (1, 0))
        assert committed == end == 2, "one record and the marker of its commit: nothing was aborted"
        raw.close()


def test_what_is_damaged_while_the_broker_runs_is_found_when_it_is_compacted(tmp_path: Path) -> None:
    first, second = itertools.islice(names(0), 2)
    elsewhere = next(names(1))
    with KafkadProcess(tmp_path, SETTINGS | {"log.cleaner.enable": "false"}) as kafkad:
        raw = Raw(kafkad.port)
        raw.create("t", 4)
        raw.coordinator([first, elsewhere], 1)
        for name in (first, second, elsewhere) * 8:
            assert raw.end(name, *begin(raw, name, 0)).error_code == 0
        raw.close()
        kafkad.stop()
        kafkad.settings["log.cleaner.backoff.ms"] = "2000"
        kafkad.settings["log.cleaner.enable"] = "true"
        kafkad.start()
        raw = Raw(kafkad.port)
        raw.coordinator([first, elsewhere], 1)
        producer = begin(raw, first, 0)
        path = state_log(kafkad, 0)
        place = flip(path, 2)
        within_seconds(lambda: f"{path}" in kafkad.log, "the damage is named")
        assert f"position {place}" in kafkad.log or f"from byte {place}" in kafkad.log
        assert raw.end(first, *producer).error_code == 0, "what the coordinator knows is sound"
        for name in (second, elsewhere):
            assert raw.end(name, *begin(raw, name, 1)).error_code == 0
        raw.close()
