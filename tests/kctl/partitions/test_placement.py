from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.partitions.cluster_model import Broker, Goal, Partition
from kctl.partitions.placement import Copy, Move, planned_moves, replicas_wanted

THREE = [Broker(1, "a"), Broker(2, "b"), Broker(3, "c")]
SIX = [Broker(broker, "abc"[broker % 3]) for broker in range(1, 7)]


def of(topic: str, *replicas: Sequence[int], size: int = 10, leader: int | None = 0) -> list[Partition]:
    """Partitions of a topic, led by their first replica unless said otherwise."""
    return [
        Partition(topic, index, tuple(each), each[0] if leader == 0 else leader, size)
        for index, each in enumerate(replicas)
    ]


def drain(*brokers: int, **others: object) -> Goal:
    return Goal(frozenset(brokers))._replace(**others)


def planned(moves: list[Move]) -> list[tuple[int, ...] | None]:
    return [move.planned for move in moves]


def after(partitions: Sequence[Partition], moves: Sequence[Move]) -> list[Partition]:
    """The partitions once the moves are made."""
    done = {move.partition.name: move.planned for move in moves if move.planned}
    return [each._replace(replicas=done.get(each.name, each.replicas)) for each in partitions]


def test_fewer_replicas_in_a_drain_widen_nothing() -> None:
    """`--rf 2`, as the impossible rows of a drain advise."""
    parts = [*of("t", (2, 1, 3)), *of("single", (1,), (3,)), *of("other", (1, 2, 3))]
    moves = {str(move.partition.name): move.planned for move in planned_moves(THREE, parts, drain(3, rf=2))}
    assert moves.pop("single-1") in ((1,), (2,))
    assert {name: len(planned or ()) for name, planned in moves.items()} == {"t-0": 2, "other-0": 2}
    assert planned(planned_moves(THREE, of("t", (1,)), drain(3, rf=2, topics=frozenset({"t"})))) == [(1, 2)], (
        "as is asked"
    )


def test_drain_replaces_a_replica_in_its_place_and_leaves_the_others() -> None:
    partitions = [*of("t", (3, 2), (2, 3), (1, 2)), *of("bulk", (2,), size=266_000_000)]
    moves = planned_moves(THREE, partitions, drain(3))
    assert [(str(move.partition.name), move.planned, move.why) for move in moves] == [
        ("t-0", (1, 2), ("broker 3 drained", "leader 3 -> 1")),
        ("t-1", (2, 1), ("broker 3 drained",)),
    ]


def test_brokers_are_replaced_one_after_the_other_without_a_replica_on_an_old_one() -> None:
    """docs/migrate.md: each drain names the new brokers, or the next one would fill the one before it again."""
    old_and_new = [Broker(broker, None) for broker in (1, 2, 11, 12)]
    partitions = of("t", (1, 2), (2, 1), (1, 2))
    for left in (1, 2):
        partitions = after(partitions, planned_moves(old_and_new, partitions, drain(left, to=frozenset({11, 12}))))
        assert all(left not in partition.replicas for partition in partitions)
    assert all(set(partition.replicas) == {11, 12} for partition in partitions)


def test_brokers_are_replaced_all_at_once() -> None:
    """docs/migrate.md: one drain of all old brokers leaves nothing on them, and copies each replica once."""
    old_and_new = [Broker(broker, None) for broker in (1, 2, 3, 11, 12, 13)]
    partitions = of("t", (1, 2), (2, 3), (3, 1), size=10)
    moves = planned_moves(old_and_new, partitions, drain(1, 2, 3, to=frozenset({11, 12, 13})))
    assert all(set(partition.replicas) <= {11, 12, 13} for partition in after(partitions, moves))
    assert [move.copy_bytes for move in moves] == [20, 20, 20]


def test_a_copy_comes_from_the_leader_whoever_is_drained() -> None:
    [move] = planned_moves(THREE, of("t", (3, 2), leader=2, size=59), drain(3))
    assert move.copies == [Copy(2, 1, 59)]
    assert move.copy_bytes == 59


@pytest.mark.parametrize(
    ("brokers", "partition", "goal", "why", "what_helps"),
    [
        (THREE, (2, 1, 3), drain(3), "RF 3 needs 3 brokers, 2 remain", "--rf 2 or --skip"),
        (THREE, (3, 1), drain(3, racks="strict", to=frozenset({1})), "RF 2 needs 2 brokers, 1 remains", "--rf 1"),
        (
            [Broker(1, "a"), Broker(2, "a"), Broker(3, "b")],
            (3, 1),
            drain(3, racks="strict"),
            "every rack left holds 1 of its replicas already",
            "--rack-aware prefer",
        ),
        (
            [Broker(1, free=5), Broker(2, free=9), Broker(3)],
            (3,),
            drain(3),
            "needs 10 B, and no broker has more than 9 B free",
            "free space, or name other brokers with --to",
        ),
        (THREE, (1,), Goal(rf=4), "RF 4 needs 4 brokers, 3 remain", "--rf 3 or --skip"),
        ([Broker(1)], (1,), drain(1), "RF 1 needs 1 broker, 0 remain", "start a broker"),
    ],
)
def test_what_cannot_be_done_says_what_would_help(
    brokers: list[Broker], partition: tuple[int, ...], goal: Goal, why: str, what_helps: str
) -> None:
    [move] = planned_moves(brokers, of("t", partition), goal)
    assert (move.planned, move.why) == (None, (why,))
    assert move.help.startswith(what_helps)


