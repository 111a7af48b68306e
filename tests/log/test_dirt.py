"""Kafka's rules for the dirt of logs, with logs made of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kafkad.config import LogConfig
from kafkad.log.dirt import Dirt, assess, first_dirty

NOW = 1_000_000
HOUR = 3_600_000


@dataclass
class Segment:
    base: int
    size: int
    largest_timestamp_ms: int = 0
    oldest_timestamp_ms: int = -1


def log(*sizes: int) -> list[Segment]:
    """Segments of a hundred offsets, a second apart; the last is the active one."""
    return [Segment(n * 100, size, NOW - (len(sizes) - n) * 1000) for n, size in enumerate(sizes)]


def judge(segments: list[Segment], dirty: int = 0, stable: int = 10**9, **config: float) -> Dirt:
    return assess(segments, LogConfig(**config), NOW, first_dirty=dirty, stable_offset=stable)


def test_the_active_segment_is_never_dirty() -> None:
    dirt = judge(log(10, 20, 30, 1000))
    assert (dirt.upto, dirt.clean_bytes, dirt.dirty_bytes, dirt.share) == (300, 0, 60, 1.0)
    alone = judge(log(1000))
    assert (alone.upto, alone.dirty_bytes, alone.share) == (0, 0, 0.0)
    assert not alone.wants_cleaning(LogConfig(min_cleanable_dirty_ratio=0.0))


def test_what_was_cleaned_counts_against_what_is_dirty() -> None:
    dirt = judge(log(30, 10, 20, 1000), dirty=200)
    assert (dirt.clean_bytes, dirt.dirty_bytes, dirt.share) == (40, 20, pytest.approx(1 / 3))
    everything = judge(log(30, 10, 20, 1000), dirty=300)
    assert (everything.dirty_bytes, everything.share) == (0, 0.0)


def test_a_segment_that_is_cleaned_in_part_counts_on_both_sides_as_in_kafka() -> None:
    dirt = judge(log(30, 10, 20, 1000), dirty=150)
    assert (dirt.clean_bytes, dirt.dirty_bytes) == (40, 30)


@pytest.mark.parametrize(
    ("stable", "upto"), [(0, 0), (99, 0), (100, 100), (250, 200), (299, 200), (300, 300), (350, 300)]
)
def test_nothing_is_cleaned_that_may_be_taken_back(stable: int, upto: int) -> None:
    assert judge(log(10, 10, 10, 10), stable=stable).upto == upto


def test_young_records_stay_and_so_does_what_follows_them() -> None:
    segments = log(10, 10, 10, 10, 10)
    segments[1].largest_timestamp_ms = NOW - 500
    assert judge(segments, min_compaction_lag_ms=0).upto == 400
    assert judge(segments, min_compaction_lag_ms=500).upto == 400
    assert judge(segments, min_compaction_lag_ms=501).upto == 100
    assert judge(segments, dirty=200, min_compaction_lag_ms=501).upto == 400, "what is clean is not asked"
    assert judge(segments, min_compaction_lag_ms=HOUR).dirty_bytes == 0
    nothing = judge(segments, dirty=150, min_compaction_lag_ms=HOUR)
    assert (nothing.upto, nothing.dirty_bytes) == (100, 0)


def test_old_records_are_cleaned_however_few_they_are() -> None:
    segments = log(1000, 10, 10)
    segments[1].oldest_timestamp_ms = NOW - 5000
    config = LogConfig(max_compaction_lag_ms=4000)
    dirt = assess(segments, config, NOW, first_dirty=100, stable_offset=300)
    assert dirt.overdue_ms == 1000
    assert dirt.wants_cleaning(config)
    assert not dirt._replace(overdue_ms=0).wants_cleaning(config)
    assert not dirt._replace(dirty_bytes=0).wants_cleaning(config)
    for stamp in (-1, 0, NOW - 4000):
        segments[1].oldest_timestamp_ms = stamp
        assert assess(segments, config, NOW, first_dirty=100, stable_offset=300).overdue_ms == 0


def test_the_share_must_be_above_the_ratio() -> None:
    dirt = judge(log(10, 10, 10), dirty=100)
    assert dirt.share == 0.5
    assert not dirt.wants_cleaning(LogConfig(min_cleanable_dirty_ratio=0.5))
    assert dirt.wants_cleaning(LogConfig(min_cleanable_dirty_ratio=0.49))


@pytest.mark.parametrize(
    ("checkpoint", "expected"), [(None, 10), (9, 10), (10, 10), (55, 55), (100, 100), (101, 10), (-1, 10)]
)
def test_a_checkpoint_outside_the_log_counts_for_nothing(checkpoint: int | None, expected: int) -> None:
    assert first_dirty(checkpoint, 10, 100) == expected
