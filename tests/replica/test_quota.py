"""The replication quota: how long those wait who take more than the rate allows."""

from __future__ import annotations

import pytest

from kafkad.config import LONG_MAX
from kafkad.replica.quota import ReplicationQuota, is_throttled


def taken_in(quota: ReplicationQuota, seconds: int, piece: int) -> int:
    """The bytes that somebody gets who takes whenever it is allowed."""
    now_ms, total = 0.0, 0
    while now_ms < seconds * 1000:
        wait_ms = quota.wait_ms(now_ms)
        if wait_ms:
            now_ms += wait_ms
            continue
        quota.take(piece, now_ms)
        total += piece
    return total


@pytest.mark.parametrize("piece", [1_000, 300_000, 5_000_000])
def test_what_is_taken_comes_to_the_rate(piece: int) -> None:
    assert taken_in(ReplicationQuota(1_000_000), 60, piece) == pytest.approx(60_000_000, abs=piece + 1_000_000)


def test_what_was_not_used_is_saved_up_for_a_second_at_most() -> None:
    quota = ReplicationQuota(1_000)
    assert not quota.wait_ms(3_600_000)
    quota.take(1_000, 3_600_000)
    assert not quota.wait_ms(3_600_000)
    quota.take(500, 3_600_000)
    assert quota.wait_ms(3_600_000) == 500
    assert quota.wait_ms(3_600_200) == 300


def test_another_rate_holds_from_now_on() -> None:
    quota = ReplicationQuota(100)
    quota.take(1_000, 0)
    quota.limit(1_000, 5_000)
    assert quota.wait_ms(5_000) == 500
    quota.limit(LONG_MAX, 5_000)
    quota.limit(100, 5_001)
    assert not quota.wait_ms(5_001), "while there was no rate everything was paid off"


def test_less_than_a_byte_is_not_waited_for() -> None:
    """Such waits may be too short for a clock to move."""
    quota = ReplicationQuota(1_000)
    quota.take(1_000, 0)
    assert not quota.wait_ms(999.999_5)


def test_without_a_rate_nobody_waits_and_with_none_at_all_everybody_does() -> None:
    quota = ReplicationQuota()
    quota.take(1 << 40, 0)
    assert not quota.wait_ms(0)
    quota.limit(0, 1)
    quota.take(1, 2)
    assert quota.wait_ms(2) == quota.wait_ms(60_000) == 1_000


@pytest.mark.parametrize(
    ("replicas", "expected"), [((), False), (("*",), True), (("0:1", "1:2"), True), (("0:2", "1:1", "10:2"), False)]
)
def test_the_topic_names_throttled_replicas(replicas: tuple[str, ...], expected: bool) -> None:
    assert is_throttled(replicas, 1, 2) is expected