def test_an_offline_partition_has_nothing_to_copy_from() -> None:
    brokers = [Broker(1), Broker(2), Broker(3, alive=False)]
    [move] = planned_moves(brokers, of("t", (3,), leader=None), drain(3))
    assert (move.planned, move.why, move.help) == (None, ("it has no leader to copy from",), "start broker 3")


def test_fewer_replicas_need_no_copy_and_drop_the_drained_one() -> None:
    moves = planned_moves(THREE, of("t", (2, 1, 3)), drain(3, rf=2))
    assert planned(moves) == [(2, 1)]
    assert moves[0].why == ("broker 3 drained", "RF 3 -> 2")
    assert moves[0].copies == []


def test_of_too_many_replicas_those_that_share_a_rack_go_first() -> None:
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(3, "a"), Broker(4, "c", alive=False)]
    assert planned(planned_moves(brokers, of("t", (1, 2, 3)), Goal(rf=2))) == [(1, 2)]
    assert planned(planned_moves(brokers, of("t", (1, 2, 4)), Goal(rf=2))) == [(1, 2)]


def test_more_replicas_go_to_other_racks_and_the_leader_stays() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b")]
    moves = planned_moves(brokers, of("t", (1,), (2,)), Goal(rf=2))
    assert planned(moves) == [(1, 3), (2, 3)]
    assert moves[0].why == ("RF 1 -> 2",)


def test_a_drained_leader_is_followed_by_who_leads_least() -> None:
    partitions = [*of("t", (3, 1)), *of("u", (2, 1), (2, 1))]
    assert planned(planned_moves(THREE, partitions, drain(3))) == [(1, 2)]


def test_to_alone_moves_everything_there_and_with_a_drain_only_what_leaves() -> None:
    partitions = of("t", (1, 2), (2, 3))
    [first, second] = planned_moves(SIX, partitions, Goal(to=frozenset({5, 6})))
    assert {first.planned, second.planned} <= {(5, 6), (6, 5)}
    assert first.why[0] == "to 5,6"
    [only] = planned_moves(SIX, partitions, drain(3, to=frozenset({5, 6})))
    assert only.planned in {(2, 5), (2, 6)}


def test_only_the_topics_asked_for_change_but_all_count() -> None:
    partitions = [*of("t", (3,)), *of("u", (3,), (1,), (1,))]
    moves = planned_moves(THREE, partitions, drain(3, topics=frozenset({"t"})))
    assert [(move.partition.topic, move.planned) for move in moves] == [("t", (2,))]


def test_replicas_that_share_a_rack_part_when_asked_to() -> None:
    brokers = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b")]
    assert planned_moves(brokers, of("t", (1, 2)), Goal()) == []
    [move] = planned_moves(brokers, of("t", (1, 2)), Goal(repair_racks=True))
    assert (move.planned, move.why) == ((1, 3), ("rack a held 2 replicas",))
    dead = [*brokers[:2], Broker(3, "b", alive=False)]
    assert planned_moves(dead, of("t", (1, 2)), Goal(repair_racks=True)) == []
    [impossible] = planned_moves(dead, of("t", (1, 2)), Goal(repair_racks=True, racks="strict"))
    assert impossible.planned is None


def test_a_new_broker_gets_its_share_with_the_fewest_and_smallest_copies() -> None:
    brokers = [Broker(1), Broker(2), Broker(3)]
    partitions = [
        each._replace(size=size)
        for each, size in zip(of("t", (1,), (1,), (1,), (2,), (2,), (2,)), (7, 1, 9, 7, 9, 2), strict=True)
    ]
    moves = planned_moves(brokers, partitions, Goal(balance="count"))
    assert [(move.partition.partition, move.planned, move.why[0]) for move in moves] == [
        (1, (3,), "evens out brokers"),
        (5, (3,), "evens out brokers"),
    ]


def test_bytes_are_evened_out_by_few_moves() -> None:
    sizes = (500, 300, 100, 100)
    partitions = [each._replace(size=size) for each, size in zip(of("t", (1,), (1,), (1,), (1,)), sizes, strict=True)]
    assert [move.copy_bytes for move in planned_moves([Broker(1), Broker(2)], partitions, Goal(balance="bytes"))] == [
        500
    ]


def test_leaders_are_evened_out_without_copying_also_by_a_chain() -> None:
    """1 leads two and 3 none, but they share no partition: 2 has to pass on."""
    moves = planned_moves(THREE, of("t", (1, 2), (1, 2), (2, 3)), Goal(balance="leaders"))
    assert planned(moves) == [(2, 1), (3, 2)]
    assert sum(move.copy_bytes for move in moves) == 0


