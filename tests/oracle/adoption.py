"""Real Kafka 3.9 on a data directory that another broker wrote, with a new ZooKeeper told what the directory holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from kazoo.client import KazooClient

from tests.oracle.kafka import Kafka


class AdoptingKafka(Kafka):
    """Registers the directory's cluster id and its partitions in ZooKeeper before the broker starts on it.

    It gives producer ids that the directory's logs do not know, and leads in the last epochs that they know: a
    coordinator in an earlier one would be fenced by the markers of those before.
    """

    def __init__(self, data: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__("3.9", data=data, heap="512m", settings=settings)
        self._directory = data

    def prepare_zookeeper(self, connect: str) -> None:
        client = KazooClient(connect)
        client.start()
        try:
            cluster = properties(self._directory / "meta.properties")["cluster.id"]
            client.create("/cluster/id", json.dumps({"version": "1", "id": cluster}).encode(), makepath=True)
            given = {"version": 1, "broker": 1, "block_start": "1000000", "block_end": "1000999"}
            client.create("/latest_producer_id_block", json.dumps(given).encode())
            for topic, (topic_id, partitions) in topics(self._directory).items():
                replicas = {str(partition): [1] for partition in range(partitions)}
                value = {"removing_replicas": {}, "partitions": replicas, "topic_id": topic_id, "adding_replicas": {}}
                value["version"] = 3
                client.create(f"/brokers/topics/{topic}", json.dumps(value).encode(), makepath=True)
                for partition in range(partitions):
                    epoch = last_epoch(self._directory / f"{topic}-{partition}" / "leader-epoch-checkpoint")
                    state = {"controller_epoch": 0, "leader": 1, "version": 1, "leader_epoch": epoch, "isr": [1]}
                    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
                    client.create(path, json.dumps(state).encode(), makepath=True)
        finally:
            client.stop()
            client.close()


def properties(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return dict(line.split("=", 1) for line in lines)


def last_epoch(checkpoint: Path) -> int:
    """0 where there is none."""
    lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
    return int(lines[-1].split()[0]) if lines else 0


def topics(directory: Path) -> dict[str, tuple[str, int]]:
    """Topic → (id, number of partitions), as the partitions' directories say."""
    found: dict[str, tuple[str, int]] = {}
    for metadata in directory.glob("*/partition.metadata"):
        topic = metadata.parent.name.rpartition("-")[0]
        lines = dict(line.split(": ", 1) for line in metadata.read_text().splitlines())
        found[topic] = (lines["topic_id"], found.get(topic, ("", 0))[1] + 1)
    return found
