"""What the coordinator decides before the machine of a transactional id is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.metrics import PAUSE
from kafkad.names import TopicPartition
from kafkad.shard import Coordination
from kafkad.shard.coordination import LoadTimes
from kafkad.txn.coordinator import TransactionCoordinator, TransactionSettings
from kafkad.txn.machine import Codes, TransactionMachine
from kafkad.txn.transaction import Answer
from tests.txn.life import HERE, Life, scenario

T0, NEW0 = TopicPartition("t", 0), TopicPartition("new", 0)
Producer = tuple[int, int]


class LifeCoordination:
    """One shard, with the machine of a life."""

    def __init__(self, machine: TransactionMachine) -> None:
        self.machine = machine
        self.load_times = LoadTimes()

    def shard(self, key: str) -> LifeCoordination:
        return self

    def shards(self) -> list[LifeCoordination]:
        return [self]


def coordinator_of(
    life: Life, offsets_partition: Callable[[str], TopicPartition] = lambda group: T0
) -> TransactionCoordinator:
    settings = TransactionSettings(max_timeout_ms=60_000, expiration_ms=60_000, check_interval_ms=1_000)
    return TransactionCoordinator(
        cast(Coordination[TransactionMachine], LifeCoordination(life.machine)),
        life.queues,
        settings,
        life.probe,
        offsets_partition,
        clock=life.clock,
        timers=life.timers,
    )


def add(coordinator: TransactionCoordinator, producer: Producer, *partitions: TopicPartition, **more: Any) -> Codes:
    answers: list[Codes] = []
    how = {"verify_only": False, "version": 2} | more
    coordinator.add_partitions("a", *producer, partitions, done=answers.append, **how)
    [codes] = answers
    return codes


@scenario
async def test_no_partition_comes_into_a_transaction_before_its_marker_can_be_brought_to_it() -> None:
    life = Life()
    coordinator = coordinator_of(life)
    producer = await life.new()
    assert not coordinator.lets_in("a", *producer, [T0, NEW0], adds=True)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert add(coordinator, producer, T0, NEW0) == {T0: ErrorCode.OPERATION_NOT_ATTEMPTED, NEW0: unknown}
    assert add(coordinator, producer, TopicPartition("t", 3)) == {("t", 3): unknown}
    assert not life.known().partitions

    life.leaders("new", [HERE])
    assert coordinator.lets_in("a", *producer, [T0], adds=True)
    assert add(coordinator, producer, NEW0) == {NEW0: ErrorCode.NONE}
    life.end(producer, True, bump=True)
    [marker] = life.markers
    assert set(marker.partitions) == {T0, NEW0}


@scenario
async def test_nothing_is_let_in_on_the_spot_that_has_no_marker_to_expect() -> None:
    life = Life()
    coordinator = coordinator_of(life)
    producer = await life.new()
    life.add(producer, 0)
    assert coordinator.lets_in("a", *producer, [T0], adds=False)
    del life.metadata.topics["t"]
    assert not coordinator.lets_in("a", *producer, [T0], adds=False)
    assert add(coordinator, producer, T0, verify_only=True) == {T0: ErrorCode.NONE}


@scenario
async def test_ids_are_forgotten_also_after_an_error() -> None:
    class Failing(LifeCoordination):
        asked = 0

        def start(self) -> None:
            pass

        async def stop(self) -> None:
            pass

        def shards(self) -> list[LifeCoordination]:
            self.asked += 1
            if self.asked == 1:
                raise RuntimeError("bug")
            return super().shards()

    life = Life()
    coordinator = coordinator_of(life)
    failing = Failing(life.machine)
    coordinator.coordination = cast(Coordination[TransactionMachine], failing)
    coordinator.start()
    for _ in range(2):
        await asyncio.sleep(0)
        life.advance(1_000)
        await asyncio.sleep(0)
    assert failing.asked == 2
    await coordinator.stop()


def test_the_log_names_who_used_a_transaction_last_that_has_timed_out(caplog: pytest.LogCaptureFixture) -> None:
    """Who is not named takes nobody's place."""
    caplog.set_level(logging.INFO)

    async def time_out() -> None:
        life = Life()
        coordinator = coordinator_of(life)
        producer = await life.new(timeout_ms=1_000)
        assert coordinator.lets_in("a", *producer, [T0], adds=True, client="somebody")
        add(coordinator, producer, TopicPartition("t", 1))
        life.advance(1_001)

    asyncio.run(time_out())
    assert "the last request for it came from somebody" in caplog.text


@scenario
async def test_who_adds_offsets_of_a_group_whose_partition_is_not_known_is_told_so() -> None:
    def not_known(group: str) -> TopicPartition:
        raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    life = Life()
    answers: list[Answer] = []
    coordinator_of(life, not_known).add_offsets("a", *(await life.new()), "g", answers.append)
    assert answers == [Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]


@scenario
async def test_transactional_ids_in_thousands_are_counted_some_at_a_time() -> None:
    """A client may end its transaction meanwhile."""
    life = Life()
    producer = await life.new()
    life.add(producer, 0)
    known = life.known()
    life.machine.transactions.update({str(number): known._replace(id=str(number)) for number in range(1_299)})
    told = list(coordinator_of(life).collect())
    assert told.count(PAUSE) == 2
    counts = {family.name: value for family in told if family is not None for _, value in family.samples}
    assert counts["kafkad_transactions_open"] == 1_300
