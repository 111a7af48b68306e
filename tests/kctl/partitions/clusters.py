"""Topics, records and plans for tests on real clusters, and what these look like afterwards."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, until
from tests.oracle.kafka import Kafka, tool

MB = 1_000_000
RECORD = b"x" * 10_000


def kafka(cluster: Kafka, name: str, *arguments: str) -> str:
    """The output of one of Kafka's own tools."""
    command = tool(cluster.version, name, "--bootstrap-server", cluster.bootstrap, *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def items(kctl: Kctl, *arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(kctl(*arguments, "-o", "json").out)["items"]
    return found


def moves(kctl: Kctl) -> list[dict[str, Any]]:
    return items(kctl, "partitions", "status")


def throttles(kctl: Kctl) -> list[dict[str, Any]]:
    return items(kctl, "partitions", "throttle", "show")


def replicas(kctl: Kctl, topic: str) -> list[list[int]]:
    return [each["replicas"] for each in items(kctl, "partitions", "list", topic)]


def leaders(kctl: Kctl, topic: str) -> list[int]:
    return [each["leader"] for each in items(kctl, "partitions", "list", topic)]


def create(kctl: Kctl, name: str, *assignment: Sequence[int]) -> None:
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [
            {"partition_index": index, "broker_ids": list(brokers)} for index, brokers in enumerate(assignment)
        ],
    }
    assert kctl("-y", "raw", "CreateTopics", json.dumps({"topics": [topic]})).code == Exit.DONE
    until(lambda: leaders(kctl, name) == [brokers[0] for brokers in assignment], f"{name} has its leaders")


def fill(cluster: Kafka, topic: str, partitions: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "queue.buffering.max.kbytes": 200_000})
    for number in range(size // len(RECORD)):
        producer.produce(topic, RECORD, partition=number % partitions)
    assert producer.flush(60) == 0


def write_plan(name: str, *entries: tuple[str, int, list[int]]) -> None:
    partitions = [{"topic": topic, "partition": number, "replicas": replicas} for topic, number, replicas in entries]
    Path(name).write_text(json.dumps({"version": 1, "partitions": partitions}))
