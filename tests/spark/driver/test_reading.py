"""What Spark's readers are told, and what its progress says, without Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkad_etl.driver.batches import met_bad_row, needs_one_look
from kafkad_etl.driver.outcome import JobFailed
from kafkad_etl.driver.progress import progress_of
from kafkad_etl.driver.source import bounded_options, stream_options
from kafkad_etl.driver.transform import plain_columns, queries
from kafkad_etl.messages import Failed
from tests.spark.driver.rows import plan_of

PROGRESS = {
    "batchId": 7,
    "durationMs": {"addBatch": 900, "commitOffsets": 20, "queryPlanning": 5, "triggerExecution": 1200, "walCommit": 30},
    "eventTime": {"watermark": "2026-11-01T00:00:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "customMetrics": {"numDroppedDuplicateRows": 3}},
        {"numRowsTotal": 9, "customMetrics": {}},
    ],
    "sources": [{"startOffset": None, "endOffset": {"t": {"0": 4}}, "latestOffset": {"t": {"0": 9}}}],
}


def test_reads_are_committed_polls_are_large_and_the_job_may_say_otherwise() -> None:
    plan = plan_of({"source": {"topics": ["t"], "rows_per_batch": 10, "min_partitions": 3, "headers": True}})
    assert plan.reading is not None
    options = stream_options(plan, plan.reading)
    assert options["kafka.isolation.level"] == "read_committed" and options["kafka.max.poll.records"] == "20000"
    assert (options["maxOffsetsPerTrigger"], options["minPartitions"], options["includeHeaders"]) == ("10", "3", "true")
    assert options["subscribe"] == "orders" and json.loads(options["startingOffsets"]) == {"orders": {"0": 0}}
    assert options["failOnDataLoss"] == "true"


def test_a_bounded_read_has_these_partitions_alone_and_new_ones_from_their_beginning() -> None:
    plan = plan_of({})
    assert plan.reading is not None
    options = bounded_options(plan, plan.reading, {"t": {0: 5}}, {"t": {0: 9, 1: 3}})
    assert json.loads(options["assign"]) == {"t": [0, 1]}
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5, "1": -2}}
    assert json.loads(options["endingOffsets"]) == {"t": {"0": 9, "1": 3}}
    assert "maxOffsetsPerTrigger" not in options and "subscribe" not in options


def test_progress_of_a_stream_without_state_has_no_watermark() -> None:
    found = progress_of(json.dumps(PROGRESS))
    assert (found.batch, found.latest, found.groups, found.duplicates) == (7, {"t": {0: 9}}, 9, 3)
    assert found.phases == {"commit": 0.02, "planning": 0.005, "log": 0.03} and found.seconds == 1.2
    assert found.watermark == "2026-11-01T00:00:00.000Z"
    epoch = PROGRESS | {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}, "stateOperators": []}
    assert (progress_of(json.dumps(epoch)).watermark, progress_of(json.dumps(epoch)).groups) == ("", 0)
    files = {"batchId": 1, "sources": [{"latestOffset": {"logOffset": 3}}]}
    assert progress_of(json.dumps(files)).latest == {}


def test_without_sql_the_sink_gets_the_record_and_what_it_asks_for() -> None:
    columns = ["id", "_key", "_topic", "_partition", "_offset", "_timestamp"]
    assert plain_columns(columns, plan_of({}).job) == ["id"]
    topic = {"type": "topic", "topic": {"topic": "out", "key": "_key", "source_header": True}}
    wanted = ["id", "_key", "_topic", "_partition", "_offset"]
    assert plain_columns(columns, plan_of({"sink": topic}).job) == wanted
    assert queries(plan_of({}).job) == []


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
