"""Kafka Connect in distributed mode: what workers share survives them, and the broker's crash."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.broker import KafkadProcess
from tests.clients.conftest import SETTINGS, TARGETS
from tests.clients.connecting import STORES, Worker, wait
from tests.oracle.kafka import Kafka, fetch, missing
from tests.txn.raw import Raw

CONNECTORS_JAR = "connect-file"
SOURCE, SINK = "source", "sink"

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(params=TARGETS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkadProcess | Kafka]:
    """One that the test may kill."""
    if reason := missing("3.9", CONNECTORS_JAR):
        pytest.skip(reason)
    fetch("3.9", CONNECTORS_JAR)
    settings = SETTINGS | {"num.partitions": "2"}
    if request.param == "kafkad":
        with KafkadProcess(tmp_path / "kafkad", settings) as kafkad:
            yield kafkad
    else:
        with Kafka("3.9", settings=settings, heap="512m") as kafka:
            yield kafka


def crash(broker: KafkadProcess | Kafka) -> None:
    if isinstance(broker, Kafka):
        broker.restart(kill=True)
    else:
        broker.kill()
        broker.start()


class Lines:
    """A file that a source follows, and the one that a sink writes, over the topic `lines`."""

    def __init__(self, scratch: Path) -> None:
        self.written: set[str] = set()
        self._from = scratch / "from.txt"
        self._to = scratch / "to.txt"
        self._from.touch()
        self._to.touch()

    def connect(self, worker: Worker, **more: str) -> None:
        """`more` is for the source."""
        package = "org.apache.kafka.connect.file.FileStream"
        source = {"connector.class": f"{package}SourceConnector", "file": str(self._from), "topic": "lines"}
        worker.create(SOURCE, **source, **more)
        sink = {
            "connector.class": f"{package}SinkConnector",
            "file": str(self._to),
            "topics": "lines",
            "tasks.max": "2",
        }
        worker.create(SINK, **sink)

    def write(self, name: str, count: int) -> None:
        lines = [f"{name} {number}" for number in range(count)]
        self.written.update(lines)
        with self._from.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def pass_through(self, name: str, count: int = 100) -> None:
        """Returns when these lines, and all before them, have come out."""
        self.write(name, count)
        wait(lambda: set(self._to.read_text().splitlines()) == self.written, f"lines {name}")


def runs_on(worker: Worker, workers: int) -> None:
    wait(lambda: list(worker.states(SOURCE, SINK).values()) == [{"RUNNING"}] * workers, f"work for {workers}")


def policies(bootstrap: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [ConfigResource(ResourceType.TOPIC, f"connect-{store}") for store in STORES]
    return [found.result(30)["cleanup.policy"].value for found in admin.describe_configs(topics).values()]


def committed(bootstrap: str, count: int) -> list[str]:
    """The lines in the topic that a reader of committed records finds, up to its end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "isolation.level": "read_committed"})
    places = [TopicPartition("lines", index, 0) for index in range(2)]
    consumer.assign(places)
    ends = {place.partition: consumer.get_watermark_offsets(place, 30)[1] for place in places}
    found: list[str] = []
    try:
        wait(lambda: bool(found.extend(lines(consumer))) or len(found) >= count, f"{count} lines in the topic")
    except AssertionError as late:
        at = consumer.position(places)
        raise AssertionError(f"{late}; found {len(found)}, up to {at} of {ends}; {left_open(bootstrap)}") from late
    while any(at.offset < ends[at.partition] for at in consumer.position(places)):
        found.extend(lines(consumer))
    consumer.close()
    return found


def left_open(bootstrap: str) -> str:
    """The transactions that readers wait for."""
    raw = Raw(int(bootstrap.rpartition(":")[2]))
    with contextlib.closing(raw):
        states = raw.ask("ListTransactions", 0, {"state_filters": ["Ongoing", "PrepareCommit", "PrepareAbort"]})
        names = [one.transactional_id for one in states.transaction_states]
        return f"open transactions: {[raw.describe(name) for name in names]}"


def lines(consumer: Consumer) -> list[str]:
    return [(one.value() or b"").decode() for one in consumer.consume(1_000, 1) if one.error() is None]


@pytest.mark.long
def test_an_exactly_once_source(broker: KafkadProcess | Kafka, tmp_path: Path) -> None:
    """What it reads and how far it has read are written in one transaction; workers fence each other.

    The sink waits for what is committed: a worker that is killed before leaves that open until its time-out, and then
    it is aborted.
    """
    once = {"exactly.once.source.support": "enabled", "consumer.isolation.level": "read_committed"}
    passing = Lines(tmp_path)
    with Worker(broker.bootstrap, tmp_path, "first", once) as first:
        wait(lambda: first.ask("/connectors") == [], "first worker")
        passing.connect(first, **{"exactly.once.support": "required"})
        passing.pass_through("alone")
        with Worker(broker.bootstrap, tmp_path, "second", once) as second:
            wait(lambda: set(second.ask("/connectors")) == {SOURCE, SINK}, "second worker")
            runs_on(second, 2)
            for number in range(3):
                passing.write(f"before crash {number}", 1_000)
                crash(broker)
                passing.pass_through(f"after crash {number}")
            passing.write("before a worker dies", 1_000)
            second.kill()
            passing.pass_through("after a worker died")
        passing.write("before the other one dies", 1_000)
        first.kill()
    with Worker(broker.bootstrap, tmp_path, "third", once):
        passing.pass_through("in the end")
    assert sorted(committed(broker.bootstrap, len(passing.written))) == sorted(passing.written)


@pytest.mark.client("Kafka Connect 3.9", "two workers, while they and the broker are killed")
def test_workers_come_and_crash(broker: KafkadProcess | Kafka, tmp_path: Path) -> None:
    lines = Lines(tmp_path)
    with Worker(broker.bootstrap, tmp_path, "first") as first:
        wait(lambda: first.ask("/connectors") == [], "first worker")
        lines.connect(first)
        lines.pass_through("alone")
        assert policies(broker.bootstrap) == ["compact"] * len(STORES)
        with Worker(broker.bootstrap, tmp_path, "second") as second:
            wait(lambda: set(second.ask("/connectors")) == {SOURCE, SINK}, "second worker")
            runs_on(second, 2)
            lines.pass_through("shared")
            crash(broker)
            lines.pass_through("after a crash of the broker")
            second.kill()
            lines.pass_through("after a crash of a worker")
        runs_on(first, 1)
        first.stop()
    with Worker(broker.bootstrap, tmp_path, "third") as third:
        lines.pass_through("to who knows of the others only by their topics")
        runs_on(third, 1)
