"""SIGKILL for Spark and the driver at any moment, again and again; then the job runs to its end, and rows are counted
by a reader that knows nothing of how they were written."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkad_etl.machine import environment
from kafkad_etl.messages import Batch, Ended, Event, OpenWindows, Plan, Query
from kafkad_etl.process.launching import launch
from kafkad_etl.process.logs import Log
from tests.broker import KafkadProcess
from tests.spark import delta
from tests.spark.conftest import SparkReady
from tests.spark.driver.rows import live_plan, produced
from tests.spark.iceberg import rows_in

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(1500)]

ROWS = 12_000
BEGIN = 1_760_000_040
ONE, THREE = (pytest.param(kills, marks=pytest.mark.long) for kills in (1, 3))
"""The number of times that a job is killed before it may end."""
SPARK = {"driver_memory": "700m", "master": "local[2]"}


@pytest.fixture(scope="module")
def topic(broker: KafkadProcess) -> str:
    """A row for each second, in the order of time."""
    records = []
    for at in range(ROWS):
        moment = datetime.fromtimestamp(BEGIN + at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        records.append((at % 2, None, json.dumps({"id": at, "at": moment}).encode()))
    produced(broker.bootstrap, "killed", records, partitions=2)
    return "killed"


class Moment(NamedTuple):
    batches: int
    seconds: float
    """After so many batches of a run."""


def _run(plan: Plan, log: Path, kill: Moment | None) -> list[Event]:
    events: list[Event] = []
    deadline = None
    with launch(environment.find(plan.job), [plan], Log(log)) as launched:
        for event in launched.events():
            if event is not None and event.event is not None:
                events.append(event.event)
            begun = any(isinstance(each, Query) for each in events)
            batches = sum(isinstance(each, Batch) for each in events)
            if kill is not None and deadline is None and begun and batches >= kill.batches:
                deadline = time.monotonic() + kill.seconds
            if deadline is not None and time.monotonic() >= deadline:
                launched.kill()
                break
    return events


def _killed_again_and_again(plan: Plan, log: Path, seed: int, kills: int) -> list[Event]:
    """The last run's events, which comes to its end; a fast one may do so before its turn to be killed has come."""
    moments = random.Random(seed)
    for number in range(kills):
        events = _run(plan, log, Moment(moments.randrange(4), moments.uniform(0, 3)))
        if any(isinstance(event, Ended) for event in events):
            assert number > 0, "it was over before it was killed"
            return events
    events = _run(plan, log, None)
    assert isinstance(events[-1], Ended), events[-1]
    return events


def _counted(query: str) -> Any:
    import duckdb

    return duckdb.sql(query).fetchall()


@pytest.mark.parametrize("kills", [ONE, THREE])
def test_files_have_every_row_once(
    spark_ready: SparkReady, broker: KafkadProcess, topic: str, tmp_path: Path, kills: int
) -> None:
    blocks = {
        "source": {"topics": [topic], "rows_per_batch": 600},
        "value": {"format": "json", "schema": "id BIGINT, at TIMESTAMP"},
        "sink": {"type": "parquet", "path": str(tmp_path / "lake")},
        "spark": SPARK,
    }
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    _killed_again_and_again(plan, tmp_path / "log", seed=1, kills=kills)
    files = f"'{tmp_path}/lake/**/*.parquet'"
    assert _counted(f"SELECT count(*), count(DISTINCT id), max(id) FROM {files}") == [(ROWS, ROWS, ROWS - 1)]


@pytest.mark.parametrize("kills", [ONE, THREE])
def test_a_table_of_iceberg_has_every_row_once(
    spark_ready: SparkReady, broker: KafkadProcess, topic: str, tmp_path: Path, kills: int
) -> None:
    blocks = {
        "source": {"topics": [topic], "rows_per_batch": 600},
        "value": {"format": "json", "schema": "id BIGINT, at TIMESTAMP"},
        "sink": {"type": "iceberg", "path": str(tmp_path / "lake"), "iceberg": {"table": "shop.killed"}},
        "spark": SPARK,
    }
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    _killed_again_and_again(plan, tmp_path / "log", seed=4, kills=kills)
    ids = [row["id"] for row in rows_in(tmp_path / "lake/shop/killed")]
    assert (len(ids), set(ids)) == (ROWS, set(range(ROWS)))


