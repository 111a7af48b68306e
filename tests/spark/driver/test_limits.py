from __future__ import annotations

import pytest

from kafkad_etl.driver.bad_rows import BadRow, refusal, refused
from kafkad_etl.driver.checks import holds
from kafkad_etl.driver.limits import Limits, enough, idle_since
from kafkad_etl.job import BadRows


def test_any_limit_ends_a_run_and_zero_means_none() -> None:
    assert not enough(Limits(), rows=10**9, ran_seconds=10**9, idle_seconds=10**9)
    assert [enough(Limits(rows=10), n, 0, 0) for n in (9, 10)] == [False, True]
    assert [enough(Limits(seconds=10), 0, n, 0) for n in (9, 10)] == [False, True]
    assert [enough(Limits(idle_seconds=10), 0, 99, n) for n in (9, 10)] == [False, True]


@pytest.mark.parametrize(
    ("policy", "bad", "stops"),
    [
        (BadRows(), 0, False),
        (BadRows(), 1, True),
        (BadRows(action="drop"), 100, False),
        (BadRows(action="drop", max=3), 3, False),
        (BadRows(action="drop", max=3), 4, True),
        (BadRows(action="dead_letter", topic="t", max=0), 1, True),
        (BadRows(action="drop", max_ratio=0.1), 10, False),
        (BadRows(action="drop", max_ratio=0.1), 11, True),
    ],
)
def test_bad_rows_stop_a_run_only_over_their_limit(policy: BadRows, bad: int, stops: bool) -> None:
    assert bool(refusal(policy, bad, 100)) is stops


def test_the_first_bad_rows_are_named_and_the_others_counted() -> None:
    rows = [
        BadRow("orders-0 at offset 17", "amount", "'abc' is not BIGINT"),
        BadRow("orders-1 at offset 3", "", "it has no value"),
    ]
    failed = refused(refusal(BadRows(), 7, 100), rows, 7).failed
    assert failed.kind == "bad-rows"
    assert failed.text.splitlines() == [
        "7 of 100 rows do not parse",
        "  orders-0 at offset 17: amount: 'abc' is not BIGINT",
        "  orders-1 at offset 3: it has no value",
        "  and 5 more in this batch",
    ]


def test_a_check_compares_what_yaml_and_spark_write_differently() -> None:
    from decimal import Decimal

    assert holds(Decimal("1.50"), 1.5) and holds(0, 0) and holds("x", "x") and holds(None, None) and holds(True, True)
    assert not holds(1, 0) and not holds(None, 0) and not holds(1, True) and not holds("0", 0.5)


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
