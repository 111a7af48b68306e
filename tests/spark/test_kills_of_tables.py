"""Jobs that write tables of a lake, of which any process is killed at any moment, twenty times in a row; then rows are
counted by a reader that knows nothing of Spark."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from kafkad_etl.errors import EtlExit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark import delta, iceberg
from tests.spark.conftest import SparkReady
from tests.spark.test_kills import Run, processes, wait_for_none

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(2400)]

ROWS, KEYS, KILLS = 20_000, 500, 20
PARTITIONS = 2
JOB = """version: 1
name: TOPIC
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [TOPIC], rows_per_batch: 100}
value: {format: json, schema: "id BIGINT"}
transform: {sql: "SELECT id, id % KEYS AS key, _offset FROM source"}
sink: {SINK}
spark: {master: "local[2]", driver_memory: 700m}
"""


class Sink(NamedTuple):
    block: str
    rows: Callable[[Path], list[dict[str, Any]]]
    """Of the table below a directory."""


SINKS = {
    "iceberg": Sink(
        "type: iceberg, path: lake, iceberg: {table: shop.orders}", lambda at: iceberg.rows_in(at / "lake/shop/orders")
    ),
    "delta": Sink("type: delta, path: table", lambda at: delta.rows_in(at / "table")),
}


def job(sink: Sink, *, upsert: bool, topic: str, bootstrap: str) -> str:
    block = f"{sink.block}, mode: upsert, keys: [key]" if upsert else sink.block
    text = JOB.replace("SINK", block).replace("KEYS", str(KEYS))
    return text.replace("TOPIC", topic).replace("BOOTSTRAP", bootstrap)


@pytest.fixture
def topic(on_broker: Kctl, broker: KafkadProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """All records with one key are in one partition, so that their offsets say which is the newest."""
    topic = f"kills-{time.monotonic_ns()}"
    assert on_broker("topics", "create", topic, "--partitions", PARTITIONS, "-y").code == 0
    for partition in range(PARTITIONS):
        records = tmp_path / f"records-{partition}"
        records.write_text("".join(f'{{"id": {number}}}\n' for number in range(partition, ROWS, PARTITIONS)))
        assert on_broker("produce", topic, "--partition", partition, "--file", records).code == 0
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return topic


def kill_one(run: Run, directory: Path, random: Random) -> None:
    """The front, the driver, Spark, or a process that one of them has started."""
    victim = random.choice([run.process.pid, *sorted(processes(directory))])
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        run.process.kill()


def killed_run(directory: Path, random: Random) -> None:
    run = Run()
    try:
        for _ in range(random.randrange(3)):
            run.until("batch")
        time.sleep(random.uniform(0, 4))
        assert run.process.poll() is None, "it was over before it was killed"
        kill_one(run, directory, random)
        run.end()
    finally:
        run.process.kill()
        run.end()
    wait_for_none(directory)
    for lock in directory.glob(".etl/*.lock"):  # what was just being started may still hold it
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)


@pytest.mark.parametrize("upsert", [False, True], ids=["append", "upsert"])
@pytest.mark.parametrize("name", SINKS)
def test_every_row_is_there_once_whatever_was_killed(
    spark_ready: SparkReady, broker: KafkadProcess, topic: str, tmp_path: Path, name: str, upsert: bool
) -> None:
    sink = SINKS[name]
    (tmp_path / "job.yaml").write_text(job(sink, upsert=upsert, topic=topic, bootstrap=broker.bootstrap))
    random = Random(f"{name} {upsert}")
    for _ in range(KILLS):
        killed_run(tmp_path, random)
    run = Run()
    run.until("summary")  # however many batches are left
    code, said = run.end()
    assert code == EtlExit.DONE, said
    ids = sorted(row["id"] for row in sink.rows(tmp_path))
    assert ids == list(range(ROWS - KEYS, ROWS) if upsert else range(ROWS))
