"""Consumer groups of every Python client: members that come, leave and crash, and what each of them reads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients import consumers
from tests.clients.conftest import Broker
from tests.clients.consumers import SECONDS, SESSION_MS, SHORT_SESSION_MS, Group
from tests.clients.members import Member, assignment, wait_for_coordinator
from tests.oracle.kafka import VERSIONS, missing

PARTITIONS = 6

pytestmark = pytest.mark.slow

CLIENTS = {
    "confluent-kafka": ("range", "roundrobin", "cooperative-sticky"),
    "kafka-python": ("range", "roundrobin", "sticky", "cooperative-sticky"),
    "aiokafka": ("range", "roundrobin", "sticky"),
}
COMMITS = ("sync", "async", "auto")


@pytest.fixture
def group(broker: Broker, name: Callable[[], str], tmp_path: Path) -> Iterator[Group]:
    topic = name()
    with Group(broker.bootstrap, f"{topic}-group", topic, tmp_path) as group:
        yield group


def create(group: Group, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": group.bootstrap})
    admin.create_topics([NewTopic(group.topic, partitions, 1)])[group.topic].result(SECONDS)

    def known() -> bool:
        return len(admin.list_topics(group.topic, SECONDS).topics[group.topic].partitions) == partitions

    group.wait(known, "topic")  # real Kafka answers before its broker knows of it


def produce(group: Group, name: str, count: int) -> set[str]:
    """Returns the values, which are spread over all partitions."""
    producer = Producer({"bootstrap.servers": group.bootstrap, "linger.ms": 5})
    values = [f"{name} {i}" for i in range(count)]
    for i, value in enumerate(values):
        producer.produce(group.topic, value.encode(), partition=i % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    return set(values)


def committed(group: Group) -> list[int]:
    consumer = Consumer({"bootstrap.servers": group.bootstrap, "group.id": group.group})
    try:
        asked = [TopicPartition(group.topic, partition) for partition in range(PARTITIONS)]
        return [found.offset for found in consumer.committed(asked, SECONDS)]
    finally:
        consumer.close()


def cases(label: str, *, of: Callable[[str], bool] = lambda strategy: True) -> list[object]:
    """Strategies of every client, with the ways to commit in turn; the label is the row's in docs/compatibility.md."""
    found = []
    for client, strategies in CLIENTS.items():
        for strategy, commits in zip(strategies, (*COMMITS, "sync"), strict=False):
            if of(strategy):
                mark = pytest.mark.client(client, f"group: {label.format(strategy=strategy, commits=commits)}")
                found.append(pytest.param(client, strategy, commits, id=f"{client}-{strategy}", marks=mark))
    return found


@pytest.mark.parametrize(("client", "strategy", "commits"), cases("{strategy}, commits {commits}"))
def test_members_come_and_leave(group: Group, client: str, strategy: str, commits: str) -> None:
    """Everything is processed, no partition has two owners at once, and those who come later resume."""
    create(group, PARTITIONS)
    before = produce(group, "before", 120)
    first = group.start("a", client, strategy, commits)
    group.wait_for_sizes(6)
    second = group.start("b", client, strategy, commits)
    group.wait_for_sizes(3, 3)
    third = group.start("c", client, strategy, commits)
    group.wait_for_sizes(2, 2, 2)
    shared = produce(group, "shared", 120)
    group.wait(lambda: group.values() >= before | shared, "end")
    second.leave()
    group.wait_for_sizes(3, 3)
    after = produce(group, "after", 60)
    group.wait(lambda: group.values() >= after, "end")
    assert all(member.values() & shared for member in (first, second, third))
    third.leave()
    group.wait_for_sizes(6)
    first.leave()
    assert committed(group) == [50] * PARTITIONS
    group.assert_one_owner_each()
    new = produce(group, "new", 60)
    successor = group.start("d", client, strategy, commits)
    group.wait(lambda: group.values() >= new, "end")
    assert successor.values() == new


