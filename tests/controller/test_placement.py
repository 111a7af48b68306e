from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.controller.placement import (
    Candidate,
    Layout,
    candidates,
    fixed_layout,
    layout_for_more,
    place,
    random_layout,
)
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import BrokerInfo, Endpoint

FIVE = [Candidate(n) for n in range(5)]
RACKS = [
    Candidate(0, "rack1"),
    Candidate(1, "rack3"),
    Candidate(2, "rack3"),
    Candidate(3, "rack2"),
    Candidate(4, "rack2"),
    Candidate(5, "rack1"),
]


def test_the_layout_of_kafkas_documentation() -> None:
    placed = place(FIVE, 10, 3, Layout(0, 0))
    assert list(placed.values()) == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_the_rack_layout_of_kafkas_documentation() -> None:
    placed = place(RACKS, 7, 3, Layout(0, 0))
    assert list(placed.values()) == [
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    ]


def test_a_fixed_start_puts_replica_j_of_partition_i_on_i_plus_j() -> None:
    placed = place(FIVE, 23, 3, fixed_layout(0))
    assert placed == {i: tuple((i + j) % 5 for j in range(3)) for i in range(23)}


def test_one_broker() -> None:
    assert place([Candidate(7)], 3, 1, random_layout(1, Random(1))) == {0: (7,), 1: (7,), 2: (7,)}
    assert place([Candidate(7, "r")], 2, 1, Layout(0, 0)) == {0: (7,), 1: (7,)}


def test_more_partitions_go_on_where_the_topic_began() -> None:
    layout = Layout(2, 2)
    whole = place(FIVE, 9, 2, layout)
    first = place(FIVE, 4, 2, layout)
    more = place(FIVE, 5, 2, layout_for_more(FIVE, first[0][0]), first_partition=4)
    assert more == {p: whole[p] for p in range(4, 9)}


@pytest.mark.parametrize(
    ("partitions", "factor", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 6, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_refusals(partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refusal:
        place(FIVE, partitions, factor, Layout(0, 0))
    assert refusal.value.code == code


def test_racks_on_some_brokers_only() -> None:
    with pytest.raises(KafkaError, match="but not 1"):
        place([Candidate(0, "a"), Candidate(1)], 1, 1, Layout(0, 0))


brokers = st.integers(1, 12).flatmap(
    lambda n: st.one_of(
        st.just([Candidate(3 * i) for i in range(n)]),
        st.lists(st.sampled_from("abcd"), min_size=n, max_size=n).map(
            lambda racks: [Candidate(i, rack) for i, rack in enumerate(racks)]
        ),
    )
)


def on_hosts(*hosts: str, racks: dict[int, str] | None = None) -> list[BrokerInfo]:
    return [
        BrokerInfo(
            id=id_,
            endpoints=(Endpoint(listener="PLAINTEXT", host=host, port=9092 + id_),),
            rack=(racks or {}).get(id_),
        )
        for id_, host in enumerate(hosts)
    ]


def test_brokers_of_one_host_are_one_rack_unless_their_racks_are_set() -> None:
    assert [c.rack for c in candidates(on_hosts("a", "a", "b", "B"))] == ["a", "a", "b", "b"]
    assert [c.rack for c in candidates(on_hosts("a", "b", "c"))] == [None, None, None], "Kafka's layout"
    own = dict.fromkeys(range(3), "r")
    assert [c.rack for c in candidates(on_hosts("a", "a", "b", racks=own))] == ["r", "r", "r"]


@given(st.integers(2, 4), st.integers(1, 4), st.integers(1, 30), st.integers(0, 2**32))
def test_no_partition_has_two_replicas_on_one_host_when_there_are_enough(
    hosts: int, each: int, partitions: int, seed: int
) -> None:
    brokers = on_hosts(*[f"host{n}" for _ in range(each) for n in range(hosts)])
    host_of = {broker.id: broker.endpoints[0].host for broker in brokers}
    layout = random_layout(len(brokers), Random(seed))
    for replicas in place(candidates(brokers), partitions, hosts, layout).values():
        assert len({host_of[replica] for replica in replicas}) == hosts


@given(brokers, st.integers(1, 40), st.data(), st.integers(0, 2**32), st.integers(0, 50))
def test_replicas_are_distinct_spread_and_balanced(
    candidates: list[Candidate], partitions: int, data: st.DataObject, seed: int, first: int
) -> None:
    factor = data.draw(st.integers(1, len(candidates)))
    layout = data.draw(
        st.sampled_from([random_layout(len(candidates), Random(seed)), fixed_layout(seed % len(candidates))])
    )
    placed = place(candidates, partitions, factor, layout, first_partition=first)
    assert list(placed) == list(range(first, first + partitions))
    racks = {c.broker: c.rack for c in candidates}
    for replicas in placed.values():
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[r] for r in replicas}) >= min(factor, len(set(racks.values())))
    leaders = Counter(replicas[0] for replicas in placed.values())
    counts = [leaders[c.broker] for c in candidates]
    assert max(counts) - min(counts) <= 1
