"""Topics, settings and brokers of three real brokers, compared with what Kafka's own tools say."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, Ran, Three, until
from tests.oracle.kafka import tool

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture
def kctl(kctl: Kctl) -> Kctl:
    """Three brokers and Java on two cores take their time."""
    return lambda *arguments: kctl("--timeout", "60s", *arguments)


def kafka(three: Three, name: str, *words: str) -> str:
    command = tool("3.9", name, *words, "--bootstrap-server", three.bootstrap)
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def items(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == Exit.DONE, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)["items"]
    return found


def create(kctl: Kctl, *words: object) -> None:
    ran = kctl("topics", "create", *words, "-y")
    assert ran.code == Exit.DONE, ran.err


def test_describe_says_what_kafka_topics_says(on_three: Kctl, three: Three) -> None:
    create(on_three, "real-describe", "-p", 6, "-r", 3, "--config", "retention.ms=7d", "--config", "segment.bytes=1MiB")
    (item,) = items(on_three("topics", "describe", "real-describe", "-o", "json"))
    lines = kafka(three, "topics", "--describe", "--topic", "real-describe").splitlines()
    assert f"TopicId: {item['topic_id']}" in lines[0]
    told = dict(pair.split("=") for pair in lines[0].partition("Configs: ")[2].strip().split(","))
    assert told == {config["name"]: config["value"] for config in item["configs"]}
    ours = [(p["partition"], p["leader"], p["replicas"], sorted(p["isr"])) for p in item["partitions"]]
    assert ours == [_partition(line) for line in lines[1:]]
    assert all(p["health"] == ["ok"] and p["preferred_leader"] == p["replicas"][0] for p in item["partitions"])


def _partition(line: str) -> tuple[int, int, list[int], list[int]]:
    def number(field: str) -> int:
        return int(re.findall(rf"{field}: (\d+)", line)[0])

    def numbers(field: str) -> list[int]:
        return [int(broker) for broker in re.findall(rf"{field}: ([\d,]+)", line)[0].split(",")]

    return number("Partition"), number("Leader"), numbers("Replicas"), sorted(numbers("Isr"))


def test_placement_by_hand_and_by_formula(on_three: Kctl, three: Three) -> None:
    create(on_three, "real-placed", "--replicas", "0=3,1;1=2,3")
    create(on_three, "real-fixed", "-p", 4, "-r", 2, "--fixed-start")
    told = kafka(three, "topics", "--describe", "--topic", "real-(placed|fixed)")
    found: dict[str, list[list[int]]] = {}
    for line in told.splitlines():
        if name := re.search(r"Topic: (\S+)\tPartition", line):
            found.setdefault(name[1], []).append(_partition(line)[2])
    assert found == {"real-placed": [[3, 1], [2, 3]], "real-fixed": [[1, 2], [2, 3], [3, 1], [1, 2]]}


def test_settings_are_those_of_kafka_configs(on_three: Kctl, three: Three) -> None:
    create(on_three, "real-configs", "-p", 1, "-r", 1, "--config", "segment.bytes=1MiB")
    changes = ("retention.ms=1d", "cleanup.policy+=compact")
    ran = on_three("configs", "set", "topic/real-configs", *changes, "-y")
    assert (ran.code, "verified" in ran.err) == (Exit.DONE, True), ran.err
    assert _dynamic(three, "topics", "real-configs") == {
        "segment.bytes": "1048576",
        "retention.ms": "86400000",
        "cleanup.policy": "delete,compact",
    }
    ran = on_three("configs", "unset", "topic/real-configs", "segment.bytes", "cleanup.policy", "-y")
    assert ran.code == Exit.DONE, ran.err
    assert _dynamic(three, "topics", "real-configs") == {"retention.ms": "86400000"}


def test_settings_of_one_broker_and_of_all(on_three: Kctl, three: Three) -> None:
    try:
        assert on_three("configs", "set", "broker/2", "log.cleaner.threads=2", "-y").code == Exit.DONE
        assert on_three("configs", "set", "brokers", "message.max.bytes=2MB", "-y").code == Exit.DONE
        assert _dynamic(three, "brokers", "2")["log.cleaner.threads"] == "2"

        def settings() -> dict[tuple[str, str], tuple[str, str]]:
            rows = items(on_three("configs", "describe", "broker/2", "broker/3", "brokers", "-o", "json"))
            return {(row["resource"], row["name"]): (row["value"], row["source"]) for row in rows}

        until(lambda: ("broker/3", "message.max.bytes") in settings(), "broker 3 has heard of the default")
        found = settings()
        assert found["broker/2", "log.cleaner.threads"] == ("2", "broker")
        assert ("broker/3", "log.cleaner.threads") not in found
        assert (
            found["broker/3", "message.max.bytes"]
            == found["brokers", "message.max.bytes"]
            == (
                "2000000",
                "all brokers",
            )
        )
        different = on_three("configs", "diff", "broker/2", "broker/3", "-o", "json")
        assert different.code == Exit.FINDINGS
        assert [row["name"] for row in json.loads(different.out)["items"]] == ["log.cleaner.threads"]
    finally:
        on_three("configs", "unset", "broker/2", "log.cleaner.threads", "-y")
        on_three("configs", "unset", "brokers", "message.max.bytes", "-y")
    assert "message.max.bytes" not in _dynamic(three, "brokers", "2")


def _dynamic(three: Three, kind: str, name: str) -> dict[str, str]:
    told = kafka(three, "configs", "--describe", "--entity-type", kind, "--entity-name", name)
    return dict(re.findall(r"^  (\S+?)=(\S*) sensitive=", told, re.MULTILINE))


@pytest.fixture
def filled(on_three: Kctl, three: Three, tmp_path: Path) -> str:
    """A topic with 10 records in each of 3 partitions."""
    name = f"real-{tmp_path.name.replace('_', '-')[:60]}"
    create(on_three, name, "-p", 3, "-r", 2)
    lines = tmp_path / "lines"
    lines.write_text("".join(f"record {number}\n" for number in range(10)))
    for partition in range(3):
        ran = on_three("produce", name, "--partition", partition, "--file", lines, "-q")
        assert ran.code == Exit.DONE, ran.err
    return name


def ours(kctl: Kctl, topic: str, at: str) -> dict[int, int]:
    rows = items(kctl("topics", "offsets", topic, "--at", at, "-o", "json"))
    return {row["partition"]: row["offset"] for row in rows}


def theirs(three: Three, topic: str, at: str) -> dict[int, int]:
    told = kafka(three, "get-offsets", "--topic", topic, "--time", at)
    return {int(p): int(offset) for p, offset in re.findall(rf"^{re.escape(topic)}:(\d+):(\d+)$", told, re.MULTILINE)}


def test_truncation_and_offsets_are_kafkas(on_three: Kctl, three: Three, filled: str, tmp_path: Path) -> None:
    ran = on_three("topics", "truncate", filled, "--before", 4, "--partitions", "0-1", "-y", "-o", "json")
    assert [row["low_watermark"] for row in items(ran)] == [4, 4]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": [{"topic": filled, "partition": 1, "offset": 7}], "version": 1}))
    assert f"{filled}-1\tlow_watermark: 7" in kafka(three, "delete-records", "--offset-json-file", str(file))
    assert ours(on_three, filled, "earliest") == theirs(three, filled, "earliest") == {0: 4, 1: 7, 2: 0}
    assert ours(on_three, filled, "latest") == theirs(three, filled, "latest") == {0: 10, 1: 10, 2: 10}
    assert ours(on_three, filled, "max-timestamp") == theirs(three, filled, "max-timestamp")
    again = on_three("topics", "truncate", "--offset-json-file", file, "-y")
    assert "nothing to do" in again.err


def test_sizes_are_those_of_kafka_log_dirs(on_three: Kctl, three: Three, filled: str) -> None:
    told = kafka(three, "log-dirs", "--describe", "--topic-list", filled)
    report = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
    sizes = [p["size"] for b in report["brokers"] for d in b["logDirs"] for p in d["partitions"]]
    (listed,) = items(on_three("topics", "list", filled, "-o", "json"))
    assert listed["replicated_bytes"] == sum(sizes) > 0
    assert listed["size_bytes"] * 2 == listed["replicated_bytes"]


def test_growth_clone_and_deletion(on_three: Kctl, three: Three, tmp_path: Path) -> None:
    create(on_three, "real-grown", "-p", 2, "-r", 3)
    assert on_three("topics", "alter", "real-grown", "-p", 5, "--config", "retention.ms=1d", "-y").code == Exit.DONE
    assert on_three("topics", "clone", "real-grown", "real-cloned", "-y").code == Exit.DONE
    told = kafka(three, "topics", "--describe", "--topic", "real-cloned").splitlines()
    assert re.search(r"PartitionCount: 5\s+ReplicationFactor: 3\s+Configs: retention.ms=86400000", told[0])
    ran = on_three("topics", "delete", "real-grown", "real-cloned", "-y", "--undo-dir", tmp_path)
    assert (ran.code, "verified: no broker knows them any more" in ran.err) == (Exit.DONE, True), ran.err
    assert not {"real-grown", "real-cloned"} & set(kafka(three, "topics", "--list").split())


def test_apis_of_brokers(on_three: Kctl, three: Three) -> None:
    told = kafka(three, "broker-api-versions")
    first = told.partition(")\n127.0.0.1")[0]
    theirs = {name: (int(a), int(b or a)) for name, a, b in re.findall(r"(\w+)\(\d+\): (\d+)(?: to (\d+))?", first)}
    rows = items(on_three("brokers", "api-versions", "-o", "json"))
    assert {row["api"]: (row["first"], row["last"]) for row in rows} == theirs
    assert all(row["brokers"] == [1, 2, 3] for row in rows)


def test_cluster_and_zookeeper(on_three: Kctl, three: Three) -> None:
    (found,) = items(on_three("cluster", "describe", "-o", "json"))
    assert (found["mode"], found["brokers"], found["racks"]) == ("zookeeper", [1, 2, 3], ["a", "b", "c"])
    assert found["cluster_id"] in kafka(three, "cluster", "cluster-id")
    ids = items(on_three("cluster", "zk", "ls", "/brokers/ids", "-o", "json"))
    assert [row["path"] for row in ids] == ["/brokers/ids/1", "/brokers/ids/2", "/brokers/ids/3"]
    assert json.loads(on_three("cluster", "zk", "get", "/controller").out)["brokerid"] == found["controller"]
    assert on_three("cluster", "zk", "get", "/nowhere").code == Exit.NOT_FOUND


@pytest.fixture
def without_broker_3(on_three: Kctl, three: Three) -> Iterator[None]:
    """Down inside, back and in sync outside."""
    three.brokers[2].kill()
    try:
        yield
    finally:
        three.restart(2, kill=True)
        until(lambda: "under-replicated" not in on_three("topics", "list", "--internal").out, "all in sync", 120)


def test_one_broker_down(on_three: Kctl, three: Three, filled: str, request: pytest.FixtureRequest) -> None:
    create(on_three, "real-strict", "--replicas", "0=1,2,3;1=1,3,2", "--config", "min.insync.replicas=2")
    create(on_three, "real-stricter", "--replicas", "0=1,2,3", "--config", "min.insync.replicas=3")
    request.getfixturevalue("without_broker_3")
    until(lambda: "broker 3 is down" in on_three("topics", "describe", "real-strict").out, "broker 3 is gone", 60)
    stricter = ("topics", "describe", "real-stricter")
    until(lambda: "2 in sync" in on_three(*stricter).out, "it has left the last partition's ISR", 60)
    strict = on_three("topics", "describe", "real-strict")
    assert strict.code == Exit.DONE
    assert "writes continue (2 in sync, 2 needed)" in strict.out
    below = on_three("topics", "list", "--match", "real-strict*", "-o", "json")
    assert {row["topic"]: row["under_min_isr"] for row in items(below)} == {"real-strict": 0, "real-stricter": 1}
    told = kafka(three, "topics", "--describe", "--under-min-isr-partitions")
    assert "real-stricter" in told and "real-strict\t" not in told
    assert "writes with acks=all fail (2 in sync, 3 needed)" in on_three(*stricter).out
    brokers = items(on_three("brokers", "list", "-o", "json"))
    assert [(row["id"], row["state"]) for row in brokers] == [(1, "ok"), (2, "ok"), (3, "down")]
    refused = on_three("topics", "create", "real-no", "-p", 1, "-r", 3, "-y")
    assert (refused.code, "replication 3 needs 3 brokers, 2 are alive" in refused.err) == (Exit.FAILED, True)
