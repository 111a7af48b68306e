"""Features of a cluster without ZooKeeper: its quorum, features, and groups of the new protocol."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from kctl.errors import Exit
from tests.kctl.acceptance.conftest import SECONDS, Cluster, reader
from tests.kctl.conftest import until
from tests.oracle.kafka import tool

NewTopic = Callable[..., str]
Send = Callable[..., None]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("cluster", ["kraft"], indirect=True),
]


def test_quorum_and_features(cluster: Cluster) -> None:
    (voter,) = cluster.items("cluster", "quorum")
    assert (voter["id"], voter["role"], voter["lag"]) == (1, "leader", 0)
    features = {row["feature"]: row for row in cluster.items("cluster", "features")}
    assert features["group.version"]["level"] == 1
    assert features["metadata.version"]["level"] > 0
    assert "kraft" in cluster.does("cluster", "describe").out
    assert cluster.kctl("cluster", "zk", "ls", "/").code == Exit.NOT_FOUND


def test_members_of_the_new_protocol(cluster: Cluster, topic: NewTopic, send: Send, tmp_path: Path) -> None:
    """One of librdkafka, one of Java."""
    name, group = topic("accept-new", 4), "accept-new"
    send(name, *({"partition": number % 4, "value": str(number)} for number in range(40)))
    words = ("--bootstrap-server", cluster.bootstrap, "--topic", name, "--group", group)
    new = ("--command-property", "group.protocol=consumer", "--command-property", "enable.auto.commit=false")
    with reader(cluster.bootstrap, group, name, 4, **{"group.protocol": "consumer"}) as consumer:
        java = subprocess.Popen(tool("4.3", "console-consumer", *words, *new), stdout=subprocess.DEVNULL)
        try:

            def shared() -> bool:
                consumer.poll(0.1)
                members = cluster.items("groups", "members", group)
                return [member["partitions"] for member in members] == [2, 2]

            until(shared, "both have partitions", SECONDS)
            mine = min(consumer.assignment(), key=lambda each: int(each.partition))
            consumer.commit(offsets=[confluent_kafka.TopicPartition(name, mine.partition, 4)], asynchronous=False)
            listed = cluster.item("groups", "list", group)
            assert [listed[field] for field in ("state", "type", "members", "lag")] == ["Stable", "consumer", 2, 36]
            assert cluster.items("groups", "list", "--type", "consumer") == [listed]
            shown = cluster.item("groups", "describe", group)
            assert (shown["type"], shown["protocol"], shown["lag"]) == ("consumer", "uniform", 36)
            assert sorted(member["client"] for member in shown["members"]) == ["console-consumer", "librdkafka"]
            assert {row["partition"]: row["committed"] for row in shown["offsets"]} == {
                number: 4 if number == mine.partition else None for number in range(4)
            }
            lag = cluster.item("groups", "lag", group)
            assert (lag["lag"], lag["partitions"], lag["uncommitted"]) == (36, 4, 3)
            assert [row["status"] for row in cluster.items("groups", "rebalance", group)] == ["ready", "ready"]
            assert "epoch" in cluster.does("groups", "rebalance", group).out
            back = ("groups", "reset-offsets", group, "--topic", name, "--to", "earliest", "--undo-dir", tmp_path)
            assert cluster.kctl(*back, "-y").code == Exit.REFUSED
        finally:
            java.terminate()
            java.wait(SECONDS)
    until(lambda: cluster.item("groups", "list", group)["state"] == "Empty", "all have left", SECONDS)
    cluster.does(*back, "-y")
    assert cluster.item("groups", "lag", group)["lag"] == 40
    cluster.does("groups", "delete", group, "-y", "--undo-dir", tmp_path)


def test_members_of_the_classic_protocol(cluster: Cluster, topic: NewTopic, send: Send, tmp_path: Path) -> None:
    name, group = topic("accept-classic", 2), "accept-classic"
    send(name, *({"partition": number % 2, "value": str(number)} for number in range(10)))
    words = ("--bootstrap-server", cluster.bootstrap, "--topic", name, "--group", group)
    ours = {"partition.assignment.strategy": "range"}
    with reader(cluster.bootstrap, group, name, 2, **ours) as consumer:
        java = subprocess.Popen(tool("4.3", "console-consumer", *words), stdout=subprocess.DEVNULL)
        try:

            def shared() -> bool:
                consumer.poll(0.1)
                members = cluster.items("groups", "members", group)
                return sorted((member["client"], member["partitions"]) for member in members) == [
                    ("console-consumer", 1),
                    ("librdkafka", 1),
                ]

            until(shared, "both have a partition", SECONDS)
            assert cluster.item("groups", "describe", group)["protocol"] == "range"
        finally:
            java.terminate()
            java.wait(SECONDS)
    cluster.does("groups", "delete", group, "-y", "--undo-dir", tmp_path)
