"""Kafka Connect in distributed mode: what workers share survives them, and the broker's crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.broker import KafkadProcess
from tests.clients.conftest import SETTINGS, TARGETS
from tests.clients.connecting import STORES, Worker, wait
from tests.oracle.kafka import Kafka, fetch, missing

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

    def connect(self, worker: Worker) -> None:
        package = "org.apache.kafka.connect.file.FileStream"
        worker.create(
            SOURCE, **{"connector.class": f"{package}SourceConnector", "file": str(self._from), "topic": "lines"}
        )
        sink = {
            "connector.class": f"{package}SinkConnector",
            "file": str(self._to),
            "topics": "lines",
            "tasks.max": "2",
        }
        worker.create(SINK, **sink)

    def pass_through(self, name: str, count: int = 100) -> None:
        """Returns when these lines, and all before them, have come out."""
        lines = [f"{name} {number}" for number in range(count)]
        self.written.update(lines)
        with self._from.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        wait(lambda: set(self._to.read_text().splitlines()) == self.written, f"lines {name}")


def runs_on(worker: Worker, workers: int) -> None:
    wait(lambda: list(worker.states(SOURCE, SINK).values()) == [{"RUNNING"}] * workers, f"work for {workers}")


def policies(bootstrap: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [ConfigResource(ResourceType.TOPIC, f"connect-{store}") for store in STORES]
    return [found.result(30)["cleanup.policy"].value for found in admin.describe_configs(topics).values()]


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
