from __future__ import annotations

import pytest

from kafkad_etl.driver.source.bad_rows import BadRow, refusal, refused
from kafkad_etl.job import BadRows


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
        "7 of 100 rows could not be parsed",
        "  orders-0 at offset 17: amount: 'abc' is not BIGINT",
        "  orders-1 at offset 3: it has no value",
        "  and 5 more in this batch",
    ]