@pytest.mark.parametrize("kills", [ONE, THREE])
def test_a_table_of_delta_has_every_row_once(
    spark_ready: SparkReady, broker: KafkadProcess, topic: str, tmp_path: Path, kills: int
) -> None:
    blocks = {
        "source": {"topics": [topic], "rows_per_batch": 600},
        "value": {"format": "json", "schema": "id BIGINT, at TIMESTAMP"},
        "sink": {"type": "delta", "path": str(tmp_path / "table")},
        "spark": SPARK,
    }
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    _killed_again_and_again(plan, tmp_path / "log", seed=5, kills=kills)
    ids = [row["id"] for row in delta.rows_in(tmp_path / "table")]
    assert (len(ids), set(ids)) == (ROWS, set(range(ROWS)))


@pytest.mark.parametrize("kills", [1, THREE])
def test_windows_are_complete_and_written_once(
    spark_ready: SparkReady, broker: KafkadProcess, topic: str, tmp_path: Path, kills: int
) -> None:
    blocks = {
        "source": {"topics": [topic], "rows_per_batch": 1200},
        "value": {"format": "json", "schema": "id BIGINT, at TIMESTAMP"},
        "transform": {
            "watermark": {"column": "at", "delay": "1 minute"},
            "sql": "SELECT window.start AS start, count(*) AS n FROM source GROUP BY window(at, '1 minute')",
        },
        "sink": {"type": "parquet", "path": str(tmp_path / "counts")},
        "spark": SPARK,
    }
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    events = _killed_again_and_again(plan, tmp_path / "log", seed=2, kills=kills)
    assert all(event.late == 0 for event in events if isinstance(event, Batch))
    (left,) = [event for event in events if isinstance(event, OpenWindows)]
    first_open = datetime.fromisoformat(left.first.split("/")[0])
    closed = (first_open - datetime.fromtimestamp(BEGIN, UTC)).total_seconds() // 60
    files = f"'{tmp_path}/counts/**/*.parquet'"
    query = f"SELECT count(*), count(DISTINCT start), min(n), max(n) FROM {files}"
    assert _counted(query) == [(closed, closed, 60, 60)]
    assert closed > ROWS / 60 - 5


@pytest.mark.parametrize("kills", [ONE, THREE])
def test_a_topic_lacks_no_row_and_says_where_each_came_from(
    spark_ready: SparkReady, broker: KafkadProcess, topic: str, tmp_path: Path, kills: int
) -> None:
    out = f"killed-{kills}.out"
    produced(broker.bootstrap, out, [], partitions=1)
    blocks = {
        "source": {"topics": [topic], "rows_per_batch": 600},
        "sink": {"type": "topic", "topic": {"topic": out, "format": "raw", "source_header": True}},
        "spark": SPARK,
    }
    plan = live_plan(broker.bootstrap, topic, 2, blocks, tmp_path / "checkpoint")
    _killed_again_and_again(plan, tmp_path / "log", seed=3, kills=kills)
    found = _consumed(broker.bootstrap, out)
    assert {json.loads(value)["id"] for value, _ in found} == set(range(ROWS))
    assert len({source for _, source in found}) == ROWS


def _consumed(bootstrap: str, topic: str) -> list[tuple[bytes, bytes]]:
    """Values, and what the header says of where they came from."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "killed"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[bytes, bytes]] = []
    while len(found) < end:
        found += [(it.value(), dict(it.headers())["source"]) for it in consumer.consume(5000, timeout=20)]
    consumer.close()
    return found
