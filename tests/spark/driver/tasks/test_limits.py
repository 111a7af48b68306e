from __future__ import annotations

from kafkad_etl.driver.tasks.limits import Limits, enough, idle_since


def test_any_limit_ends_a_run_and_zero_means_none() -> None:
    assert not enough(Limits(), rows=10**9, ran_seconds=10**9, idle_seconds=10**9)
    assert [enough(Limits(rows=10), n, 0, 0) for n in (9, 10)] == [False, True]
    assert [enough(Limits(seconds=10), 0, n, 0) for n in (9, 10)] == [False, True]
    assert [enough(Limits(idle_seconds=10), 0, 99, n) for n in (9, 10)] == [False, True]


def test_idleness_counts_from_the_first_look_that_found_nothing() -> None:
    since = None
    seen = []
    for now, message, available in (
        (1.0, "Initializing sources", False),
        (2.0, "Getting offsets from KafkaV2", False),
        (3.0, "Processing new data", True),
        (4.0, "Waiting for next trigger", True),
        (5.0, "Getting offsets from KafkaV2", True),
        (6.0, "Waiting for data to arrive", False),
        (7.0, "Getting offsets from KafkaV2", False),
        (8.0, "Waiting for next trigger", False),
        (9.0, "Processing new data", True),
    ):
        since = idle_since({"message": message, "isDataAvailable": available, "isTriggerActive": True}, since, now)
        seen.append(since)
    assert seen == [None, None, None, None, None, 6.0, 6.0, 6.0, None]
