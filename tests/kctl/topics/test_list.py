"""`kctl topics list`, on kafkad and on three real brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kctl.errors import Exit
from kctl.topics.list import _row, _summary
from tests.kctl.conftest import Kctl, Three, until


def create(kctl: Kctl, name: str, partitions: int = 3, replication: int = 1) -> None:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": replication}
    assert kctl("-y", "raw", "CreateTopics", json.dumps({"topics": [topic]})).code == Exit.DONE


def test_lists_health_and_size(on_broker: Kctl, approved: Callable[[str, str], None]) -> None:
    create(on_broker, "pictured-one")
    create(on_broker, "pictured-two", partitions=1)
    ran = on_broker("topics", "list", "--match", "pictured-*")
    assert (ran.code, ran.err) == (Exit.DONE, "")
    approved("topics-list", ran.out)


def test_json_names_the_cluster_and_keeps_raw_numbers(on_broker: Kctl) -> None:
    create(on_broker, "list-json", partitions=2)
    whole = json.loads(on_broker("topics", "list", "list-json", "-o", "json").out)
    assert whole["command"] == "topics list"
    assert len(whole["cluster_id"]) == 22
    (item,) = whole["items"]
    assert (item["partitions"], item["size_bytes"], item["health"]) == (2, 0, "single-replica")
    assert whole["errors"] == []


def test_unknown_topics_are_said_and_the_others_listed(on_broker: Kctl) -> None:
    create(on_broker, "list-known")
    ran = on_broker("topics", "list", "list-known", "list-knwn", "-o", "name")
    assert (ran.code, ran.out) == (Exit.NOT_FOUND, "list-known\n")
    assert 'topic "list-knwn" does not exist (UNKNOWN_TOPIC_OR_PARTITION)' in ran.err
    assert 'did you mean "list-known"' in ran.err


def test_a_name_is_no_pattern(on_broker: Kctl) -> None:
    create(on_broker, "list-a.b")
    create(on_broker, "list-a-b")
    assert on_broker("topics", "list", "list-a.b", "-o", "name").out == "list-a.b\n"
    assert on_broker("topics", "list", "--regex", "list-a.b", "-o", "name").out == "list-a-b\nlist-a.b\n"


def test_a_pattern_that_matches_nothing(on_broker: Kctl) -> None:
    ran = on_broker("topics", "list", "--match", "no-such-*")
    assert ran.code == Exit.NOT_FOUND
    assert "no topic matches no-such-*" in ran.err


@pytest.mark.slow
@pytest.mark.java
def test_sizes_and_replicas_of_three_brokers(on_three: Kctl, three: Three) -> None:
    create(on_three, "list-three", partitions=6, replication=3)

    def listed() -> dict[str, Any]:
        items = json.loads(on_three("topics", "list", "list-three", "-o", "json").out)["items"]
        return items[0] if items else {}

    until(lambda: listed().get("replicated_bytes") is not None, "all brokers have made their replicas")
    item = listed()
    assert (item["partitions"], item["replication"], item["health"]) == (6, 3, "ok")
    assert item["leaders"] == ["1:2", "2:2", "3:2"]
    assert item["replicated_bytes"] == 0


def test_settings_as_columns(on_broker: Kctl) -> None:
    config = "min.insync.replicas=2"
    on_broker("topics", "create", "list-settings", "-p", 2, "-r", 1, "--config", config, "-y")
    wide = on_broker("topics", "list", "list-settings", "-o", "wide", "--with-config", "segment.bytes").out.splitlines()
    assert wide[0].split()[6:10] == ["CLEANUP", "RETENTION", "MIN-ISR", "TOPIC-ID"]
    assert (wide[0].split()[-1], wide[1].split()[-1]) == ("segment.bytes", "1073741824")
    (row,) = json.loads(on_broker("topics", "list", "list-settings", "-o", "json").out)["items"]
    assert (row["retention_ms"], row["cleanup_policy"], row["min_isr"], row["under_min_isr"]) == (
        604800000,
        "delete",
        2,
        0,
    )
    assert on_broker("topics", "list", "--unhealthy", "--match", "list-sett*", "-o", "name").out == ""
    assert on_broker("topics", "list", "--unhealthy", "--match", "list-sett*").out == "1 topic, none unhealthy\n"


def test_settings_that_no_topic_has_are_no_columns(on_broker: Kctl) -> None:
    on_broker("topics", "create", "list-columns", "-y")
    ran = on_broker("topics", "list", "list-columns", "--with-config", "segment.bytes, retention.ms,")
    assert ran.out.splitlines()[0].split()[-2:] == ["segment.bytes", "retention.ms"]
    ran = on_broker("topics", "list", "--with-config", "retenton.ms")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert 'topics have no setting "retenton.ms"' in ran.err and 'did you mean "retention.ms"' in ran.err


class Silent:
    """A partition that broker 2 leads, which does not answer."""

    partition_index, leader_id, replica_nodes, isr_nodes = 0, 2, (2, 1), (2, 1)


class Led:
    name = "led"
    partitions = (Silent,)


def test_nothing_is_claimed_of_what_cannot_be_reached() -> None:
    row = _row(Led, {"led": {0: {1: 500}}}, {"min.insync.replicas": "1"}, (), {2}, capped=True)
    assert (row["health"], row["size_bytes"], row["replicated_bytes"]) == ("1 unreachable", None, None)
    assert _summary([row]) == "1 topic, 1 partition, size not known; 1 unhealthy"
    seen = _row(Led, {"led": {0: {1: 500, 2: 600}}}, {"min.insync.replicas": "1"}, (), (), capped=True)
    assert (seen["health"], seen["size_bytes"], seen["replicated_bytes"]) == ("ok", 600, 1100)
    assert (
        _summary([row, seen]) == "2 topics, 2 partitions, at least 600 B (at least 1.1 KB with replicas); 1 unhealthy"
    )
