"""Cases on real Spark that no shipped job has: lookups, lines of files, settings of a session, an error of Spark's."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.driver.tasks.cases import run_cases
from kafkad_etl.messages import Case, CaseResult, SampleBatch
from kafkad_etl.model.cases import Batch, CaseBlock, CaseSource, Record, samples
from tests.spark.driver.rows import IN_PROCESS, Front, plan_of

pytestmark = [*IN_PROCESS, pytest.mark.long]  # the cases of shipped jobs are what CI runs

LOOKUP = {"names": {"format": "parquet", "path": "/nowhere", "schema": "id BIGINT, name STRING"}}
FILES = {"files": {"format": "csv", "path": "/nowhere", "schema": "id BIGINT, name STRING"}}
JSON = {"format": "json", "schema": "id BIGINT"}


def case(values: list[Any], lookups: dict[str, tuple[str, ...]] | None = None, **blocks: Any) -> Case:
    plan = plan_of(blocks)
    records = [("t.yaml:1", Record(value=value)) for value in values]
    lines = tuple(str(value) for value in values)
    block = CaseBlock(name="one", batches=(Batch(),), rows=())
    source = CaseSource(block, "t.yaml:1", {}, (), (), None, lookups or {}, (records,), (lines,))
    batches: tuple[SampleBatch, ...] = samples(source, plan.job)
    return Case(plan=plan, batches=batches, lookups=lookups or {})


def test_cases_have_lookups_files_and_settings_of_their_own(spark: Any) -> None:
    joined = "SELECT id, name FROM source JOIN names USING (id)"
    hour = "SELECT id, hour(timestamp_seconds(0)) AS h FROM source"
    cases = (
        case(["no", {"id": 1}], {"names": ('{"id": 1, "name": "a"}',)}, value=JSON | {"bad_rows": {"action": "drop"}},
             transform={"sql": joined, "lookups": LOOKUP}),
        case([{"id": 1}], {"names": ('{"id": 1, "name": "b"}',)}, value=JSON,
             transform={"sql": joined, "lookups": LOOKUP}),
        case([{"id": 1}], value=JSON, transform={"sql": hour},
             spark={"conf": {"spark.sql.session.timeZone": "+02:00"}}),
        case([{"id": 1}], value=JSON, transform={"sql": hour}),
        case(["1,a", "x,b"], source=FILES, value={"format": "raw", "bad_rows": {"action": "drop"}}),
        case([{"id": 1}], value=JSON, transform={"sql": "SELECT id,\n no_such(id) FROM source"}),
    )  # fmt: skip
    plan = plan_of({})
    front = Front()
    assert run_cases(spark, type(plan)(task="test", job=plan.job, mode="batch", reading=None, cases=cases), front)
    first, second, east, utc, lines, wrong = front.of(CaseResult)
    assert (first.rows, first.bad) == (['{"id":1,"name":"a"}'], 1)
    assert second.rows == ['{"id":1,"name":"b"}']
    assert (east.rows, utc.rows) == (['{"id":1,"h":2}'], ['{"id":1,"h":0}'])
    assert (lines.rows, lines.bad) == (['{"id":1,"name":"a"}'], 1)
    assert wrong.failed is not None
    assert (wrong.failed.kind, wrong.failed.line, wrong.rows) == ("sql", 2, [])
