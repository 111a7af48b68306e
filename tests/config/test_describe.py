"""DescribeConfigs against what a real Kafka 3.9.2 answered after the same changes (a golden file)."""

import csv
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafkad.config import LONG_MAX, Config, Source, load
from kafkad.config.describe import ConfigRow, describe_broker, describe_cluster_default, describe_topic
from kafkad.config.setting import INT_MAX, READ_ONLY
from kafkad.config.tables import BROKER_SETTINGS, TOPIC_SETTINGS

GOLDEN = Path(__file__).parents[1] / "golden" / "describe-configs-3.9.tsv"
FIXED_HERE = {"listeners", "advertised.listeners", "listener.security.protocol.map"}
"""Read-only in kafkad, and the first has a default of its own."""
OWN = FIXED_HERE | {"log.dir", "socket.receive.buffer.bytes", "socket.send.buffer.bytes"}
"""These have kafkad's own default or treatment."""
NOT_KAFKAS = OWN | {"log.cleaner.io.max.bytes.per.second", "log.retention.hours"}
"""Kafka shows a synonym as it was typed, 12345678.9, and the value as 1.23456789E7; kafkad shows both alike. Kafka says
168 for log.retention.hours=100 while log.retention.ms is set dynamically."""

PER_BROKER = {
    "log.retention.ms": "7200000",
    "log.segment.bytes": "50000000",
    "log.cleaner.threads": "2",
    "listener.name.plaintext.max.connections": "100",
    "leader.replication.throttled.rate": "100",
    "log.cleaner.min.compaction.lag.ms": "10",
    "log.cleaner.max.compaction.lag.ms": "5",
    "listeners": "PLAINTEXT://127.0.0.1:1234",
}
CLUSTER_WIDE = {
    "log.segment.bytes": "60000000",
    "message.max.bytes": "3000000",
    "log.flush.interval.ms": "1000",
    "log.cleaner.io.max.bytes.per.second": "12345678.9",
    "listener.name.plaintext.max.connections": "100",
}
TOPIC = {
    "segment.ms": "1234567",
    "max.message.bytes": "2000000",
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.75",
}


def golden(resource: str) -> dict[str, dict[str, str]]:
    with GOLDEN.open() as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["name"]: row for row in rows if row["resource"] == resource}


@pytest.fixture
def config() -> Config:
    """The file that Kafka was started with, read off the rows that have a static source, and the same changes."""
    static = [
        synonym.removesuffix("@STATIC_BROKER_CONFIG")
        for row in golden("BROKER/id").values()
        for synonym in row["synonyms"].split(" ; ")
        if synonym.endswith("@STATIC_BROKER_CONFIG")
    ]
    return load(None, static, {}).with_overrides(cluster_wide=CLUSTER_WIDE, per_broker=PER_BROKER)


def as_golden(row: ConfigRow) -> dict[str, str]:
    return {
        "name": row.name,
        "value": "<null>" if row.value is None else row.value,
        "source": row.source.name,
        "type": row.type.name,
        "read_only": "read-only" if row.read_only else "",
        "sensitive": "sensitive" if row.sensitive else "",
        "synonyms": " ; ".join(f"{name}={value}@{source.name}" for name, value, source in row.synonyms),
    }


def compare(rows: Iterable[ConfigRow], resource: str) -> None:
    ours = {row.name: as_golden(row) for row in rows if not row.name.startswith(("kafkad.", "http."))}
    kafkas = {name: {key: row[key] for key in row if key != "resource"} for name, row in golden(resource).items()}
    assert ours.keys() == kafkas.keys()
    differing = {name for name in kafkas if ours[name] != kafkas[name]}
    assert {name: (ours[name], kafkas[name]) for name in differing - NOT_KAFKAS} == {}


def test_a_broker(config: Config) -> None:
    compare(describe_broker(config), "BROKER/id")


def test_what_is_set_for_all_brokers(config: Config) -> None:
    compare(describe_cluster_default(config), "BROKER/default")


def test_a_topic_with_overrides(config: Config) -> None:
    compare(describe_topic(config, TOPIC), "TOPIC/t")


def test_a_topic_without(config: Config) -> None:
    compare(describe_topic(config, {}), "TOPIC/plain")


def test_every_row_explains_itself(config: Config) -> None:
    assert all(row.doc for row in [*describe_broker(config), *describe_topic(config, {})])


def test_what_is_stored_and_cannot_be_used_is_named_beside_the_value_that_counts(config: Config) -> None:
    rows = {row.name: row for row in describe_topic(config, {"flush.ms": "often", "no.such": "1"})}
    often = rows["flush.ms"]
    assert (often.value, often.source) == ("1000", Source.DYNAMIC_TOPIC_CONFIG), "which is to be taken back there"
    assert [synonym.value for synonym in often.synonyms] == ["often", "1000", str(LONG_MAX)]
    assert "does not count, for kafkad cannot use it" in often.doc
    assert as_golden(rows["no.such"]) == {
        "name": "no.such",
        "value": "<null>",
        "source": "DYNAMIC_TOPIC_CONFIG",
        "type": "UNKNOWN",
        "read_only": "",
        "sensitive": "sensitive",
        "synonyms": "no.such=None@DYNAMIC_TOPIC_CONFIG",
    }