def one_of_two_crashes(group: Group, start: Callable[[str, int], consumers.Consumer]) -> None:
    """`start` has a consumer of that name with a session of so many milliseconds join."""
    create(group, PARTITIONS)
    values = produce(group, "before", 60)
    start("a", SESSION_MS)
    victim = start("b", SHORT_SESSION_MS)
    group.wait_for_sizes(3, 3)
    values |= produce(group, "shared", 60)
    group.wait(lambda: group.values() >= values, "end")
    victim.kill()
    values |= produce(group, "after", 60)
    group.wait_for_sizes(6)
    group.wait(lambda: group.values() >= values, "end")
    group.assert_one_owner_each()


@pytest.mark.parametrize(("client", "strategy", "commits"), cases("{strategy}, a member crashes", of="range".__eq__))
def test_a_member_crashes(group: Group, client: str, strategy: str, commits: str) -> None:
    """When its session is over, the other member goes on from its committed offset, and loses nothing."""
    one_of_two_crashes(group, lambda name, session_ms: group.start(name, client, strategy, commits, session_ms))


@pytest.mark.parametrize(
    ("client", "strategy", "commits"), cases("{strategy}, a static member restarts", of="range".__eq__)
)
def test_a_static_member_restarts(group: Group, client: str, strategy: str, commits: str) -> None:
    """Within its session it gets its share again and goes on; the other one hears nothing of it."""
    create(group, PARTITIONS)
    other = group.start("a", client, strategy, commits, instance="one")
    first = group.start("b", client, strategy, commits, instance="two")
    group.wait_for_sizes(3, 3)
    values = produce(group, "before", 60)
    group.wait(lambda: group.values() >= values, "end")
    share, quiet = set(first.owned), list(other.history)
    first.kill()
    values |= produce(group, "meanwhile", 60)
    again = group.start("c", client, strategy, commits, instance="two")
    group.wait(lambda: set(again.owned) == share, "share of the one before")
    group.wait(lambda: group.values() >= values, "end")
    assert other.history == quiet
    group.assert_one_owner_each()


@pytest.mark.parametrize(
    ("client", "strategy", "commits"),
    cases("{strategy}, all restart in turn", of=lambda strategy: strategy == "cooperative-sticky"),
)
def test_members_restart_in_turn(group: Group, client: str, strategy: str, commits: str) -> None:
    """Whoever stays keeps what it has while one is away, and reads on; nothing is lost."""
    create(group, PARTITIONS)
    members = [group.start(name, client, strategy, commits) for name in "abc"]
    group.wait_for_sizes(2, 2, 2)
    values: set[str] = set()
    for name in "def":
        leaver, *staying = members
        had = [set(member.owned) for member in staying]
        quiet = [list(member.history) for member in staying]
        leaver.leave()
        group.wait_for_sizes(3, 3)
        assert [member.history for member in staying] == quiet
        assert all(before < set(member.owned) for before, member in zip(had, staying, strict=True))
        values |= produce(group, f"without {leaver.name}", 60)
        members = [*staying, group.start(name, client, strategy, commits)]
        group.wait_for_sizes(2, 2, 2)
    group.wait(lambda: group.values() >= values, "end")
    group.assert_one_owner_each()


@pytest.mark.parametrize(("client", "strategy", "commits"), cases("ten partitions, {strategy}", of="range".__eq__))
def test_ten_partitions_by_range(group: Group, client: str, strategy: str, commits: str) -> None:
    create(group, 10)
    for name in "abc":
        group.start(name, client, strategy)
    group.wait_for_shares({0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9})


@pytest.mark.parametrize(("client", "strategy", "commits"), cases("ten partitions, {strategy}", of="roundrobin".__eq__))
def test_ten_partitions_in_turn(group: Group, client: str, strategy: str, commits: str) -> None:
    create(group, 10)
    for name in "abc":
        group.start(name, client, strategy)
    group.wait_for_shares({0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8})


