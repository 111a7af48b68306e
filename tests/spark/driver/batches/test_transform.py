"""SQL as Spark understands it."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.driver.batches.transform import create_lookups, has_limit, result
from kafkad_etl.driver.terms import JobFailed
from tests.spark.driver.rows import IN_PROCESS, plan_of

pytestmark = IN_PROCESS


@pytest.mark.parametrize(
    ("sql", "cut"),
    [
        (["SELECT * FROM source"], False),
        (["SELECT id AS credit_limit, 'LIMIT 5' AS text FROM source -- no LIMIT 5"], False),
        (["SELECT * FROM source TABLESAMPLE (50 PERCENT)"], False),
        (["SELECT * FROM source LIMIT 5"], True),
        (["WITH few AS (SELECT * FROM source LIMIT 5) SELECT count(*) AS n FROM few"], True),
        (["SELECT * FROM source WHERE id IN (SELECT max(id) FROM (SELECT id FROM source LIMIT 5))"], True),
        (["SELECT * FROM source TABLESAMPLE (5 ROWS)"], True),
        (["SELECT * FROM source LIMIT 5", "SELECT id FROM step0"], True),
        (["SELECT id FROM source", "SELECT id FROM step0"], False),
    ],
)
def test_a_limit_is_found_wherever_it_stands_and_not_in_names(spark: Any, sql: list[str], cut: bool) -> None:
    steps = [{"name": f"step{at}", "sql": each} for at, each in enumerate(sql)]
    source = spark.createDataFrame([], "id BIGINT")
    assert has_limit(result(source, plan_of({"transform": {"steps": steps}}).job)) is cut


def test_a_lookup_that_cannot_be_read_is_named(spark: Any) -> None:
    lookup = {"format": "parquet", "path": "/nowhere/at/all"}
    with pytest.raises(JobFailed) as raised:
        create_lookups(spark, plan_of({"transform": {"lookups": {"users": lookup}}}).job)
    failed = raised.value.failed
    assert (failed.kind, failed.step) == ("store", "transform.lookups.users.path")
    assert failed.text == "Path does not exist: file:/nowhere/at/all."
