from __future__ import annotations

import pytest

from kafkad.names import TopicPartition
from kctl.partitions.copy_progress import Amount, Copying, CopyProgress, Report, progress_line, stall_reason

ONE = Copying(TopicPartition("orders", 4), 1)
TWO = Copying(TopicPartition("orders", 5), 2)
MB = 1_000_000


def test_the_first_look_knows_no_rate() -> None:
    report = CopyProgress().observe(100.0, {ONE: Amount(5, 10)})
    assert report == Report(5, 10, None, None, ONE, 50, ())


def test_rate_and_time_left_come_from_what_was_copied_between_looks() -> None:
    progress = CopyProgress()
    progress.observe(100.0, {ONE: Amount(0, 10 * MB), TWO: Amount(0, 10 * MB)})
    report = progress.observe(102.0, {ONE: Amount(1 * MB, 10 * MB), TWO: Amount(4 * MB, 10 * MB)})
    assert report == Report(5 * MB, 20 * MB, 2.5 * MB, 6.0, ONE, 10, ())


def test_what_is_no_longer_listed_has_been_copied_whole() -> None:
    progress = CopyProgress()
    progress.observe(0.0, {ONE: Amount(3, 10), TWO: Amount(0, 10)})
    report = progress.observe(1.0, {TWO: Amount(5, 10)})
    assert (report.copied, report.size, report.slowest) == (15, 20, TWO)
    assert progress.observe(2.0, {}) == Report(20, 20, 8.5, 0.0, None, 100, ())


def test_what_has_not_begun_counts_for_the_time_left() -> None:
    progress = CopyProgress()
    progress.observe(0.0, {ONE: Amount(0, 10)}, 90)
    report = progress.observe(1.0, {ONE: Amount(5, 10)}, 90)
    assert (report.size, report.eta_seconds, report.slowest) == (100, 19.0, ONE)


def test_only_the_last_half_minute_counts_for_the_rate() -> None:
    progress = CopyProgress()
    progress.observe(0.0, {ONE: Amount(0, 1000)})
    progress.observe(10.0, {ONE: Amount(500, 1000)})
    report = progress.observe(40.0, {ONE: Amount(530, 1000)})
    assert report.rate == 1.0


def test_a_copy_is_stalled_after_a_minute_without_growth_and_no_longer_when_it_grows() -> None:
    progress = CopyProgress()
    progress.observe(0.0, {ONE: Amount(5, 10), TWO: Amount(5, 10)})
    assert progress.observe(59.0, {ONE: Amount(5, 10), TWO: Amount(6, 10)}).stalled == ()
    assert progress.observe(60.0, {ONE: Amount(5, 10), TWO: Amount(6, 10)}).stalled == (ONE,)
    assert progress.observe(61.0, {ONE: Amount(6, 10), TWO: Amount(6, 10)}).stalled == ()


def test_a_copy_that_is_larger_than_its_leader_counts_as_whole() -> None:
    """Retention may have deleted at the leader already."""
    assert CopyProgress().observe(0.0, {ONE: Amount(12, 10)}).copied == 10
    assert Amount(12, 10).percent == 99
    assert Amount(0, 0).percent == 0


def test_the_line_that_people_watch() -> None:
    report = Report(23_100_000, 40_600_000, 48_900_000, 14.0, ONE, 61, ())
    assert progress_line(report, "batch 2/3", 7, 6, 50 * MB) == (
        "batch 2/3  7 moving, 6 done  23.1 MB of 40.6 MB  48.9 MB/s of 50.0 MB/s throttled  ETA 14s  "
        "slowest orders-4 -> 1 (61%)"
    )
    unknown = Report(0, 10, None, None, ONE, 0, ())
    assert progress_line(unknown, "", 1, 0, None) == "1 moving, 0 done  0 B of 10 B  slowest orders-4 -> 1 (0%)"


@pytest.mark.parametrize(
    ("target_alive", "leader", "amount", "throttle", "reason"),
    [
        (False, 1, Amount(0, 9), None, "its new broker is down"),
        (True, None, Amount(0, 9), None, "the partition has no leader to copy from"),
        (True, 1, Amount(9, 9), None, "it has everything, but is not in sync yet"),
        (True, 1, Amount(1, 9), 500, "the throttle of 500 B/s may be less than what producers write"),
        (True, 1, Amount(1, 9), None, "nothing arrives at its new broker: see that broker's log"),
    ],
)
def test_why_a_copy_stalls(
    target_alive: bool, leader: int | None, amount: Amount, throttle: int | None, reason: str
) -> None:
    assert stall_reason(target_alive, leader, amount, throttle) == reason
