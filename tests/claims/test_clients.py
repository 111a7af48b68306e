"""The claims of docs/claims.md about producers, consumers and groups, with clients that everybody uses."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.broker import KafkadProcess
from tests.clients.test_confluent import create

SECONDS = 60
NUMBERS = count()


@pytest.fixture(scope="module")
def kafkad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with KafkadProcess(tmp_path_factory.mktemp("claims"), settings) as process:
        yield process


@pytest.fixture
def admin(kafkad: KafkadProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafkad.bootstrap})


@pytest.fixture
def name() -> str:
    return f"claim-{next(NUMBERS)}"


@contextmanager
def member(kafkad: KafkadProcess, group: str, *topics: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafkad.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 200,
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe(list(topics))
    try:
        yield consumer
    finally:
        consumer.close()


def send(kafkad: KafkadProcess, topic: str, partition: int, value: str) -> None:
    producer = Producer({"bootstrap.servers": kafkad.bootstrap})
    producer.produce(topic, value.encode(), partition=partition)
    assert producer.flush(SECONDS) == 0


def until(condition: Callable[[], bool], *members: Consumer) -> list[str]:
    """Members go on reading until something holds; what they have read meanwhile."""
    deadline = time.monotonic() + SECONDS
    read: list[str] = []
    while not condition():
        assert time.monotonic() < deadline, read
        for each in members:
            _read_one(each, read)
    return read


def read_until(wanted: str, *members: Consumer) -> list[str]:
    read: list[str] = []
    deadline = time.monotonic() + SECONDS
    while wanted not in read:
        assert time.monotonic() < deadline, read
        for each in members:
            _read_one(each, read)
    return read


def _read_one(consumer: Consumer, read: list[str]) -> None:
    message = consumer.poll(0.1)
    if message is not None and not message.error():
        read.append(message.value().decode())


def share(consumer: Consumer) -> set[tuple[str, int]]:
    return {(tp.topic, tp.partition) for tp in consumer.assignment()}


def test_a_consumer_that_runs_picks_up_added_partitions(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claims 5 and 64: more partitions make the group rebalance."""
    create(admin, name, 2)
    with member(kafkad, name, name) as consumer:
        until(lambda: len(share(consumer)) == 2, consumer)
        admin.create_partitions([NewPartitions(name, 4)])[name].result(SECONDS)
        send(kafkad, name, 3, "new")
        assert read_until("new", consumer) == ["new"]
        assert share(consumer) == {(name, partition) for partition in range(4)}


