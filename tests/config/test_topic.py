"""The settings that a topic's logs obey, and the overrides that a topic may have."""

import re

import pytest

from kafkad.config import LONG_MAX, LogConfig, load, validate_topic_configs
from kafkad.config.setting import TIERED
from kafkad.errors import ErrorCode, KafkaError


def resolve(*broker: str, **topic: str) -> LogConfig:
    return LogConfig.resolve({name.replace("_", "."): text for name, text in topic.items()}, load(None, broker, {}))


def test_defaults_are_those_of_kafka() -> None:
    assert resolve() == LogConfig()


def test_a_topic_wins_over_its_broker() -> None:
    config = resolve("log.segment.bytes=1000", "log.cleanup.policy=compact", segment_bytes="2000", retention_ms="-1")
    assert config.segment_bytes == 2000
    assert config.retention_ms == -1
    assert config.cleanup_policy == frozenset({"compact"})
    assert config.compacted


def test_finer_time_units_win() -> None:
    assert resolve("log.retention.hours=1").retention_ms == 3_600_000
    assert resolve("log.retention.hours=1", "log.retention.minutes=1").retention_ms == 60_000
    assert resolve("log.retention.hours=1", "log.retention.minutes=1", "log.retention.ms=5").retention_ms == 5
    assert resolve("log.retention.hours=-1").retention_ms == -1
    assert resolve("log.roll.hours=2").segment_ms == 7_200_000
    assert resolve("log.roll.hours=2", "log.roll.ms=9").segment_ms == 9
    assert resolve("log.roll.jitter.hours=1").segment_jitter_ms == 3_600_000
    assert resolve("log.flush.scheduler.interval.ms=7").flush_ms == 7
    assert resolve("log.flush.scheduler.interval.ms=7", "log.flush.interval.ms=8").flush_ms == 8


def test_the_deprecated_timestamp_limit_stands_for_both_sides() -> None:
    config = resolve(message_timestamp_difference_max_ms="5", message_timestamp_after_max_ms="9")
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == (5, 9)


@pytest.mark.parametrize(
    ("broker", "topic", "limits"),
    [
        ("difference.max.ms=36", {"difference.max.ms": "3"}, (36, 36)),
        ("difference.max.ms=36", {"difference.max.ms": "360"}, (36, 36)),
        ("difference.max.ms=36", {"difference.max.ms": "5", "before.max.ms": str(LONG_MAX)}, (5, 36)),
        ("before.max.ms=7", {"difference.max.ms": "5"}, (7, 5)),
        ("after.max.ms=7", {}, (LONG_MAX, 7)),
    ],
)
def test_a_topic_inherits_what_becomes_of_its_brokers_limits(
    broker: str, topic: dict[str, str], limits: tuple[int, int]
) -> None:
    overrides = {f"message.timestamp.{name}": text for name, text in topic.items()}
    config = LogConfig.resolve(overrides, load(None, [f"log.message.timestamp.{broker}"], {}))
    assert (config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == limits


def test_every_field_follows_its_settings() -> None:
    assert resolve("kafkad.acks.fsync=true").acks_fsync
    assert resolve(kafkad_acks_fsync="true").acks_fsync
    assert resolve(unclean_leader_election_enable="true").unclean_leader_election
    assert resolve("message.max.bytes=5", min_insync_replicas="2").min_insync_replicas == 2
    assert resolve("log.segment.delete.delay.ms=3").file_delete_delay_ms == 3
    assert resolve(flush_messages="1").flush_ms == LONG_MAX


def test_an_override_that_cannot_be_read_counts_as_not_set() -> None:
    assert resolve(segment_bytes="many", no_such="1") == LogConfig()


FOR_TOPIC = "Invalid config value for resource ConfigResource(type=TOPIC, name='t'): "


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment.msx", "1", "Unknown topic config name: segment.msx"),
        (
            "segment.ms",
            "x",
            f"{FOR_TOPIC}Invalid value x for configuration segment.ms: Not a number of type LONG",
        ),
        (
            "max.compaction.lag.ms",
            "5",
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (5)",
        ),
        (
            "remote.storage.enable",
            "true",
            f"{FOR_TOPIC}remote.storage.enable cannot be set: {TIERED}",
        ),
        (
            "local.retention.ms",
            "9999",
            f"{FOR_TOPIC}local.retention.ms cannot be set: {TIERED}",
        ),
    ],
)
def test_what_a_topic_may_not_have(name: str, value: str, message: str) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_topic_configs({"min.compaction.lag.ms": "9", name: value}, load(None, [], {}), topic="t")
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert caught.value.message == message


def test_what_a_topic_may_have() -> None:
    validate_topic_configs(
        {
            "cleanup.policy": "",
            "retention.bytes": "-7",
            "segment.jitter.ms": "99999999999",
            "remote.storage.enable": "false",
            "kafkad.acks.fsync": "true",
        },
        load(None, [], {}),
    )


@pytest.mark.parametrize(
    ("broker", "topic"),
    [
        ("log.cleaner.min.compaction.lag.ms=10", {"max.compaction.lag.ms": "5"}),
        ("log.cleaner.max.compaction.lag.ms=5", {"min.compaction.lag.ms": "10"}),
    ],
)
def test_a_lag_of_a_topic_has_to_fit_the_other_of_its_broker(broker: str, topic: dict[str, str]) -> None:
    sentence = re.escape("min.compaction.lag.ms (10) > max.compaction.lag.ms (5)")
    with pytest.raises(KafkaError, match=sentence):
        validate_topic_configs(topic, load(None, [broker], {}))
    both = {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"}
    validate_topic_configs(both, load(None, [broker], {}))
