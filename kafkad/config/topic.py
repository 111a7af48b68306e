"""The settings of one topic's logs: its own overrides over the broker's settings over the defaults."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

from kafkad.config.config import Config
from kafkad.config.setting import LONG_MAX, Value
from kafkad.config.tables import TOPIC_SETTINGS
from kafkad.config.values import parse
from kafkad.errors import ErrorCode, KafkaError

BROKER_NAMES: dict[str, tuple[str, ...]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.type": ("compression.type",),
    "compression.zstd.level": ("compression.zstd.level",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "kafkad.acks.fsync": ("kafkad.acks.fsync",),
    "kafkad.flush.bytes": ("kafkad.flush.bytes",),
    "kafkad.read.flushed.only": ("kafkad.read.flushed.only",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "max.message.bytes": ("message.max.bytes",),
    "message.downconversion.enable": ("log.message.downconversion.enable",),
    "message.format.version": ("log.message.format.version",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "preallocate": ("log.preallocate",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.bytes": ("log.segment.bytes",),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
}
"""The broker settings that stand in for a topic setting; the first that has a value counts."""

_LARGEST_INDEX_INTERVAL = 128 * 1024
"""Bytes in which a few thousand batches may stand, whose headers take some milliseconds to read."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_ONE_SIDE = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
"""For which a broker's deprecated limit of both sides stands where it has none of that side."""
_FOR_EVER = -1
_MS_PER_UNIT = {"minutes": 60_000, "hours": 3_600_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one topic, resolved. Field names are Kafka's topic setting names with underscores."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = LONG_MAX
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    preallocate: bool = False
    acks_fsync: bool = False
    flush_bytes: int = LONG_MAX
    read_flushed_only: bool = False
    leader_replication_throttled_replicas: frozenset[str] = frozenset()
    follower_replication_throttled_replicas: frozenset[str] = frozenset()

    @property
    def flushes_within_appends(self) -> bool:
        """True if an append may have to wait for the disk, by the number of records or of bytes."""
        return self.flush_messages < LONG_MAX or self.flush_bytes < LONG_MAX

    @property
    def takes_batches_as_they_came(self) -> bool:
        """True if a sound batch is written with the bytes that its producer sent, and its append waits for nothing."""
        return not (
            self.compacted
            or self.compression_type != "producer"
            or self.stamps_append_time
            or self.limits_timestamps
            or self.flushes_within_appends
        )

    @property
    def stamps_append_time(self) -> bool:
        """True if records get the broker's time, not their producer's."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def limits_timestamps(self) -> bool:
        """True if a record may be refused for its CreateTime."""
        limit = min(self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms)
        return not self.stamps_append_time and limit < LONG_MAX

    @property
    def roll_ms(self) -> int:
        """For how long a segment takes records: the active one is never compacted, so it must end in time."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacted else self.segment_ms

    @property
    def index_interval(self) -> int:
        """The bytes between two entries of an index: a search for an offset may have to look at all batches in them."""
        return min(self.index_interval_bytes, _LARGEST_INDEX_INTERVAL)

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], config: Config) -> LogConfig:
        """`overrides` as the metadata store keeps them; one that cannot be used (any more) counts as not set."""
        values = {name: broker_value(name, config) for name in BROKER_NAMES} | _usable(overrides)
        return cls(**_as_fields(values))


def _usable(overrides: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in overrides.items():
        if name in TOPIC_SETTINGS:
            with suppress(ValueError):
                values[name] = parse(TOPIC_SETTINGS[name], text)
    return values


_FIELDS = {
    "unclean.leader.election.enable": "unclean_leader_election",
    "kafkad.acks.fsync": "acks_fsync",
    "kafkad.flush.bytes": "flush_bytes",
    "kafkad.read.flushed.only": "read_flushed_only",
}


def _as_fields(values: dict[str, Any]) -> dict[str, Any]:
    known = {field.name for field in fields(LogConfig)}
    named = {_FIELDS.get(name, name.replace(".", "_")): value for name, value in values.items()}
    named |= {name: frozenset(value) for name, value in named.items() if isinstance(value, tuple)}
    # A topic's deprecated single limit counts where neither it nor its broker limits that side (KIP-937).
    single = named["message_timestamp_difference_max_ms"]
    for side in ("before", "after"):
        if named[f"message_timestamp_{side}_max_ms"] == LONG_MAX:
            named[f"message_timestamp_{side}_max_ms"] = single
    return {name: value for name, value in named.items() if name in known}


def broker_value(name: str, config: Config) -> Value:
    """The broker's value of `name`, for topics that do not set it."""
    value = _first_set(name, config)
    if name in _ONE_SIDE and value == LONG_MAX:
        return config.long("log.message.timestamp.difference.max.ms")
    if name == "retention.ms" and isinstance(value, int):
        return max(value, _FOR_EVER)
    return value


def _first_set(name: str, config: Config) -> Value:
    for broker_name in BROKER_NAMES.get(name, ()):
        value = config.value(broker_name)
        if value is not None:
            factor = _MS_PER_UNIT.get(broker_name.rpartition(".")[2])
            return value * factor if factor and isinstance(value, int) else value
    return TOPIC_SETTINGS[name].default


def validate_topic_configs(
    configs: Mapping[str, str], config: Config, *, topic: str | None = None, kept: Mapping[str, str] = _NOTHING
) -> None:
    """Check what a topic sets; `config` has what it leaves to its broker. `kept` are settings of it in the store that
    stay as they are: those that cannot be used are ignored, for they must not keep other changes back.

    Raises KafkaError(INVALID_CONFIG) with Kafka's sentence; `topic` is named in it where AlterConfigs names it."""
    unknown = [name for name in configs if name not in TOPIC_SETTINGS]
    if unknown:
        raise _invalid(f"Unknown topic config name: {unknown[0]}")
    prefix = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{topic}'): " if topic else ""
    values = _usable(kept)
    for name, text in configs.items():
        setting = TOPIC_SETTINGS[name]
        try:
            values[name] = parse(setting, text)
        except ValueError as error:
            raise _invalid(f"{prefix}{error}") from None
        if setting.refused and values[name] != setting.default:
            raise _invalid(f"{prefix}{name} cannot be set: {setting.refused}")
    _check_lags(values, config)


def _check_lags(values: dict[str, Any], config: Config) -> None:
    lags = "min.compaction.lag.ms", "max.compaction.lag.ms"
    in_force = {name: broker_value(name, config) for name in lags} | values
    shortest, longest = (in_force[name] for name in lags)
    if shortest > longest:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