# --- whatever the cluster


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Broker], list[Partition]]:
    racks = draw(st.sampled_from([(None,), ("a", "b"), ("a", "b", "c"), ("a", None)]))
    brokers = [
        Broker(broker, draw(st.sampled_from(racks)), draw(st.integers(0, 9)) > 0)
        for broker in range(1, draw(st.integers(1, 6)) + 1)
    ]
    alive = {broker.id for broker in brokers if broker.alive}
    partitions = []
    for topic in ("t", "u", "v"):
        for index in range(draw(st.integers(0, 5))):
            order = draw(st.permutations([broker.id for broker in brokers]))
            replicas = tuple(order[: draw(st.integers(1, 3))])
            leader = next((broker for broker in replicas if broker in alive), None)
            partitions.append(Partition(topic, index, replicas, leader, draw(st.integers(0, 1000))))
    return brokers, partitions


goals = st.builds(
    Goal,
    drain=st.frozensets(st.integers(1, 6), max_size=2),
    to=st.just(frozenset()) | st.frozensets(st.integers(1, 6), min_size=1),
    rf=st.none() | st.integers(1, 4),
    balance=st.none() | st.sampled_from(["leaders", "count", "bytes"]),
    racks=st.sampled_from(["strict", "prefer", "off"]),
    repair_racks=st.booleans(),
    topics=st.none(),
)


@given(clusters(), goals)
def test_a_plan_is_sound(cluster: tuple[list[Broker], list[Partition]], goal: Goal) -> None:
    brokers, partitions = cluster
    alive = {broker.id for broker in brokers if broker.alive}
    moves = planned_moves(brokers, partitions, goal)
    assert moves == planned_moves(list(reversed(brokers)), partitions, goal)
    for move in moves:
        if move.planned is None:
            assert move.help
            continue
        added = set(move.planned) - set(move.partition.replicas)
        assert len(set(move.planned)) == len(move.planned) == replicas_wanted(move.partition, goal)
        assert move.planned != move.partition.replicas
        assert added <= alive - goal.drain
        assert not goal.to or added <= goal.to
        assert not goal.drain & set(move.planned)
        assert move.why
    refused = {move.partition.name for move in moves if move.planned is None}
    for partition in after(partitions, moves):
        assert partition.name in refused or not goal.drain & set(partition.replicas)


@given(clusters(), st.integers(1, 6))
def test_drain_never_moves_what_is_not_on_the_broker(
    cluster: tuple[list[Broker], list[Partition]], broker: int
) -> None:
    for move in planned_moves(*cluster, drain(broker)):
        now = move.partition.replicas
        assert broker in now
        if move.planned:
            assert set(now) - {broker} == set(now) & set(move.planned)
            assert now[0] in (broker, move.planned[0]), "a leader that stays leads on"


@given(clusters(), goals)
def test_a_plan_that_was_carried_out_asks_for_nothing_more(
    cluster: tuple[list[Broker], list[Partition]], goal: Goal
) -> None:
    """But for balance by bytes and the refused, which have no such fixed point."""
    brokers, partitions = cluster
    goal = goal._replace(balance=None)
    again = planned_moves(brokers, after(partitions, planned_moves(brokers, partitions, goal)), goal)
    assert [move for move in again if move.planned] == []


@given(clusters(), st.sampled_from(["count", "leaders"]))
def test_balance_ends_at_what_needs_no_more_moves(cluster: tuple[list[Broker], list[Partition]], balance: str) -> None:
    brokers, partitions = cluster
    goal = Goal(balance=balance, racks="off")
    assert planned_moves(brokers, after(partitions, planned_moves(brokers, partitions, goal)), goal) == []


@given(st.lists(st.permutations([1, 2, 3]), min_size=1, max_size=12))
def test_leaders_that_may_be_anywhere_are_even(orders: list[list[int]]) -> None:
    partitions = of("t", *orders)
    leaders = Counter({1: 0, 2: 0, 3: 0})
    leaders.update(
        each.replicas[0] for each in after(partitions, planned_moves(THREE, partitions, Goal(balance="leaders")))
    )
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(st.lists(st.integers(1, 3), min_size=1, max_size=20))
def test_single_replicas_are_even_after_balancing_with_the_fewest_moves(places: list[int]) -> None:
    partitions = of("t", *([place] for place in places))
    moves = planned_moves(THREE, partitions, Goal(balance="count"))
    held = Counter({1: 0, 2: 0, 3: 0})
    held.update(each.replicas[0] for each in after(partitions, moves))
    assert max(held.values()) - min(held.values()) <= 1
    before = Counter(places)
    floor, more = divmod(len(places), 3)
    fair = [floor + (rank < more) for rank in range(3)]
    ranked = sorted((before[broker] for broker in (1, 2, 3)), reverse=True)
    assert len(moves) == sum(max(0, has - share) for has, share in zip(ranked, fair, strict=True))
