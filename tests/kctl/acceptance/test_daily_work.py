"""The tasks of every day, from the command line, on each kind of cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest

from kctl.doctor.facts import SILENT_MS
from kctl.errors import Exit
from tests.kctl.acceptance.conftest import Cluster, reader
from tests.kctl.conftest import until

NewTopic = Callable[..., str]
Send = Callable[..., None]

MINUTE_MS = 60_000
BEGIN_MS = 1_790_000_040_000
"""2026-09-21T14:14:00Z, when the first record was written."""


def minutes(count: int, partitions: int = 1) -> list[dict[str, object]]:
    """A record a minute, in all partitions by turns; three keys."""
    return [
        {
            "partition": number % partitions,
            "timestamp_ms": BEGIN_MS + number * MINUTE_MS,
            "key": f"customer-{number % 3}",
            "value": json.dumps({"number": number}),
            "headers": [{"key": "source", "value": "web" if number % 2 else "shop"}],
        }
        for number in range(count)
    ]


def test_a_topic_from_creation_to_deletion(cluster: Cluster, topic: NewTopic, tmp_path: Path) -> None:
    name = "accept-life"
    words = ("topics", "create", name, "-p", 3, "-r", cluster.brokers, "--config", "retention.ms=7d")
    cluster.does(*words, "--dry-run")
    assert cluster.kctl("topics", "list", name).code == Exit.NOT_FOUND
    topic(name, 3, "--config", "retention.ms=7d")
    assert cluster.kctl(*words, "-y").code == Exit.FAILED, "there already"
    cluster.does(*words, "-y", "--if-not-exists")
    listed = cluster.item("topics", "list", name)
    assert (listed["partitions"], listed["replication"]) == (3, cluster.brokers)
    until(lambda: cluster.item("topics", "list", name)["size_bytes"] == 0, "the leaders have made their directories")
    shown = cluster.item("topics", "describe", name)
    assert [partition["partition"] for partition in shown["partitions"]] == [0, 1, 2]
    assert {"name": "retention.ms", "value": "604800000", "source": "topic", "default": False} in shown["configs"]
    cluster.does("topics", "describe", name)
    cluster.does("topics", "delete", name, "-y", "--undo-dir", tmp_path)
    assert cluster.kctl("topics", "describe", name).code == Exit.NOT_FOUND


def test_deleting_asks(cluster: Cluster, topic: NewTopic) -> None:
    name = topic("accept-asked")
    ran = cluster.kctl("topics", "delete", name)
    assert (ran.code, "no terminal to confirm on" in ran.err) == (Exit.REFUSED, True)
    cluster.does("topics", "delete", name, "--dry-run")
    cluster.does("topics", "list", name)


def test_a_setting_there_and_back(cluster: Cluster, topic: NewTopic) -> None:
    name = topic("accept-settings", 1, "--config", "retention.ms=7d")
    resource = f"topic/{name}"
    ran = cluster.does("configs", "set", resource, "retention.ms=1d", "-y")
    assert all(text in ran.out for text in ("604800000 (7d)", "86400000 (1d)", "deletes data older than 1d now"))

    def own() -> dict[str, str]:
        rows = cluster.items("configs", "describe", resource)
        return {row["name"]: row["value"] for row in rows if row["source"] == "topic"}

    assert own() == {"retention.ms": "86400000"}
    cluster.does("configs", "set", resource, "cleanup.policy+=compact", "-y")
    assert set(own()["cleanup.policy"].split(",")) == {"delete", "compact"}
    cluster.does("configs", "unset", resource, "retention.ms", "cleanup.policy", "-y")
    assert own() == {}
    assert cluster.kctl("configs", "set", resource, "no.such=1", "-y").code == Exit.FAILED
    assert cluster.kctl("configs", "set", "topic/accept-nothing", "retention.ms=1", "-y").code == Exit.NOT_FOUND


def test_records_there_and_back(cluster: Cluster, topic: NewTopic, send: Send) -> None:
    name = topic("accept-records", 3)
    sent = minutes(30, 3)
    send(name, *sent)

    def numbers(*words: str) -> list[int]:
        lines = cluster.does("consume", name, "-o", "json", *words).out.splitlines()
        return [json.loads(json.loads(line)["value"])["number"] for line in lines]

    last = [json.loads(line) for line in cluster.does("consume", name, "--last", "4", "-o", "json").out.splitlines()]
    assert [{field: record[field] for field in sent[0]} for record in last] == sent[-4:]
    assert sorted(numbers("--key", "customer-1", "--all-partitions")) == list(range(1, 30, 3))
    assert sorted(numbers("--key", "customer-[12]")) == [number for number in range(30) if number % 3]
    assert sorted(numbers("--header", "source=web")) == list(range(1, 30, 2))
    assert sorted(numbers("--filter", "value.number >= 27 or value.number == 1")) == [1, 27, 28, 29]
    assert sorted(numbers("--from", "@2026-09-21T14:24:00Z", "--to", "@2026-09-21T14:30:00Z")) == list(range(10, 16))
    assert numbers("--value", "nothing*") == []
    assert cluster.kctl("consume", name, "--value", "nothing*", "--fail-empty").code == Exit.NOT_FOUND


def test_partitions_without_a_commit_count(cluster: Cluster, topic: NewTopic, send: Send, tmp_path: Path) -> None:
    name, group = topic("accept-lag", 3), "accept-lag"
    send(name, *minutes(30, 3))
    with reader(cluster.bootstrap, group, name, 3) as consumer:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(name, 1, 4)], asynchronous=False)
        row = cluster.item("groups", "lag", group)
        assert (row["topic"], row["lag"], row["partitions"], row["uncommitted"]) == (name, 26, 3, 2)
        assert row in cluster.items("groups", "lag"), "of all groups"
        listed = cluster.item("groups", "list", group)
        assert (listed["state"], listed["members"], listed["topics"], listed["lag"]) == ("Stable", 1, [name], 26)
        shown = cluster.item("groups", "describe", group)
        assert [(row["partition"], row["committed"], row["lag"]) for row in shown["offsets"]] == [
            (0, None, 10),
            (1, 4, 6),
            (2, None, 10),
        ]
        assert cluster.items("groups", "list", "--topic", name) == [listed]
        by_member = cluster.item("groups", "lag", group, "--by", "member")
        assert (by_member["member"], by_member["lag"]) == ("librdkafka", 26)
        for verb in ("list", "describe", "lag", "members", "rebalance"):
            cluster.does("groups", verb, group)
    cluster.does("groups", "delete", group, "-y", "--undo-dir", tmp_path)


def test_a_member_that_gets_nothing_done(
    cluster: Cluster, topic: NewTopic, send: Send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, group = topic("accept-stuck", 2), "accept-stuck"
    send(name, *minutes(20, 2))
    doctor = ("doctor", "--only", "stuck", "-o", "json")
    with reader(cluster.bootstrap, group, name, 2) as consumer:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(name, 0, 4)], asynchronous=False)
        assert name not in cluster.kctl(*doctor).out, "it has just joined"
        later = time.time() + 2 * SILENT_MS / 1000
        with monkeypatch.context() as changed:
            changed.setattr(time, "time", lambda: later)
            ran = cluster.kctl(*doctor)
        assert (ran.code, ran.err) == (Exit.FINDINGS, "")
        summaries = {tuple(item["items"]): item["summary"] for item in json.loads(ran.out)["items"]}
        who = f"librdkafka (127.0.0.1) of group {group}"
        told = f"{who} has committed nothing for 5 minutes or longer, with 6 records to read"
        assert summaries[f"{name}-0",] == told
    cluster.does("groups", "delete", group, "-y", "--undo-dir", tmp_path)


def test_a_group_goes_back_in_time(cluster: Cluster, topic: NewTopic, send: Send, tmp_path: Path) -> None:
    name, group = topic("accept-reset", 2), "accept-reset"
    send(name, *minutes(20, 2))
    words = ("groups", "reset-offsets", group, "--topic", name, "--undo-dir", tmp_path)
    with reader(cluster.bootstrap, group, name, 2) as consumer:
        ends = [confluent_kafka.TopicPartition(name, partition, 10) for partition in (0, 1)]
        consumer.commit(offsets=ends, asynchronous=False)
        ran = cluster.kctl(*words, "--to", "earliest", "-y")
        assert (ran.code, "stop: librdkafka@127.0.0.1" in ran.err) == (Exit.REFUSED, True)
        assert cluster.kctl("groups", "delete", group, "-y", "--undo-dir", tmp_path).code == Exit.REFUSED
    back = (*words, "--to", "@2026-09-21T14:24:00Z")
    planned = [(row["partition"], row["current"], row["new"]) for row in cluster.items(*back, "--dry-run")]
    assert planned == [(0, 10, 5), (1, 10, 5)]
    assert "2026-09-21" in cluster.does(*back, "--dry-run", "--utc").out
    assert cluster.kctl(*back).code == Exit.REFUSED
    assert cluster.item("groups", "lag", group)["lag"] == 0, "nothing has happened yet"
    cluster.does(*back, "-y")
    assert cluster.item("groups", "lag", group)["lag"] == 10
    (undo,) = tmp_path.glob(f"{group}-*.csv")
    cluster.does("groups", "reset-offsets", group, "--from-file", undo, "-y", "--undo-dir", tmp_path)
    assert cluster.item("groups", "lag", group)["lag"] == 0
    cluster.does("groups", "delete", group, "-y", "--undo-dir", tmp_path)
    assert cluster.kctl("groups", "describe", group).code == Exit.NOT_FOUND


def test_the_cluster_and_its_brokers(cluster: Cluster) -> None:
    brokers = cluster.items("brokers", "list")
    assert [(broker["id"], broker["state"]) for broker in brokers] == [
        (each + 1, "ok") for each in range(cluster.brokers)
    ]
    assert sum(bool(broker["controller"]) for broker in brokers) == 1
    assert all(broker["free_bytes"] > 0 for broker in brokers)
    shown = cluster.item("cluster", "describe")
    assert len(shown["brokers"]) == cluster.brokers
    for words in (("brokers", "list"), ("cluster", "describe"), ("cluster", "controller"), ("brokers", "log-dirs")):
        cluster.does(*words)
    cluster.does("doctor", "--only", "controller,brokers-down,versions")
    assert len(json.loads(cluster.does("raw", "Metadata", '{"topics": []}').out)["brokers"]) == cluster.brokers


def test_partitions_and_a_plan(cluster: Cluster, topic: NewTopic, tmp_path: Path) -> None:
    name = topic("accept-plan", 3)
    rows = cluster.items("partitions", "list", name)
    assert [(row["partition"], len(row["replicas"])) for row in rows] == [(each, cluster.brokers) for each in range(3)]
    cluster.does("partitions", "list", name)
    plan = tmp_path / "plan.json"
    every = ",".join(str(each + 1) for each in range(cluster.brokers))
    cluster.does("partitions", "plan", "--topics", name, "--to", every, "-f", plan)
    assert not plan.exists(), "all is where it should be"
    ran = cluster.kctl("partitions", "drain", 1, "--topics", name, "-f", plan, "-o", "json")
    impossible = [row["partition"] for row in json.loads(ran.out)["items"]]
    assert (ran.code, impossible) == (Exit.FINDINGS, [0, 1, 2]), "nobody is there to take a replica over"


def test_what_not_every_cluster_has(cluster: Cluster) -> None:
    no_authorizer = "SECURITY_DISABLED" if cluster.kind in ("broker", "kraft") else ""
    assert cluster.kctl("txns", "list").code == Exit.DONE
    for words, code in ((("acls", "list"), no_authorizer), (("quotas", "list"), "")):
        ran = cluster.kctl(*words)
        assert (ran.code, code in ran.err) == (Exit.FAILED if code else Exit.DONE, True), (words, ran)
        assert len(ran.err.splitlines()) <= 2
