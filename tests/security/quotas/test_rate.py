"""Rates and throttle times, beside those that Kafka 3.9 gave."""

from __future__ import annotations

import heapq
import json
import random
from pathlib import Path

import pytest

from kafkad.security.quotas.clients import Meter
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.levels import Sharers
from kafkad.security.quotas.rate import Sampled, TokenBucket, Windows

GOLDEN = Path(__file__).parents[2] / "golden" / "security" / "decisions.json"
REPLAYS = json.loads(GOLDEN.read_text())["quota_replay"]
BURST, WHILE_FULL = REPLAYS
"""A fresh client that sends on and on; one that has used up nearly all that it may send at once 0.2 s before."""


def meter(quota: Quota, value: float) -> Meter:
    made = Meter(quota, Sharers("u", ""), Windows())
    made.limit(value)
    return made


def test_rates_are_measured_as_kafka_measures_them() -> None:
    for replay, quota, size, before in ((BURST, 1_000_000, 250_107, 0), (WHILE_FULL, 100_000, 100_107, 900_107)):
        measured = Sampled(Windows())
        if before:
            measured.add(before, -204)
        for sent_s, answered_ms, throttle_ms in replay["requests"]:
            now_ms = sent_s * 1000 + answered_ms
            measured.add(size, now_ms)
            assert round(measured.excess_ms(quota, now_ms)) == pytest.approx(throttle_ms, rel=0.01, abs=10)


def test_throttle_times_are_those_of_kafka_until_it_lets_a_second_burst_through() -> None:
    measured = meter(Quota.PRODUCE, 1_000_000)
    throttled, late = 0, []
    for sent_s, answered_ms, throttle_ms in BURST["requests"]:
        now_ms = sent_s * 1000 + answered_ms
        found = measured.take(250_107, now_ms)
        if now_ms < 12_000:
            throttled += throttle_ms > 0
            assert found == pytest.approx(throttle_ms, rel=0.01, abs=10)
        else:
            late.append(found)
            assert throttle_ms == 0
    assert throttled == 11
    assert late == pytest.approx([240 + 250 * number for number in range(len(late))], abs=30)


def test_a_fresh_client_has_ten_windows_free() -> None:
    measured = meter(Quota.PRODUCE, 1000)
    assert measured.take(10_000, 0) == 0
    assert measured.take(1, 0) == 1
    assert meter(Quota.PRODUCE, 10_000).take(300_000, 0) == 20_000


def test_bytes_are_waited_for_without_a_bound_and_time_one_window() -> None:
    assert meter(Quota.PRODUCE, 1).take(1_000_000, 0) == 999_990_000
    assert meter(Quota.REQUEST, 1).take(1_000_000, 0) == 1000
    assert meter(Quota.REQUEST, 0).take(1, 0) == 1000, "a quota of nothing"


def test_what_was_not_taken_does_not_count() -> None:
    measured = meter(Quota.FETCH, 1000)
    assert measured.take(20_000, 0) == 10_000
    measured.give_back(20_000, 0)
    assert measured.take(10_000, 0) == 0
    assert measured.most_at_once == 10_000


@pytest.mark.parametrize("connections", [1, 100])
@pytest.mark.parametrize("largest", [50_000, 100_000])
def test_a_rate_is_held(connections: int, largest: int) -> None:
    """By clients that send as soon as they may, in any 30 s once what they may send at once is gone."""
    sizes, quota = random.Random(3), 5_000_000
    measured, sent = meter(Quota.PRODUCE, quota), [0] * 60
    ready = [(float(number), number) for number in range(connections)]
    now_ms = 0.0
    while now_ms < 60_000:
        at_ms, number = heapq.heappop(ready)
        now_ms = max(now_ms + 0.2, at_ms)
        size = sizes.randrange(1, largest)
        sent[min(int(now_ms / 1000), 59)] += size
        heapq.heappush(ready, (now_ms + measured.take(size, now_ms), number))
    for second in range(22, 30):
        assert sum(sent[second : second + 30]) / 30 == pytest.approx(quota, rel=0.02)


@pytest.mark.parametrize("late_ms", [0.5, 2.0])
def test_one_connection_is_even_within_seconds(late_ms: float) -> None:
    """It sends 16 KB as soon as it is read again, a little after its time: in any 3 s once the first burst is gone."""
    size, quota, now_ms = 16_000, 10_000_000, 0.0
    measured, sent = meter(Quota.PRODUCE, quota), [0] * 31
    while now_ms < 30_000:
        sent[int(now_ms / 1000)] += size
        throttle_ms = measured.take(size, now_ms)
        now_ms += 0.2 + (throttle_ms + late_ms if throttle_ms else 0)
    for second in range(12, 27):
        assert sum(sent[second : second + 3]) / 3 == pytest.approx(quota, rel=0.02)


def test_idle_after_all_windows() -> None:
    sampled = Sampled(Windows(number=3, size_ms=100))
    for at in (0, 100, 200, 300, 400):
        sampled.add(5, at)
    assert not sampled.is_idle(699)
    assert sampled.is_idle(700)
    assert sampled.rate(699) > 0
    assert sampled.rate(700) == 0
    assert sampled.mean(700) == 0


def test_mean_of_what_came() -> None:
    sampled = Sampled(Windows())
    sampled.add(10, 0)
    sampled.add(20, 1500)
    assert sampled.mean(2000) == 15


def test_bucket_as_kafka_was_seen_to_have_it() -> None:
    """Rate 1: 8 and 8 partitions pass, the third request has to wait for 5 s."""
    bucket = TokenBucket(Windows(), 1)
    for now_ms in (1000.0, 1001.0):
        assert bucket.wait_ms(now_ms) == 0
        bucket.take(8, now_ms)
    assert bucket.wait_ms(1002) == pytest.approx(5000, abs=5)
    assert bucket.wait_ms(6002) == 0
    assert not bucket.is_idle(6002)
    assert bucket.is_idle(6002 + 11_000)


def test_bucket_without_a_rate() -> None:
    bucket = TokenBucket(Windows(), 0)
    assert bucket.wait_ms(0) == 0
    bucket.take(1, 0)
    assert bucket.wait_ms(1e9) == float("inf")
