"""How fast connections may come, and from where."""

from __future__ import annotations

from kafkad.security.quotas.connections import ConnectionRates, Rates
from kafkad.security.quotas.rate import Windows


def test_a_broker_waits_once_connections_come_faster_than_its_rate() -> None:
    rates = ConnectionRates(Rates(broker=2), Windows())
    assert [rates.wait_ms("L", 0) for _ in range(20)] == [0] * 20, "ten windows are free"
    assert rates.wait_ms("L", 0) == 500
    assert [rates.wait_ms("L", 0) for _ in range(3)] == [1000] * 3, "no longer than one window"
    assert rates.wait_ms("M", 60_000) == 0


def test_listeners_have_limits_of_their_own_and_brokers_only_that() -> None:
    rates = ConnectionRates(Rates(broker=1, listeners={"OUTSIDE": 0.5}, exempt="BROKERS"), Windows())
    assert [rates.wait_ms("BROKERS", 0) for _ in range(99)] == [0] * 99
    assert [rates.wait_ms("OUTSIDE", 0) > 0 for _ in range(6)] == [False] * 5 + [True]
    assert [rates.wait_ms("INSIDE", 0) > 0 for _ in range(5)] == [False] * 4 + [True]


def test_an_address_is_held_and_what_was_turned_away_does_not_count() -> None:
    rates = ConnectionRates(Rates(addresses={"10.0.0.1": 1}, other_addresses=2, exempt="BROKERS"), Windows())
    assert [rates.hold_ms("L", "10.0.0.1", 0) for _ in range(12)] == [0] * 10 + [1000, 1000]
    assert [rates.hold_ms("L", "10.0.0.2", 0) > 0 for _ in range(21)] == [False] * 20 + [True]
    assert rates.hold_ms("BROKERS", "10.0.0.1", 0) == 0
    assert rates.hold_ms("L", "10.0.0.1", 11_000) == 0


def test_addresses_without_a_quota_cost_nothing() -> None:
    rates = ConnectionRates(Rates(addresses={"10.0.0.1": 1}), Windows())
    assert [rates.hold_ms("L", "10.0.0.2", 0) for _ in range(99)] == [0] * 99
    assert not Rates(exempt="BROKERS").any
    assert Rates(other_addresses=0).any


def test_addresses_cannot_fill_the_memory() -> None:
    rates = ConnectionRates(Rates(other_addresses=1), Windows())
    for number in range(13_000):
        rates.hold_ms("L", str(number), 0)
        assert len(rates._addresses) <= 11_000
