"""The pure parts between a plan and a cluster: how partitions stand, who could lead, what to clean up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kafkad.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from kctl.errors import Exit, KctlError
from kctl.partitions import snapshot
from kctl.partitions.apply import _write_rollback, rollback_of
from kctl.partitions.cancel import cancelled_rows, removals
from kctl.partitions.cluster_model import Broker, Partition
from kctl.partitions.effect import effects, rack_losses, seconds
from kctl.partitions.elect import new_leaders, preferred, unclean
from kctl.partitions.list import partition_health
from kctl.partitions.partition_names import named
from kctl.partitions.placement import Move
from kctl.partitions.plan import PlanOptions, topics_chosen
from kctl.partitions.plan_entries import DONE, ELSEWHERE, MOVING, WAITING, PlanEntry, plan_entry
from kctl.partitions.plan_execution import PlanStatus, copies, to_elect
from kctl.partitions.reassignment_json import Place, render_plan
from kctl.partitions.requests import Active, Directory
from kctl.partitions.snapshot import Snapshot
from kctl.partitions.status import status_rows
from kctl.partitions.throttle import Throttles
from kctl.partitions.throttle_settings import BROKER, LISTS, RATES, TOPIC, Setting, Transfer
from kctl.reach.log_dirs import LogDir, ReplicaSize
from kctl.reach.session import Cluster
from tests.kctl.conftest import session_of
from tests.work import is_linear

WHERE = TopicPartition("t", 0)
THERE = Partition("t", 0, (1, 2), 1, 100)
TO_THREE = Active((3, 1, 2), (3,), (1,))
HERE = {Directory(WHERE, 1): "/a", Directory(WHERE, 2): "/a"}


@pytest.mark.parametrize(
    ("replicas", "active", "place", "coming", "state"),
    [
        ((1, 2), None, Place((1, 2)), {}, DONE),
        ((1, 2), None, Place((2, 1)), {}, WAITING),
        ((3, 2), TO_THREE, Place((3, 2)), {}, MOVING),
        ((3, 2), TO_THREE, Place((1, 2)), {}, ELSEWHERE),
        ((1, 2), None, Place((1, 2), ("/a", "any")), {}, DONE),
        ((1, 2), None, Place((1, 2), ("/b", "any")), {}, WAITING),
        ((1, 2), None, Place((1, 2), ("/b", "any")), {Directory(WHERE, 1): "/b"}, MOVING),
        ((1, 2), None, Place((1, 2), ("/b", "any")), {Directory(WHERE, 1): "/c"}, WAITING),
    ],
)
def test_how_a_partition_stands(
    replicas: tuple[int, ...], active: Active | None, place: Place, coming: dict[Directory, str], state: str
) -> None:
    assert plan_entry(THERE._replace(replicas=replicas), place, active, HERE, coming).state == state


def test_what_a_move_copies_throttles_and_leads_back_to() -> None:
    each = plan_entry(THERE, Place((3, 2), ("any", "/b")), None, HERE, {})
    assert (each.now, each.added, each.shifting, each.copy_bytes) == ((1, 2), (3,), (2,), 200)
    assert each.transfer == Transfer(WHERE, (1, 2), (3,), (2,))
    assert each.before == Place((1, 2), ("/a", "/a"))
    moving = plan_entry(THERE._replace(replicas=(3, 2)), Place((3, 2)), TO_THREE, {}, {})
    assert (moving.now, moving.added, moving.before) == ((1, 2), (3,), Place((1, 2)))


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "new", "why"),
    [
        (1, (1, 2), (1, 2), None, "leads already"),
        (2, (1, 2), (1, 2), 1, "elect"),
        (2, (2,), (2,), None, "cannot: broker 1 is down"),
        (2, (2,), (1, 2), None, "cannot: broker 1 is not in sync"),
    ],
)
def test_whether_the_preferred_replica_can_lead(
    leader: int, isr: tuple[int, ...], alive: tuple[int, ...], new: int | None, why: str
) -> None:
    assert preferred(THERE._replace(leader=leader), isr, alive)[2:] == (new, why)


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "new", "why"),
    [
        (1, (1,), (1, 2), None, "has a leader"),
        (None, (1,), (2, 3), 2, "elect, losing records"),
        (None, (2,), (1, 2), 2, "elect"),
        (None, (1,), (3,), None, "cannot: every replica is down"),
    ],
)
def test_whether_anyone_can_lead(
    leader: int | None, isr: tuple[int, ...], alive: tuple[int, ...], new: int | None, why: str
) -> None:
    assert unclean(THERE._replace(leader=leader), isr, alive)[2:] == (new, why)


@pytest.mark.parametrize(
    ("leader", "isr", "moving", "word"),
    [
        (1, (1, 2), False, "ok"),
        (2, (1, 2), False, "not-preferred"),
        (1, (1,), False, "under-replicated"),
        (1, (1,), True, "moving"),
        (-1, (1,), True, "offline"),
        (3, (1, 3), True, "unreachable"),
    ],
)
def test_health_in_a_word(leader: int, isr: tuple[int, ...], moving: bool, word: str) -> None:
    assert partition_health(leader, (1, 2), isr, moving, {3}) == word


def test_what_a_plan_does_to_brokers() -> None:
    brokers = [Broker(1, "a", free=1000), Broker(2, "b"), Broker(3, "a", free=50)]
    sums = effects(brokers, [THERE], [Move(THERE, (3, 2), ("broker 1 drained",))])
    assert [each[1:] for each in sums] == [
        ((1, 0), (1, 0), (100, 0), 0, 100, 1100),
        ((1, 1), (0, 0), (100, 100), 0, 0, None),
        ((0, 1), (0, 1), (0, 100), 100, 0, -50),
    ]
    assert seconds(sums, 20) == 5.0
    assert rack_losses(brokers, [Move(THERE, (3, 1), ("",)), Move(THERE, None, ("",))]) == {"t": (2, 1)}
    assert rack_losses(brokers, [Move(THERE, (1,), ("RF 2 -> 1",))]) == {}


def test_after_a_cancellation_only_the_throttles_of_what_was_cancelled_go_while_others_move() -> None:
    values = {
        Setting(TOPIC, "t", LISTS[0]): "0:1,1:1",
        Setting(TOPIC, "u", LISTS[0]): "0:1",
        Setting(BROKER, "1", RATES[0]): "5",
    }
    busy = Throttles(values, {}, [Transfer(TopicPartition("u", 0), (1,), (2,))], [])
    assert removals(busy, [WHERE]) == {Setting(TOPIC, "t", LISTS[0]): "1:1"}
    idle = busy._replace(transfers=[Transfer(WHERE, (1,), (2,))])
    assert removals(idle, [WHERE]) == {
        Setting(TOPIC, "t", LISTS[0]): None,
        Setting(BROKER, "1", RATES[0]): None,
    }


def test_only_the_first_replica_of_what_is_in_place_is_elected() -> None:
    def entry(number: int, state: str, leader: int) -> PlanEntry:
        partition = Partition("t", number, (2, 1), leader)
        return PlanEntry(partition, Place((2, 1)), state, None, {}, {})

    entries = [entry(0, DONE, 1), entry(1, DONE, 2), entry(2, MOVING, 1)]
    assert to_elect(entries) == {TopicPartition("t", 0): 2}


def test_a_rollback_file_of_another_plan_is_left_alone(tmp_path: Path) -> None:
    session = SimpleNamespace(cluster=Cluster("here", 1, {}))
    plan = str(tmp_path / "plan.json")
    first, second, third = (str(tmp_path / f"rollback-plan{number}.json") for number in ("", "-2", "-3"))

    def rollback(*states: str) -> str:
        entries = [
            PlanEntry(Partition("t", number, (1, 2), 1), Place((3, 2)), state, None, {}, {})
            for number, state in enumerate(states)
        ]
        return rollback_of(plan, entries, session)  # type: ignore[arg-type]

    def write(path: str, cluster: str, *replicas: tuple[int, ...]) -> None:
        places = {TopicPartition("t", number): Place(own) for number, own in enumerate(replicas)}
        Path(path).write_text(render_plan(places, cluster))

    assert rollback(WAITING) == first
    for stale in (((1, 2), (1, 2)), ((2, 1),)):
        write(first, "here", *stale)
        assert rollback(WAITING) == second
    write(first, "elsewhere", (1, 2))
    assert rollback(WAITING) == second
    write(first, "here", (1, 2))
    assert rollback(WAITING) == first
    write(first, "here", (9, 8), (1, 2))
    assert rollback(MOVING, WAITING) == first, "what moves is known from nowhere else"
    write(second, "here", (1, 2), (1, 2))
    assert rollback(DONE, DONE) == second
    write(first, "here", (1, 2))
    assert rollback(WAITING) == third, "once all is done, nothing would tell the two apart"
    Path(third).symlink_to(tmp_path / "gone.json")
    assert rollback(WAITING) == str(tmp_path / "rollback-plan-4.json")
    with pytest.raises(KctlError, match=r"rollback-plan-3[.]json is new") as told:
        _write_rollback(third, [], session)  # type: ignore[arg-type]
    assert told.value.exit_code is Exit.REFUSED


def test_partitions_by_topic_number_and_file(tmp_path: Path) -> None:
    there = [Partition(topic, number, (1,), 1) for topic in ("a", "a-1", "b.json") for number in (0, 1)]
    file = tmp_path / "x.json"
    file.write_text('{"partitions": [{"topic": "a-1", "partition": 1}]}')

    def names(*words: str) -> list[str]:
        return [str(each.name) for each in named(words, there)[0]]

    assert names("a") == ["a-0", "a-1"]
    assert names("a-1") == ["a-1-0", "a-1-1"], "a topic of that name is meant, not a partition of another"
    assert names("a:1", "b.json:0", "a:1") == ["a-1", "b.json-0"]
    assert names(str(file)) == ["a-1-1"]


@pytest.mark.parametrize(
    ("word", "what"),
    [
        ("nosuch", 'topic "nosuch" does not exist'),
        ("nosuch:0", 'topic "nosuch" does not exist'),
        ("a:7", 'topic "a" has no partition 7'),
    ],
)
def test_a_partition_that_is_not_there(word: str, what: str) -> None:
    found, (error,) = named([word, "a:0"], [Partition("a", 0, (1,), 1)])
    assert (error.what, error.exit_code) == (what, Exit.NOT_FOUND)
    assert [each.name for each in found] == [TopicPartition("a", 0)], "the others are meant nevertheless"


def test_topics_of_a_file_are_not_searched_for_among_all() -> None:
    def choosing(count: int) -> Callable[[], object]:
        partitions = [Partition(f"t{number}", 0, (1,), 1) for number in range(count)]
        options = PlanOptions(tuple(each.topic for each in partitions), None, (), None, None, False, None, "plan.json")
        return lambda: topics_chosen(options, partitions)

    assert is_linear(choosing)
    few = [Partition(name, 0, (1,), 1) for name in ("a", "ab", "b")]
    options = PlanOptions(("a*", "b"), None, (), None, None, False, None, "plan.json")
    assert topics_chosen(options, few) == {"a", "ab", "b"}


def moving(count: int) -> PlanStatus:
    """So many partitions that move to broker 3, of which half of the bytes are there."""
    partitions = [Partition("t", number, (3, 2), 1, 100) for number in range(count)]
    active = {each.name: TO_THREE for each in partitions}
    copied = tuple(ReplicaSize(3, "/a", "t", each.partition, 50, 0, future=False) for each in partitions)
    directories = [LogDir(3, "/a", None, None, None, copied)]
    entries = [plan_entry(each, Place((3, 2)), TO_THREE, {}, {}) for each in partitions]
    return PlanStatus(Snapshot([], partitions, active, directories, []), entries)


def test_many_moves_are_not_searched_for_the_copies_of_each() -> None:
    def shown(count: int) -> Callable[[], object]:
        seen = moving(count)
        amounts = copies(seen)
        return lambda: (status_rows(seen.entries, amounts), cancelled_rows(seen, seen.entries))

    assert is_linear(shown)
    seen = moving(2)
    assert [(row["copied_bytes"], row["percent"]) for row in status_rows(seen.entries, copies(seen))] == [(50, 50)] * 2
    assert [row["copied_bytes"] for row in cancelled_rows(seen, seen.entries)] == [50, 50]


def test_of_a_topic_that_is_deleted_while_its_leader_is_waited_for_nothing_more_is_expected() -> None:
    """It is not in the metadata any more, or is there with an error."""
    left = MetadataResponsePartition(partition_index=0, leader_id=2, replica_nodes=[2, 1], isr_nodes=[1, 2])
    answer = [MetadataResponseTopic(name="left", partitions=[left]), MetadataResponseTopic(name="t", error_code=3)]
    looks: list[bool] = []

    def look_twice(seen: Callable[[], bool]) -> None:
        looks.extend([seen(), seen()])

    session: Any = SimpleNamespace(metadata=lambda topics: answer, wait_until=look_twice)
    elections = [preferred(Partition(topic, 0, (2, 1), 1, 0), (1, 2), {1, 2}) for topic in ("left", "t")]
    assert new_leaders(session, elections) == ({TopicPartition("left", 0): 2}, {WHERE})
    assert looks == [False, True]


def test_a_leader_that_refuses_at_once_is_no_new_one() -> None:
    leaders = iter([2, 1, -1, -1])
    looks: list[bool] = []

    def told(topics: object) -> list[MetadataResponseTopic]:
        leader = MetadataResponsePartition(partition_index=0, leader_id=next(leaders), replica_nodes=[2, 1])
        return [MetadataResponseTopic(name="t", partitions=[leader])]

    def look(seen: Callable[[], bool]) -> None:
        looks.extend(seen() for _ in range(4))

    session: Any = SimpleNamespace(metadata=told, wait_until=look)
    assert new_leaders(session, [unclean(Partition("t", 0, (2, 1), None, 0), {1, 2}, {1, 2})]) == ({}, set())
    assert looks == [False] * 4


def test_the_room_of_a_broker_is_that_of_all_its_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of disks that are filled evenly; a directory that is offline has none."""
    rooms = [(1, f"/{number}", (40 << 30) + (number << 27), None) for number in range(4)]
    rooms += [(2, "/a", 40 << 30, None), (2, "/gone", 30 << 30, KctlError("offline")), (3, "/a", None, None)]
    directories = [LogDir(broker, path, 100 << 30, free, error, ()) for broker, path, free, error in rooms]
    monkeypatch.setattr(snapshot, "log_dirs", lambda session, partitions: (directories, {}))
    monkeypatch.setattr(snapshot, "active_moves", lambda session, partitions: {})
    session = session_of(1, 2, 3)
    monkeypatch.setattr(session, "metadata", lambda topics: [])
    free = {broker.id: broker.free for broker in snapshot.take(session).brokers}
    assert free == {1: (160 << 30) + (6 << 27), 2: 40 << 30, 3: None}
