"""The rows that Spark drops behind a watermark, against a count made of the topic and the checkpoint alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkad_etl.driver.tasks.run import edges_of, run
from kafkad_etl.messages import Batch, OpenWindows, Warned
from tests.broker import KafkadProcess
from tests.spark.driver.rows import IN_PROCESS, Front, Kept, live_plan, produced

pytestmark = IN_PROCESS

MINUTE = 60
ROWS = 2000
BEGIN = 1_760_000_040
TIMELESS = 3


class Row(NamedTuple):
    partition: int
    offset: int
    second: int
    good: bool


def _iso(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def backlog(broker: KafkadProcess) -> list[Row]:
    """Topic `late`: two ranges of time, interleaved, as two writers of history leave them; a few rows are bad."""
    rows, records = [], []
    for at in range(ROWS):
        row = Row(at % 2, at // 2, BEGIN + (at if at % 2 else at + ROWS), good=at % 100 != 7)
        value = {"id": at if row.good else "x", "at": _iso(row.second)}
        rows.append(row)
        records.append((row.partition, None, json.dumps(value).encode()))
    records += [(0, None, b'{"id": 1}')] * TIMELESS
    produced(broker.bootstrap, "late", records, partitions=2)
    return rows


def recomputed(checkpoint: Path, rows: list[Row], width: int, step: int) -> list[int]:
    """The number of late rows in each batch, for any of their windows, by the watermark of the batch before."""
    late, before, watermark = [], {"0": 0, "1": 0}, 0
    for batch in range(len(list((checkpoint / "offsets").glob("[0-9]*")))):
        _, metadata, offsets = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
        end = json.loads(offsets)["late"]
        ours = [row for row in rows if row.good and before[str(row.partition)] <= row.offset < end[str(row.partition)]]
        first_ends = [row.second // step * step - (width - step) + width for row in ours]
        late.append(sum(each * 1000 <= watermark for each in first_ends))
        before, watermark = end, json.loads(metadata)["batchWatermarkMs"]
    return late


def _blocks(sql: str, **transform: Any) -> dict[str, Any]:
    return {
        "value": {"format": "json", "schema": "id BIGINT, at TIMESTAMP", "bad_rows": {"action": "drop"}},
        "transform": {"watermark": {"column": "at", "delay": "1 minute"}, "sql": sql} | transform,
    }


@pytest.mark.parametrize("width", [1, 3], ids=["tumbling", "sliding"])
def test_late_rows_are_counted_as_a_recomputation_counts_them(
    spark: Any, broker: KafkadProcess, backlog: list[Row], tmp_path: Path, width: int
) -> None:
    step = "" if width == 1 else ", '1 minute'"
    sql = f"SELECT window.start AS start, count(*) AS n FROM source GROUP BY window(at, '{width} minutes'{step})"
    front, sink, checkpoint = Front(), Kept(), tmp_path / "checkpoint"
    plan = live_plan(broker.bootstrap, "late", 2, _blocks(sql), checkpoint)
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"

    batches = front.of(Batch)
    late = [batch.late for batch in batches]
    assert late == recomputed(checkpoint, backlog, width * MINUTE, MINUTE)
    assert sum(late) > ROWS / 10
    assert sum(batch.rows_read for batch in batches) == ROWS + TIMELESS
    assert sum(batch.bad for batch in batches) == sum(not row.good for row in backlog)
    assert any(f"{TIMELESS} rows have no at" in warned.text for warned in front.of(Warned))
    (left,) = front.of(OpenWindows)
    opened = datetime.fromisoformat(left.first.split("/")[0]).timestamp()
    assert left.groups == batches[-1].open_groups > 0
    if width == 1:  # each row is written, late, or waits
        waiting = sum(row.good and row.second >= opened for row in backlog)
        assert sum(row.n for row in sink.rows) + sum(late) + waiting == sum(row.good for row in backlog)


def test_duplicates_within_a_time_are_counted_and_late_ones_too(
    spark: Any, broker: KafkadProcess, backlog: list[Row], tmp_path: Path
) -> None:
    del backlog  # its topic is another
    records = [(0, None, json.dumps({"id": at % 400, "at": _iso(BEGIN + at)}).encode()) for at in range(3000)]
    records += [(0, None, json.dumps({"id": 5000 + at, "at": _iso(BEGIN)}).encode()) for at in range(30)]
    produced(broker.bootstrap, "twice", records, partitions=1)
    blocks = _blocks("SELECT id, at FROM source", deduplicate={"keys": ["id"], "within": "10 minutes"})
    front, sink = Front(), Kept()
    plan = live_plan(broker.bootstrap, "twice", 1, blocks, tmp_path / "checkpoint")
    assert run(spark, plan, front, edges_of(spark, plan, sink)) == "done"
    batches = front.of(Batch)
    duplicates, late = sum(batch.duplicates for batch in batches), sum(batch.late for batch in batches)
    assert late == 30
    assert len(sink.rows) + duplicates + late == len(records)
    assert len({row.id for row in sink.rows}) == 400
    assert duplicates > 1000
