"""What the log says of what a broker finds and deletes in its log directories."""

from __future__ import annotations

import pytest

from kafkad.broker.findings import Deletions
from kafkad.log.retention import Deletion
from kafkad.names import TopicPartition
from kafkad.timers import Timers
from tests.fakes import FakeClock

BY_SIZE = ("retention.bytes=1000000",)
BY_TIME = ("retention.ms=1000",)
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def timers(caplog: pytest.LogCaptureFixture) -> Timers:
    caplog.set_level("INFO", "kafkad.broker.findings")
    return Timers()


@pytest.fixture
def deletions(timers: Timers) -> Deletions:
    return Deletions(FakeClock().monotonic_ms, timers.at)


def test_of_all_segments_of_a_partition_that_go_within_a_second_there_is_one_line(
    deletions: Deletions, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    deletions.note(ORDERS, Deletion(16, 0, 5000, 1_600_000, BY_SIZE))
    deletions.note(ORDERS, Deletion(2, 5000, 6039, 200_000, (*BY_SIZE, *BY_TIME)))
    timers.expire(999)
    assert caplog.messages == []
    timers.expire(1_000)
    line = "orders-0: deleted offsets 0 to 6038, 18 segments with 1800000 bytes, by %s, %s"
    assert caplog.messages == [line % (*BY_SIZE, *BY_TIME)]
    deletions.note(ORDERS, Deletion(1, 6039, 6040, 70, BY_TIME))
    timers.expire(2_000)
    assert len(caplog.messages) == 2


def test_of_thousands_of_partitions_that_lose_segments_at_once_few_are_named(
    deletions: Deletions, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    for partition in range(3_000):
        deletions.note(TopicPartition("a", partition), Deletion(2, 0, 10, 100, BY_SIZE))
    timers.expire(1_000)
    assert len(caplog.messages) == 21
    assert caplog.messages[-1] == (
        "deleted 5960 segments of 2980 more partitions, with 298000 bytes, by retention.bytes=1000000"
    )


def test_a_broker_that_stops_tells_at_once_and_not_again(
    deletions: Deletions, timers: Timers, caplog: pytest.LogCaptureFixture
) -> None:
    deletions.note(ORDERS, Deletion(1, 0, 10, 100, BY_SIZE))
    deletions.tell()
    timers.expire(1_000)
    assert len(caplog.messages) == 1
