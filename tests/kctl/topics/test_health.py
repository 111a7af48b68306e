from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafkad.wire.messages.metadata import MetadataResponsePartition
from kctl.brokers.release import caps_min_isr
from kctl.topics.health import (
    Needed,
    TopicHealthFacts,
    partition_health,
    replication,
    share_needlessly,
    topic_health,
)

RACKS = {1: "a", 2: "b", 3: "c"}


def partition(leader: int, replicas: list[int], isr: list[int], index: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)


@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "min_isr", "expected"),
    [
        (1, [1, 2, 3], [1, 2, 3], 2, ["ok"]),
        (2, [1, 2, 3], [2, 3, 1], 2, ["not-preferred"]),
        (1, [1, 2, 3], [1, 2], 2, ["at-min-isr", "under-replicated"]),
        (1, [1, 2, 3], [1], 2, ["under-min-isr", "under-replicated"]),
        (1, [1, 2, 3], [1, 2], 1, ["under-replicated"]),
        (1, [1, 2], [1, 2], 2, ["ok"]),  # all there is: nothing is wrong with the partition
        (1, [1], [1], 2, ["under-min-isr"]),  # every write with acks=all fails
        (1, [1, 2, 3], [1], None, ["under-replicated"]),
        (-1, [1], [1], 1, ["offline"]),
        (-1, [1, 2], [2], 1, ["offline", "at-min-isr", "under-replicated"]),
    ],
)
def test_words(leader: int, replicas: list[int], isr: list[int], min_isr: int | None, expected: list[str]) -> None:
    assert (
        partition_health(partition(leader, replicas, isr), TopicHealthFacts(Needed(min_isr, capped=False), RACKS))
        == expected
    )


def test_replicas_that_are_being_added_are_not_of_the_replication_factor() -> None:
    partitions = [partition(1, [1, 2], [1], index=0), partition(1, [1, 3], [1], index=1)]
    assert replication(partitions, {0: (2,), 1: (3,)}) == 1
    assert replication(partitions, {0: (2,)}) == 2
    assert replication([]) == 0


def test_a_replica_that_is_being_added_is_not_missed() -> None:
    facts = TopicHealthFacts(Needed(2, capped=True), RACKS, {0: [3]})
    assert partition_health(partition(1, [1, 2, 3], [1, 2]), facts) == ["moving"]
    assert partition_health(partition(1, [1, 2, 3], [1, 3]), facts) == ["at-min-isr", "under-replicated", "moving"]
    assert partition_health(partition(1, [1, 2, 3], [1]), facts)[0] == "under-min-isr"


def test_what_brokers_ask_for_in_sync_counts_replicas_that_are_being_added() -> None:
    facts = TopicHealthFacts(Needed(2, capped=True), RACKS, {0: [2, 3]})
    assert partition_health(partition(1, [1, 2, 3], [1]), facts) == ["under-min-isr", "moving"]
    assert partition_health(partition(1, [1, 2, 3], [1, 2]), facts) == ["moving"]


def test_moving() -> None:
    facts = TopicHealthFacts(Needed(1, capped=True), RACKS, {3: ()})
    assert partition_health(partition(1, [1, 2], [1, 2], index=3), facts) == ["moving"]
    assert partition_health(partition(1, [1, 2], [1, 2], index=2), facts) == ["ok"]


@pytest.mark.parametrize(
    ("replicas", "racks", "expected"),
    [
        ([1, 2], {1: "a", 2: "a", 3: "b"}, True),
        ([1, 3], {1: "a", 2: "a", 3: "b"}, False),
        ([1, 2, 3], {1: "a", 2: "a", 3: "b"}, False),  # more replicas than racks
        ([1, 2], {1: "a", 2: "a"}, False),
        ([1, 2], {1: None, 2: "a", 3: "b"}, False),
        ([1, 4], {1: "a", 2: "a", 3: "b"}, False),  # 4 is down, and nobody knows its rack
        ([1, 2], {1: None, 2: None}, False),
    ],
)
def test_racks(replicas: list[int], racks: Mapping[int, str | None], expected: bool) -> None:
    assert share_needlessly(replicas, racks) is expected


def test_replicas_on_one_host_though_there_are_enough() -> None:
    hosts = {1: "x", 2: "x", 3: "y"}
    facts = TopicHealthFacts(Needed(1, capped=True), {1: None, 2: None, 3: None}, hosts=hosts)
    assert partition_health(partition(1, [1, 2], [1, 2]), facts) == ["same-host"]
    assert partition_health(partition(1, [1, 3], [1, 3]), facts) == ["ok"]


def test_a_partition_whose_leader_does_not_answer_is_unreachable() -> None:
    led = partition(3, [3, 1], [3, 1])
    facts = TopicHealthFacts(Needed(1, capped=True), RACKS, silent=frozenset({3}))
    assert partition_health(led, facts) == ["unreachable"]
    assert partition_health(partition(1, [1, 3], [1, 3]), facts) == ["ok"]
    health = topic_health([led, partition(1, [1, 3], [1, 3])], Needed(1, capped=True), {3})
    assert (health.unreachable, health.word) == (1, "1 unreachable")


def test_under_min_isr_is_strict() -> None:
    """As kafka-topics has it: as many in sync as are needed is enough. Others list those too."""
    enough, too_few = partition(1, [1, 2, 3], [1, 2]), partition(1, [1, 2, 3], [1])
    assert topic_health([enough], Needed(2, capped=True)).under_min_isr == 0
    assert topic_health([enough, too_few], Needed(2, capped=True)).under_min_isr == 1


def test_brokers_since_3_7_ask_for_no_more_in_sync_than_there_are_replicas() -> None:
    alone = partition(1, [1], [1])
    assert partition_health(alone, TopicHealthFacts(Needed(2, capped=True), RACKS)) == ["ok"]
    assert topic_health([alone], Needed(2, capped=True)).under_min_isr == 0
    assert topic_health([alone], Needed(2, capped=False)).under_min_isr == 1
    two = partition(1, [1, 2], [1])
    assert partition_health(two, TopicHealthFacts(Needed(3, capped=True), RACKS))[0] == "under-min-isr"
    assert caps_min_isr({0: (0, 10)}) and not caps_min_isr({0: (0, 9)})
