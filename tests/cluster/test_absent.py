"""Which brokers are away, and since when."""

from __future__ import annotations

from kafkad.cluster.absent import AbsentBrokers


def test_a_broker_is_away_from_when_it_left_until_it_is_back() -> None:
    absent = AbsentBrokers()
    absent.observe([], [1, 2, 3], 1_000)
    assert absent.text == ""
    absent.observe([1, 2, 3], [1], 2_000)
    absent.observe([1], [1], 3_000)
    assert absent.text == "2@2000,3@2000"
    absent.observe([1], [1, 2], 4_000)
    assert absent.text == "3@2000"
    absent.observe([1, 2], [1], 5_000)
    assert absent.since_ms == {2: 5_000, 3: 2_000}
