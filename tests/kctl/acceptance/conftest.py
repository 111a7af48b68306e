"""The clusters on which the daily work has to be possible: kafkad, three brokers with ZooKeeper, one with KRaft."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, Ran, until

REAL = (pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300))
AGAIN = (pytest.mark.long, *REAL[1:])
"""With KRaft in CI there are only the tests of what it alone has (test_kraft)."""
KINDS = ("broker", pytest.param("three", marks=REAL), pytest.param("kraft", marks=AGAIN))
on_several_brokers = pytest.mark.parametrize("cluster", [pytest.param("three", marks=REAL)], indirect=True)
SECONDS = 90


class Cluster(NamedTuple):
    """A cluster of any kind, with the command line against it."""

    kind: str
    bootstrap: str
    kctl: Kctl

    @property
    def brokers(self) -> int:
        return len(self.bootstrap.split(","))

    def does(self, *words: object) -> Ran:
        """Runs a command that must succeed."""
        ran = self.kctl(*words)
        assert ran.code == Exit.DONE, (words, ran)
        return ran

    def items(self, *words: object) -> list[dict[str, Any]]:
        whole = json.loads(self.does(*words, "-o", "json").out)
        assert (whole["kctl"], whole["errors"]) == (1, [])
        return list(whole["items"])

    def item(self, *words: object) -> dict[str, Any]:
        (only,) = self.items(*words)
        return only

    def command(self, *words: str) -> list[str]:
        """For a process of its own."""
        return [sys.executable, "-m", "kctl", "-b", self.bootstrap, *words]


@pytest.fixture(params=KINDS)
def cluster(request: pytest.FixtureRequest, kctl: Kctl) -> Cluster:
    kind = request.param
    bootstrap = request.getfixturevalue(kind).bootstrap
    return Cluster(kind, bootstrap, lambda *words: kctl("-b", bootstrap, *words))


@pytest.fixture
def topic(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """`topic("name", 3)` creates one with so many partitions on all brokers; it is deleted at the end."""
    created: list[str] = []

    def create(name: str, partitions: int = 1, *words: object) -> str:
        cluster.does("topics", "create", name, "-p", partitions, "-r", cluster.brokers, "-y", *words)
        created.append(name)
        return name

    yield create
    if created:
        cluster.kctl("topics", "delete", *created, "--if-exists", "-y", "--undo-dir", tmp_path)


@pytest.fixture
def send(cluster: Cluster, tmp_path: Path) -> Callable[..., None]:
    """`send(topic, {"key": …, "value": …}, …)`"""

    def produce(name: str, *records: dict[str, Any]) -> None:
        lines = tmp_path / "records.jsonl"
        lines.write_text("".join(json.dumps(record) + "\n" for record in records))
        cluster.does("produce", name, "--json", "--keep-partition", "--file", lines, "-q")

    return produce


@contextlib.contextmanager
def reader(bootstrap: str, group: str, topic: str, partitions: int, **settings: object) -> Iterator[Any]:
    """A member of librdkafka that has its partitions, commits nothing by itself and leaves at the end."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "librdkafka",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:

        def assigned() -> bool:
            consumer.poll(0.1)
            return len(consumer.assignment()) == partitions

        until(assigned, f"the member of {group} has its partitions", SECONDS)
        yield consumer
    finally:
        consumer.close()