def test_dynamic_settings_that_cannot_be_used_are_shown() -> None:
    stored = {"my.url": "x", "log.cleaner.min.cleanable.ratio": "NaN", "num.io.threads": "9"}
    own = {"my.url": "y", "advertised.listeners": "PLAINTEXT://x:1"}
    config = load(None, [], {}).with_overrides(cluster_wide=stored, per_broker=own)
    rows = {row.name: as_golden(row) for row in describe_broker(config)}
    assert rows["my.url"]["synonyms"] == "my.url=None@DYNAMIC_BROKER_CONFIG ; my.url=None@DYNAMIC_DEFAULT_BROKER_CONFIG"
    assert (rows["my.url"]["value"], rows["my.url"]["type"]) == ("<null>", "UNKNOWN")
    ratio = rows["log.cleaner.min.cleanable.ratio"]
    assert (ratio["value"], ratio["source"]) == ("0.5", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    assert ratio["synonyms"].startswith("log.cleaner.min.cleanable.ratio=NaN@DYNAMIC_DEFAULT_BROKER_CONFIG")
    assert rows["advertised.listeners"]["value"] != "PLAINTEXT://x:1"
    assert "PLAINTEXT://x:1@DYNAMIC_BROKER_CONFIG" in rows["advertised.listeners"]["synonyms"]
    (default,) = (row for row in describe_topic(config, {}) if row.name == "min.cleanable.dirty.ratio")
    assert (default.value, default.source) == ("0.5", Source.DEFAULT_CONFIG)
    shared = {row.name: row for row in describe_cluster_default(config)}
    assert shared.keys() == stored.keys()
    assert shared["my.url"].value is None
    ratio_of_all = shared["log.cleaner.min.cleanable.ratio"]
    assert (ratio_of_all.value, [each.value for each in ratio_of_all.synonyms]) == ("0.5", ["NaN"])
    assert "does not count" in ratio_of_all.doc
    assert "does not count" not in shared["num.io.threads"].doc


@pytest.mark.parametrize("name", sorted(name for name, each in BROKER_SETTINGS.items() if each.dynamic != READ_ONLY))
@pytest.mark.parametrize("prefix", ["", "listener.name.x.", "listener.name.x.scram-sha-256."])
def test_whatever_is_stored_is_described(name: str, prefix: str) -> None:
    for text in ("", "abc", "-7"):
        stored = {prefix + name: text}
        for levels in ((stored, {}), ({}, stored)):
            config = load(None, [], {}).with_overrides(cluster_wide=levels[0], per_broker=levels[1])
            assert prefix + name in {row.name for row in describe_broker(config)}
            assert {row.name for row in describe_cluster_default(config)} <= stored.keys()


def test_the_value_is_that_of_the_first_synonym() -> None:
    name = "listener.name.PLAINTEXT.max.connection.creation.rate"
    config = load(None, [], {}).with_overrides(cluster_wide={}, per_broker={name: "5000"})
    (row,) = (row for row in describe_broker(config) if row.name == name)
    assert (row.value, row.source) == ("5000", Source.DYNAMIC_BROKER_CONFIG)
    assert [synonym.value for synonym in row.synonyms] == ["5000", str(INT_MAX)]


def test_what_is_hidden_until_it_is_set_has_its_default_among_the_synonyms() -> None:
    for name, default in (
        ("producer.id.expiration.check.interval.ms", "600000"),
        ("group.consumer.migration.policy", "disabled"),
    ):
        config = load(None, [f"{name}={default}"], {})
        (row,) = (row for row in describe_broker(config) if row.name == name)
        assert [synonym.value for synonym in row.synonyms] == [default, default]
    config = load(None, ["super.users=User:a", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"], {})
    (row,) = (row for row in describe_broker(config) if row.name == "super.users")
    assert len(row.synonyms) == 1


@pytest.mark.parametrize("value", ["true", "FALSE"])
def test_whether_everybody_may_do_what_no_acl_is_about_is_told(value: str) -> None:
    authorizer = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
    config = load(None, [f"allow.everyone.if.no.acl.found={value}", authorizer], {})
    (row,) = (row for row in describe_broker(config) if row.name == "allow.everyone.if.no.acl.found")
    assert (row.value, row.sensitive, row.read_only) == (value, False, True)


def test_a_topic_shows_what_it_has_of_its_broker() -> None:
    limit = "log.message.timestamp.difference.max.ms=3600000"
    rows = {row.name: row for row in describe_topic(load(None, [limit, "log.retention.ms=-7"], {}), {})}
    before = rows["message.timestamp.before.max.ms"]
    assert (before.value, before.source) == ("3600000", Source.DEFAULT_CONFIG)
    assert [synonym.value for synonym in before.synonyms] == [str(LONG_MAX)]
    assert rows["message.timestamp.after.max.ms"].value == "3600000"
    assert (rows["retention.ms"].value, rows["retention.ms"].source) == ("-1", Source.STATIC_BROKER_CONFIG)


def test_kafkads_own_settings_are_described_like_the_others() -> None:
    rows = {row.name: row for row in describe_broker(load(None, ["kafkad.log.level=debug"], {}))}
    assert rows["kafkad.log.level"].source is Source.STATIC_BROKER_CONFIG
    assert not rows["kafkad.log.level"].read_only
    assert rows["http.listener"].is_default


def test_what_cannot_be_set_says_so_and_what_to_do_instead() -> None:
    rows = {row.name: row for row in describe_broker(load(None, [], {}))}
    for name, remedy in (
        ("ssl.provider", "leave it out."),
        ("client.quota.callback.class", "leave it out."),
    ):
        assert "Only the default is possible: " in rows[name].doc
        assert rows[name].doc.endswith(remedy)
    assert " It has no effect: kafkad has one event loop" in rows["num.io.threads"].doc
    refused = [setting.refused for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()) if setting.refused]
    assert all(any(word in why for word in ("leave it out", "instead", "; limit", "; let")) for why in refused)