def test_a_consumer_that_runs_picks_up_topics_that_match(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claims 64 and 72: a topic that matches the pattern of a subscription, and a subscription to more."""
    create(admin, f"{name}.a")
    create(admin, f"other-{name}")
    with member(kafkad, name, rf"^{name}\..*") as consumer:
        until(lambda: share(consumer) == {(f"{name}.a", 0)}, consumer)
        create(admin, f"{name}.b")
        send(kafkad, f"{name}.b", 0, "matches")
        read_until("matches", consumer)
        assert share(consumer) == {(f"{name}.a", 0), (f"{name}.b", 0)}
        consumer.subscribe([rf"^{name}\..*", f"other-{name}"])
        until(lambda: (f"other-{name}", 0) in share(consumer), consumer)


@pytest.mark.slow
def test_a_group_rebalances_when_members_come_go_and_crash(
    kafkad: KafkadProcess, admin: AdminClient, name: str
) -> None:
    """Claim 64."""
    create(admin, name, 4)
    crashing = [
        sys.executable,
        "-m",
        "tests.clients.consuming",
        "confluent-kafka",
        kafkad.bootstrap,
        name,
        name,
        "crashes",
    ]
    with member(kafkad, name, name) as first:
        until(lambda: len(share(first)) == 4, first)
        with member(kafkad, name, name) as second:
            until(lambda: len(share(first)) == len(share(second)) == 2, first, second)
        until(lambda: len(share(first)) == 4, first)
        with subprocess.Popen([*crashing, "range", "sync", "", "6000"], stdout=subprocess.DEVNULL) as other:
            until(lambda: len(share(first)) == 2, first)
            other.kill()
        until(lambda: len(share(first)) == 4, first)


def test_who_assigns_itself_partitions_rebalances_nobody(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claim 56: assign() neither joins the group nor is disturbed by it; two may read the same partition."""
    create(admin, name, 2)
    settings = {"bootstrap.servers": kafkad.bootstrap, "group.id": name, "enable.auto.commit": False}
    assigned = [Consumer(settings), Consumer(settings)]
    for consumer in assigned:
        consumer.assign([TopicPartition(name, 0, 0)])
    revoked: list[object] = []
    member_of_group = Consumer({**settings, "auto.offset.reset": "earliest"})
    member_of_group.subscribe([name], on_revoke=lambda _, partitions: revoked.append(partitions))
    until(lambda: len(share(member_of_group)) == 2, member_of_group, *assigned)
    send(kafkad, name, 0, "for all")
    for consumer in (member_of_group, *assigned):
        read_until("for all", consumer)
    for consumer in assigned:
        assert share(consumer) == {(name, 0)}
        consumer.close()
    until(lambda: len(share(member_of_group)) == 2, member_of_group)
    [group] = admin.describe_consumer_groups([name]).values()
    assert len(group.result(SECONDS).members) == 1
    assert revoked == []
    member_of_group.close()


def test_one_client_reads_several_topics(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claim 75."""
    topics = [create(admin, f"{name}-{number}") for number in range(3)]
    for topic in topics:
        send(kafkad, topic, 0, topic)
    with member(kafkad, name, *topics) as consumer:
        read: list[str] = []
        deadline = time.monotonic() + SECONDS
        while set(read) != set(topics):
            assert time.monotonic() < deadline, read
            _read_one(consumer, read)
        assert share(consumer) == {(topic, 0) for topic in topics}


def test_records_without_a_key_go_everywhere(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claim 75."""
    create(admin, name, 4)
    producer = Producer(
        {"bootstrap.servers": kafkad.bootstrap, "partitioner": "random", "sticky.partitioning.linger.ms": 0}
    )
    for _ in range(400):
        producer.produce(name, b"x")
    assert producer.flush(SECONDS) == 0
    with member(kafkad, name, name) as consumer:
        ends = [consumer.get_watermark_offsets(TopicPartition(name, partition))[1] for partition in range(4)]
    assert sum(ends) == 400
    assert min(ends) > 40


PRODUCES_AND_WAITS = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 60000, "batch.num.messages": 1000000})
for number in range(1000):
    producer.produce(sys.argv[2], b"%d" % number)
producer.poll(0)
print("buffered", flush=True)
time.sleep(600)
"""


def test_what_a_producer_has_buffered_dies_with_it(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claim 49: records that wait in a client for their batch were never acknowledged, and are lost with it."""
    create(admin, name)
    command = [sys.executable, "-c", PRODUCES_AND_WAITS, kafkad.bootstrap, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as producer:
        assert producer.stdout is not None
        assert producer.stdout.readline() == b"buffered\n"
        producer.kill()
    send(kafkad, name, 0, "after it")
    with member(kafkad, name, name) as consumer:
        assert read_until("after it", consumer) == ["after it"]


def test_a_group_goes_on_where_it_committed(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claims 69 and 53: what was read and not committed is read again, nothing is lost."""
    create(admin, name)
    for number in range(6):
        send(kafkad, name, 0, str(number))
    settings = {"bootstrap.servers": kafkad.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    first = Consumer({**settings, "enable.auto.commit": False, "session.timeout.ms": 6000})
    first.subscribe([name])
    read_until("5", first)
    first.commit(offsets=[TopicPartition(name, 0, 4)], asynchronous=False)
    first.unsubscribe()
    first.close()
    with member(kafkad, name, name) as second:
        assert read_until("5", second) == ["4", "5"]
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(SECONDS)
    assert [tp.offset for tp in committed.topic_partitions] == [6]


def test_a_directory_of_log_files_is_all_there_is(kafkad: KafkadProcess, admin: AdminClient, name: str) -> None:
    """Claims 8 and 12."""
    create(admin, name)
    send(kafkad, name, 0, "x")
    files = {path.name for path in Path(kafkad.log_directory(), f"{name}-0").iterdir()}
    base = "0" * 20
    assert files >= {f"{base}.log", f"{base}.index", f"{base}.timeindex", "partition.metadata"}
