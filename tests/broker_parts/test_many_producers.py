"""A partition with very many producers begins a segment: their snapshot is written in later turns."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.errors import StorageError
from kafkad.log.log import Log
from kafkad.log.snapshots import Snapshots
from kafkad.wire.records import BatchHeader
from tests.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path)
    broker.create("t")
    yield broker
    broker.stop()


@pytest.fixture
def log(broker: OneBroker) -> Log:
    """With 2,500 producers, and an end as if each had sent a batch."""
    log = broker.replicas.get("t", 0).log
    for number in range(2_500):
        log.producers.update(BatchHeader(number, 100, 0, 2, 0, 0, 0, 1000, 1000, number, 0, 0, 1), number)
    log.skip_to(2_400)
    broker.settle()
    log.end_offset = 2_500
    return log


def test_it_is_written_in_later_turns(broker: OneBroker, log: Log) -> None:
    before = log.producers.snapshots.newest
    log.roll()
    assert log.producers.snapshots.newest == before
    broker.settle()
    assert log.producers.snapshots.newest == 2_500


def test_at_a_stop_it_is_written_before_logs_are_closed_in_threads(broker: OneBroker, log: Log) -> None:
    log.roll()
    broker.replicas.logs.finish_work_in_pieces()
    assert log.producers.snapshots.newest == 2_500
    broker.settle()


def test_a_disk_that_refuses_it_then_is_lost(broker: OneBroker, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(taken: Snapshots, offset: int, packed: bytes) -> Iterator[None]:
        raise StorageError(os.path.dirname(taken.directory), os.strerror(errno.EIO))
        yield

    monkeypatch.setattr(Snapshots, "write", refused)
    log.roll()
    broker.settle()
    partition = broker.replicas.find("t", 0)
    assert partition is not None and partition.failure is not None
