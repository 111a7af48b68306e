from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.driver.batches.stateless import met_bad_row, needs_one_look
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Failed
from tests.spark.driver.rows import plan_of


@pytest.mark.parametrize(
    ("sink", "bad_rows", "one"),
    [
        ({"type": "none"}, {}, True),
        ({"type": "parquet", "path": "/x"}, {}, True),
        ({"type": "topic", "topic": {"topic": "out"}}, {}, False),
        ({"type": "topic", "topic": {"topic": "out"}}, {"action": "drop"}, True),
        ({"type": "none"}, {"action": "drop", "max": 3}, False),
        ({"type": "none"}, {"action": "dead_letter", "topic": "d"}, False),
    ],
)
def test_one_look_at_rows_is_enough_where_a_bad_one_does_no_harm(
    sink: dict[str, Any], bad_rows: dict[str, Any], one: bool
) -> None:
    value = {"format": "json", "schema": "id INT", "bad_rows": bad_rows}
    assert needs_one_look(plan_of({"sink": sink, "value": value})) is one


def test_a_bad_row_is_recognised_in_the_words_of_others() -> None:
    inner = RuntimeError("Job aborted: [USER_RAISED_EXCEPTION] a row that does not parse stops this job")
    assert met_bad_row(inner)
    wrapped = RuntimeError("the disk is full")
    wrapped.__cause__ = inner
    assert met_bad_row(wrapped)
    assert met_bad_row(JobFailed(Failed(kind="sink", text="failed", trace=str(inner))))
    assert not met_bad_row(RuntimeError("the disk is full"))
