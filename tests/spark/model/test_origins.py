"""Columns of the result that are, row by row, columns of the source."""

from __future__ import annotations

import pytest

from kafkad_etl.model.sql.origins import origin
from tests.spark.jobs import job


@pytest.mark.parametrize(
    ("sql", "column", "found"),
    [
        ("", "_partition", "_partition"),
        ("SELECT value, _partition FROM source", "_partition", "_partition"),
        ("SELECT value, source._partition AS p FROM source", "P", "_partition"),
        ("SELECT * FROM source", "_partition", "_partition"),
        ("SELECT * EXCEPT (_partition) FROM source", "_partition", ""),
        ("SELECT value, _partition % 2 AS p FROM source", "p", ""),
        ("SELECT value, _partition FROM source WHERE _partition < 2", "_partition", ""),
        ("SELECT DISTINCT _partition FROM source", "_partition", ""),
        ("SELECT _partition FROM source LIMIT 3", "_partition", ""),
        ("SELECT s._partition FROM source s JOIN users u ON s.id = u.id", "_partition", ""),
        ("SELECT FORM", "_partition", ""),
    ],
)
def test_a_column_is_followed_to_the_source(sql: str, column: str, found: str) -> None:
    assert origin(job(transform={"sql": sql}), column) == found


def test_it_is_followed_through_steps() -> None:
    steps = [
        {"name": "clean", "sql": "SELECT value, _partition AS p FROM source"},
        {"name": "last", "sql": "SELECT *, p AS q FROM clean"},
    ]
    assert origin(job(transform={"steps": steps}), "q") == "_partition"
    assert origin(job(transform={"steps": steps}), "value") == "value"
