"""All brokers go down, and one of them comes back with log directories that are new."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.broker.identity import claim_directories
from kafkad.config import LogConfig
from kafkad.controller.registration import prepare
from kafkad.controller.topics import new_partition
from kafkad.log.checkpoint import RECOVERY_POINTS
from kafkad.log.manager import LogManager
from kafkad.meta.embedded import EmbeddedStore
from kafkad.meta.store import Create
from kafkad.meta.znodes import Controller, Topic
from kafkad.model import NO_LEADER, PartitionAssignment, PartitionState
from kafkad.names import TopicPartition
from tests.broker_parts.outage import (
    A0,
    VALUES,
    all_down,
    allow_unclean,
    elect_unclean,
    end,
    leads,
    replace,
    say_in_sync,
    state,
)
from tests.broker_parts.several import Brokers
from tests.fakes import FakeClock
from tests.one_broker import NoSync


def test_a_broker_on_a_new_disk_leads_only_after_it_has_caught_up(brokers: Brokers, tmp_path: Path) -> None:
    """By Kafka's rules the first one up leads, and the others cut off all that they have."""
    all_down(brokers, 1, 2, isr=(1, 2))
    replace(tmp_path / "1")
    brokers.start(1)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (NO_LEADER, (2,))
    brokers.start(2)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert state(brokers).leader == 2
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)
    brokers.leave(2)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    brokers.leave(1)
    brokers.start(1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert end(brokers, 1) == len(VALUES)


def test_a_replica_that_a_new_controller_finds_in_sync_is_not_made_before_it_is_out_of_the_isr(
    brokers: Brokers, tmp_path: Path
) -> None:
    """It cannot leave by itself, for another leads; and with a part of the log it could lead after the next start."""
    all_down(brokers, 1, 2, isr=(1, 2))
    brokers.leave(3)
    say_in_sync(brokers, 1, 2)
    elections = brokers.store.session()
    brokers.run(elections.create(Controller.path(), Controller(9, 0).encode(), ephemeral=True))
    replace(tmp_path / "2")
    brokers.start(3, 1, 2)
    assert state(brokers).isr == (1, 2)
    brokers.run(elections.close())
    brokers.until(lambda: brokers[2].parts.replicas.find(*A0) is not None, advance_ms=10)
    assert state(brokers).isr == (1,)
    brokers.until(lambda: state(brokers).isr == (1, 2), advance_ms=10)
    assert end(brokers, 2) == len(VALUES)
    brokers.leave(1)
    brokers.until(lambda: leads(brokers, 2), advance_ms=10)


def test_the_last_one_in_sync_waits_and_does_not_forget_by_starting_again(brokers: Brokers, tmp_path: Path) -> None:
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    for _ in range(2):
        brokers.start(1)
        brokers.work_for(2_000)
        assert (state(brokers).leader, state(brokers).isr) == (NO_LEADER, (1,))
        brokers.leave(1)


@pytest.mark.parametrize("allow", [elect_unclean, allow_unclean])
def test_an_unclean_election_takes_any_other_replica_before_one_that_has_nothing(
    brokers: Brokers, tmp_path: Path, allow: Callable[[Brokers], None]
) -> None:
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1, 2)
    brokers.work_for(2_000)
    assert (state(brokers).leader, state(brokers).isr) == (NO_LEADER, (1,))
    allow(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 2}, advance_ms=10)
    assert leads(brokers, 2)
    assert end(brokers, 1) == end(brokers, 2) == len(VALUES)


@pytest.mark.parametrize("starts", [1, 2])
def test_one_that_has_left_the_isr_does_not_lead_uncleanly_while_another_is_there(
    brokers: Brokers, tmp_path: Path, starts: int
) -> None:
    all_down(brokers, 1, 2, 3, isr=(1, 2))
    replace(tmp_path / "1")
    for _ in range(starts):
        brokers.leave(*brokers.running.keys() & {1})
        brokers.start(1)
        brokers.work_for(2_000)
        assert (state(brokers).leader, state(brokers).isr) == (NO_LEADER, (2,))
    elect_unclean(brokers)
    brokers.until(lambda: set(state(brokers).isr) == {1, 3}, advance_ms=10)
    assert leads(brokers, 3)
    assert end(brokers, 1) == end(brokers, 3) == len(VALUES)


@pytest.mark.parametrize("allow", [elect_unclean, allow_unclean])
def test_one_that_has_nothing_leads_by_an_unclean_election_if_no_other_replica_is_there(
    brokers: Brokers, tmp_path: Path, allow: Callable[[Brokers], None], caplog: pytest.LogCaptureFixture
) -> None:
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1)
    brokers.work_for(2_000)
    allow(brokers)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert end(brokers, 1) == 0
    assert "a-0 has lost its records from 0 on, with its log directory, and leads without them" in caplog.messages


