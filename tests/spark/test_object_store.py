"""Jobs with real Spark whose files, tables and checkpoint are in an object store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.facts import S3A
from kafkad_etl.machine import jars
from kafkad_etl.machine.download import fetched
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import CACHE, SparkReady
from tests.spark.object_store import ObjectStore
from tests.spark.test_kills import Run, processes

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1200)]

ROWS = 12_000
JOB = """version: 1
name: TOPIC
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [TOPIC], rows_per_batch: 2000}
value: {format: json, schema: "id BIGINT"}
transform: {sql: "SELECT id, id % 3 AS part FROM source"}
s3: {endpoint: "ENDPOINT"}
sink: {type: parquet, path: s3a://lake/orders, partition_by: [part]}
run: {checkpoint: s3a://lake/checkpoints/orders, retries: {max: 0}}
spark: {master: "local[2]", driver_memory: 700m}
"""


COMPACT = (sys.executable, "-m", "kctl", "etl", "compact", "job.yaml")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path / "moto.log") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        yield store


@pytest.fixture
def directory(
    spark_ready: SparkReady,
    on_broker: Kctl,
    broker: KafkadProcess,
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    fetched(jars.set_of(S3A, spark_ready.version), CACHE / "jars", os.environ)
    topic = f"store-{time.monotonic_ns()}"
    (tmp_path / "records").write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS)))
    assert on_broker("topics", "create", topic, "--partitions", 2, "-y").code == 0
    assert on_broker("produce", topic, "--file", tmp_path / "records").code == 0
    text = JOB.replace("TOPIC", topic).replace("BOOTSTRAP", broker.bootstrap).replace("ENDPOINT", store.url)
    (tmp_path / "job.yaml").write_text(text)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def ids(rows: list[dict[str, Any]]) -> Counter[int]:
    return Counter(row["id"] for row in rows)


def test_rows_are_there_once_whatever_is_lost(
    directory: Path, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run()
    run.until("batch")
    lines = list(processes(directory).values())
    assert not any(store.secret in words or store.key in words for words in lines)
    store.shut()
    code, said = run.end()
    assert code == EtlExit.CLUSTER, said
    assert "the object store is not responding" in said

    code, said = Run().end()
    assert code == EtlExit.CLUSTER, said
    assert f"the object store {store.url} is not responding" in said
    store.open()

    run = Run()
    run.until("batch")
    jvm = next(pid for pid, words in processes(directory).items() if "SparkSubmit" in words)
    os.kill(jvm, signal.SIGKILL)
    assert run.end()[0] == EtlExit.FAILED

    code, said = Run().end()
    assert code == EtlExit.DONE, said
    assert ids(store.rows("orders")) == Counter(range(ROWS))
    left = [key for key in store.objects(".orders-etl-staging") if not key.endswith("/")]
    assert left == []
    logs = "".join(path.read_text() for path in (directory / ".etl/logs").iterdir())
    assert store.secret not in logs

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-that-one")
    code, said = Run().end()
    assert code == EtlExit.CLUSTER, said
    assert "the object store does not accept the keys" in said
    assert "not-that-one" not in said


TABLES = {
    "delta": "sink: {type: delta, path: s3a://lake/orders, mode: MODE, keys: [id], compact: {min_files: 2}}",
    "iceberg": "sink: {type: iceberg, path: s3a://lake, mode: MODE, keys: [id], compact: {min_files: 2}, "
    "iceberg: {table: shop.orders}}",
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("table", TABLES)
def test_rows_of_a_table_are_there_once_and_it_has_one_writer(
    directory: Path, store: ObjectStore, spark_ready: SparkReady, table: str, mode: str
) -> None:
    """The JVM is killed, the store goes away; merging its files is refused while the job runs, and then done."""
    fetched(jars.set_of(table, spark_ready.version), CACHE / "jars", os.environ)
    job = directory / "job.yaml"
    sink = TABLES[table].replace("MODE", mode)
    if mode == "append":
        sink = sink.replace("keys: [id], ", "")
    lines = job.read_text().splitlines()
    job.write_text("\n".join(sink if line.startswith("sink:") else line for line in lines) + "\n")

    run = Run()
    run.until("batch")
    merging = subprocess.run([*COMPACT], capture_output=True, text=True, check=False, timeout=120)
    assert merging.returncode == EtlExit.CHECKPOINT, merging.stdout + merging.stderr
    assert "another run of this job is in progress" in merging.stderr
    jvm = next(pid for pid, words in processes(directory).items() if "SparkSubmit" in words)
    os.kill(jvm, signal.SIGKILL)
    assert run.end()[0] == EtlExit.FAILED

    run = Run()
    run.until("batch")
    store.shut()
    code, said = run.end()
    assert code == EtlExit.CLUSTER, said
    store.open()

    code, said = Run().end()
    assert code == EtlExit.DONE, said
    assert ids(store.table(table)) == Counter(range(ROWS))
    merging = subprocess.run([*COMPACT], capture_output=True, text=True, check=False, timeout=240)
    assert merging.returncode == EtlExit.DONE, merging.stdout + merging.stderr
    assert ids(store.table(table)) == Counter(range(ROWS))
