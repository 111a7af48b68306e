"""Failed logins: what they cost whom, and for how long they are remembered."""

from __future__ import annotations

from kafkad.security.attempts import Attempts
from tests.fakes import FakeClock


def test_the_delay_doubles_from_the_tenth_on_up_to_ten_seconds() -> None:
    attempts = Attempts(FakeClock())
    delays = [attempts.failed("1.2.3.4", None, 100) for _ in range(20)]
    assert delays[:9] == [100] * 9
    assert delays[9:17] == [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    assert attempts.failed("5.6.7.8", None, 100) == 100


def test_a_name_is_counted_wherever_it_is_tried_from_and_is_no_address() -> None:
    attempts = Attempts(FakeClock())
    delays = [attempts.failed(f"10.0.0.{number}", "alice", 0) for number in range(11)]
    assert delays == [0] * 9 + [200, 400]
    assert attempts.failed("10.0.1.1", "bob", 0) == 0
    assert not attempts.suspects("alice", "alice")
    assert not attempts.suspects("10.0.0.3", "alice")


def test_a_minute_later_all_is_forgotten() -> None:
    clock = FakeClock()
    attempts = Attempts(clock)
    for _ in range(12):
        attempts.failed("1.2.3.4", "alice", 100)
    assert attempts.suspects("1.2.3.4", "alice")
    clock.advance(60_000)
    assert not attempts.suspects("1.2.3.4", "alice")
    assert attempts.failed("1.2.3.4", "alice", 100) == 100


def test_very_many_sources_cost_little_memory_and_the_last_are_known() -> None:
    attempts = Attempts(FakeClock())
    for number in range(25_000):
        attempts.failed(f"address {number}", f"name {number}" * 1_000, 100)
    assert len(attempts._failures) <= 20_000
    for _ in range(9):
        attempts.failed("address 24999", None, 100)
    assert attempts.suspects("address 24999", "name 24999" * 1_000)


def test_a_name_is_suspect_only_where_it_has_failed_itself() -> None:
    attempts = Attempts(FakeClock())
    for _ in range(10):
        attempts.failed("1.2.3.4", "alice", 100)
    assert attempts.suspects("1.2.3.4", "alice")
    assert not attempts.suspects("1.2.3.4", "bob")
    assert not attempts.suspects("5.6.7.8", "alice")
