from __future__ import annotations

from collections.abc import Mapping

import pytest

from kafkad.wire.messages.metadata import MetadataResponsePartition
from kctl.topics.health import Surroundings, is_rack_unaware, partition_health, topic_health

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
    assert partition_health(partition(leader, replicas, isr), Surroundings(min_isr, RACKS)) == expected


def test_moving() -> None:
    around = Surroundings(1, RACKS, frozenset({3}))
    assert partition_health(partition(1, [1, 2], [1, 2], index=3), around) == ["moving"]
    assert partition_health(partition(1, [1, 2], [1, 2], index=2), around) == ["ok"]


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
    assert is_rack_unaware(replicas, racks) is expected


def test_under_min_isr_is_strict() -> None:
    """As kafka-topics has it: as many in sync as are needed is enough. Others list those too."""
    enough, too_few = partition(1, [1, 2, 3], [1, 2]), partition(1, [1, 2, 3], [1])
    assert topic_health([enough], min_isr=2).under_min_isr == 0
    assert topic_health([enough, too_few], min_isr=2).under_min_isr == 1
