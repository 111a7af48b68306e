"""Deliveries of a record when the program that reads it crashes between its steps (delivering.py)."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.conftest import Broker
from tests.clients.delivering import Results

SECONDS = 60
RECORDS = 60
PARTITIONS = 2
CRASHES = (7, 0, 11)
"""After how many records each run crashes; the last one is left alone."""
NEVER = -1

pytestmark = pytest.mark.slow


def produce(bootstrap: str, topic: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap})
    values = [f"record {i}" for i in range(RECORDS)]
    for i, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=i % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    return values


@pytest.mark.client("confluent-kafka", "delivery {way}, with crashes between the steps")
@pytest.mark.parametrize(
    ("way", "lost", "repeated"),
    [("at-most-once", len(CRASHES), 0), ("at-least-once", 0, len(CRASHES)), ("exactly-once", 0, 0)],
)
def test_delivery(broker: Broker, name: Callable[[], str], tmp_path: Path, way: str, lost: int, repeated: int) -> None:
    topic = name()
    values = produce(broker.bootstrap, topic)
    database = tmp_path / "results.sqlite"
    for crash_after in (*CRASHES, NEVER):
        words = [way, broker.bootstrap, topic, str(database), str(crash_after)]
        command = [sys.executable, "-m", "tests.clients.delivering", *words]
        status = subprocess.run(command, timeout=SECONDS, check=False).returncode
        assert status == (0 if crash_after == NEVER else -signal.SIGKILL)
    with contextlib.closing(Results(str(database))) as results:
        counted = Counter(results.values())
    assert set(counted) <= set(values)
    assert len(values) - len(counted) == lost
    assert counted.total() - len(counted) == repeated
