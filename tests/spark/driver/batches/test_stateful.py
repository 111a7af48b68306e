from __future__ import annotations

from typing import Any, cast

import pytest

from kafkad_etl.driver.batches.stateful import StatefulBatches
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.sql_text import named
from tests.spark.driver.rows import IN_PROCESS, plan_of, records

pytestmark = IN_PROCESS


@pytest.mark.parametrize("name", ["at", "seen-at", "seen.at", "seen`at", "seen at"])
def test_the_time_of_a_watermark_may_be_called_as_any_column(spark: Any, name: str) -> None:
    window = f"window({named(name)}, '1 minute')"
    sql = f"SELECT {window} AS at, count(*) AS n FROM source GROUP BY {window}"
    blocks = {
        "value": {"format": "json", "schema": f"id INT, {named(name)} TIMESTAMP"},
        "transform": {"watermark": {"column": name, "delay": "1 minute"}, "sql": sql},
    }
    plan, nobody = plan_of(blocks, mode="available-now"), cast(Any, None)
    batches = StatefulBatches(plan, Parser(spark, plan), nobody, nobody, nobody, nobody)
    out = batches.query(records(spark, b'{"id": 1, "%s": "2026-11-01T00:00:30Z"}' % name.encode()))
    assert [row.n for row in out.collect()] == [1]
