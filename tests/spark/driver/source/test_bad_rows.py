from __future__ import annotations

import pickle

import pytest

from kafkad_etl.driver.source.bad_rows import BadRow, Tally, refusal, refused
from kafkad_etl.driver.terms import JobFailed
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


def test_a_run_counts_over_all_batches_and_a_repeated_one_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad_etl.driver.source.bad_rows.first_bad", lambda rows: [])
    tally = Tally(BadRows(action="drop", max=5))
    tally.meet(7, None, 2, 10)
    for _ in range(3):  # as for a batch that cannot be written
        tally.meet(8, None, 3, 10)
    tally.meet(9, None, 0, 10)
    with pytest.raises(JobFailed) as stopped:
        tally.meet(10, None, 1, 10)
    assert stopped.value.failed.text.startswith("6 of 40 rows could not be parsed, more than bad_rows.max allows (5)")


def test_a_tally_of_many_batches_is_as_small_as_that_of_one() -> None:
    tally = Tally(BadRows())
    for batch in range(1000):
        tally.meet(batch, None, 0, 5)
    assert len(pickle.dumps(tally)) < 1000
