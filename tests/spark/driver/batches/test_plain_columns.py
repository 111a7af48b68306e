from __future__ import annotations

from kafkad_etl.driver.batches.transform import plain_columns, queries
from tests.spark.driver.rows import plan_of


def test_without_sql_the_sink_gets_the_record_and_what_it_asks_for() -> None:
    columns = ["id", "_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert plain_columns(columns, plan_of({}).job) == ["id"]
    topic = {"type": "topic", "topic": {"topic": "out", "key": "_key", "source_header": True}}
    wanted = ["id", "_key", "_topic", "_partition", "_offset"]
    assert plain_columns(columns, plan_of({"sink": topic}).job) == wanted
    assert queries(plan_of({}).job) == []