def test_the_only_replica_begins_empty_and_says_so(
    brokers: Brokers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    all_down(brokers, 1, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
    assert end(brokers, 1) == 0
    [told] = [each for each in caplog.records if "with its log directory" in each.message]
    assert (told.levelno, told.message) == (
        logging.ERROR,
        "a-0 has lost its records from 0 on, with its log directory, and leads without them",
    )


def make_unheard_of(brokers: Brokers) -> None:
    """As a controller that goes down before it has told anybody of the new topic."""
    topic = Topic(b"i" * 16, {0: PartitionAssignment(replicas=(1, 2))})
    first = PartitionState(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=1)
    made = [Create(Topic.path("a"), topic.encode()), Create(Topic.partitions_path("a"))]
    brokers.run(brokers.store.session().multi([*made, *new_partition("a", 0, first)]))


def test_a_partition_that_no_broker_had_heard_of_before_all_went_down_gets_a_leader(brokers: Brokers) -> None:
    """Nothing was lost with a log directory: all are older."""
    brokers.meet()
    brokers.leave(1, 2, 3)
    make_unheard_of(brokers)
    brokers.start(3, 1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)


def test_a_partition_that_was_made_after_the_directory_was_replaced_gets_a_leader(
    brokers: Brokers, tmp_path: Path
) -> None:
    """The first requests of a controller are lost with it, and the next one does not say that the partition is new."""
    brokers.meet()
    brokers.create("b", (1, 2))
    brokers.leave(1)
    replace(tmp_path / "1")
    brokers.start(1)
    brokers.until(lambda: brokers[1].parts.replicas.find("b", 0) is not None, advance_ms=10)
    brokers.leave(1, 2, 3)
    make_unheard_of(brokers)
    brokers.start(3, 1)
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)


def test_since_when_log_directories_are_as_they_are(tmp_path: Path) -> None:
    """One that comes, one that goes, and one on a new disk count; not one that has lost a checkpoint."""
    one, two = tmp_path / "one", tmp_path / "two"
    store = EmbeddedStore.in_memory(FakeClock()).session()
    asyncio.run(prepare(store))

    def since(*directories: Path) -> int:
        logs = LogManager([str(directory) for directory in directories], NoSync(), FakeClock())
        logs.lock()
        try:
            return asyncio.run(claim_directories(store, logs, "cluster", 1, alone=False))
        finally:
            for directory in logs.directories:
                directory.release()

    first = since(one)
    assert 0 < first == since(one)
    came = since(one, two)
    assert first < came == since(one, two) == since(two, one), "their order has no meaning"
    went = since(one)
    assert came < went == since(one)
    replace(one)
    replaced = since(one)
    assert went < replaced == since(one)
    (one / "a-0").mkdir()
    (one / RECOVERY_POINTS).unlink()
    assert since(one) == replaced


def test_nothing_is_missing_while_a_directory_is_offline_and_the_next_start_still_knows(tmp_path: Path) -> None:
    """It may have what is not found. What was on a disk that is new since then is missing once all are there."""
    one, two, away = tmp_path / "one", tmp_path / "two", tmp_path / "away"
    store = EmbeddedStore.in_memory(FakeClock()).session()
    asyncio.run(prepare(store))
    b0 = TopicPartition("b", 0)

    def started(new: dict[TopicPartition, Path]) -> tuple[int, set[TopicPartition]]:
        """Since when the directories are as they are, and what is missing; then `new` partitions are made."""
        logs = LogManager([str(one), str(two)], NoSync(), FakeClock())
        logs.lock()
        since = asyncio.run(claim_directories(store, logs, "cluster", 1, alone=False))
        logs.load(lambda topic: LogConfig())
        missing = logs.missing({A0: b"a" * 16, b0: b"b" * 16})
        for tp, place in new.items():
            logs.create(tp, b"i" * 16, LogConfig(), directory=str(place))
        logs.close()
        for directory in logs.directories:
            directory.release()
        return since, {*missing}

    first, _ = started({A0: one, b0: two})
    two.rename(away)
    two.write_text("not mounted")
    replace(one)
    replaced, missing = started({})
    assert first < replaced
    assert missing == set()
    two.unlink()
    away.rename(two)
    assert started({}) == (replaced, {A0})


def test_another_topic_of_that_name_has_lost_nothing(brokers: Brokers, tmp_path: Path) -> None:
    """This one was deleted while the broker waited for somebody who has its records."""
    all_down(brokers, 1, 2, isr=(1,))
    replace(tmp_path / "1")
    brokers.start(1, 2)
    brokers.work_for(2_000)
    assert not leads(brokers, 1)
    [deleted] = brokers.ended(brokers.controller.parts.controller.delete_topics(["a"], timeout_ms=5_000))
    assert deleted.error is None
    brokers.create("a", (1, 2))
    brokers.until(lambda: leads(brokers, 1), advance_ms=10)