@pytest.mark.parametrize(
    ("client", "strategy", "commits"), cases("ten partitions, {strategy}", of=lambda strategy: "sticky" in strategy)
)
def test_ten_partitions_sticky(group: Group, client: str, strategy: str, commits: str) -> None:
    """Whoever comes or leaves, the others keep what they can; which partitions move is each library's own choice."""
    create(group, 10)
    first = group.start("a", client, strategy)
    group.wait_for_sizes(10)
    second = group.start("b", client, strategy)
    group.wait_for_sizes(5, 5)
    of_two = [set(first.owned), set(second.owned)]
    third = group.start("c", client, strategy)
    group.wait(lambda: sorted(map(len, group.shares())) == [3, 3, 4], "shares for three")
    of_three = [set(first.owned), set(second.owned)]
    assert all(kept < had for kept, had in zip(of_three, of_two, strict=True))
    third.leave()
    group.wait_for_sizes(5, 5)
    assert all(kept < has for kept, has in zip(of_three, (set(first.owned), set(second.owned)), strict=True))
    group.assert_one_owner_each()


JAVA = {
    "RangeAssignor": [{0, 1, 2, 3}, {4, 5, 6}, {7, 8, 9}],
    "RoundRobinAssignor": [{0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8}],
}


def java_cases(*strategies: str) -> list[object]:
    return [
        pytest.param(
            version, strategy, marks=pytest.mark.client(f"Kafka's tools {version}", f"verifiable consumers, {strategy}")
        )
        for version, strategy in zip(VERSIONS, strategies, strict=True)
    ]


@pytest.fixture
def java(group: Group) -> Group:
    for version in VERSIONS:
        if reason := missing(version):
            pytest.skip(reason)
    return group


@pytest.mark.java
@pytest.mark.parametrize(("version", "strategy"), java_cases(*JAVA))
def test_ten_partitions_of_java_consumers(java: Group, version: str, strategy: str) -> None:
    create(java, 10)
    for name in "abc":
        java.start_java(name, version, strategy)
    java.wait_for_shares(*JAVA[strategy])


@pytest.mark.java
@pytest.mark.parametrize(
    "version",
    [
        pytest.param(each, marks=pytest.mark.client(f"Kafka's tools {each}", "verifiable consumers, one crashes"))
        for each in VERSIONS
    ],
)
def test_a_java_member_crashes(java: Group, version: str) -> None:
    one_of_two_crashes(java, lambda name, session_ms: java.start_java(name, version, "RangeAssignor", session_ms))


@pytest.mark.java
@pytest.mark.parametrize(("version", "strategy"), java_cases("StickyAssignor", "CooperativeStickyAssignor"))
def test_ten_partitions_sticky_of_java_consumers(java: Group, version: str, strategy: str) -> None:
    """The third one leads at first and gives out what the example starts from; the rest is for the others to decide."""
    create(java, 10)
    port = int(java.bootstrap.rpartition(":")[2])
    protocol = {"StickyAssignor": "sticky", "CooperativeStickyAssignor": "cooperative-sticky"}[strategy]
    with contextlib.closing(Member(port, java.group, "c", protocol, topic=java.topic)) as third:
        wait_for_coordinator(third.asker, java.group)
        third.join()
        third.sync({})
        for name in "ab":
            java.start_java(name, version, strategy)
        lead(third, java.topic, {"a": [0, 1, 2, 3], "b": [4, 5, 6], "c": [7, 8, 9]})
        java.wait_for_shares({0, 1, 2, 3}, {4, 5, 6})
        third.leave()
        java.wait_for_shares({0, 1, 2, 3, 7}, {4, 5, 6, 8, 9})
    java.assert_one_owner_each()


def lead(leader: Member, topic: str, shares: dict[str, list[int]]) -> None:
    """Through generations, until each member has come and got the share that its name has."""
    there: set[str] = set()
    while there != set(shares):
        leader.wait_for_rebalance()
        names = {member.member_id: member.member_id.partition("-")[0] for member in leader.join().members}
        leader.sync({member: assignment(topic, shares[name]) for member, name in names.items()})
        there = set(names.values())
