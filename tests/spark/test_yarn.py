"""Jobs on a real YARN, with files and checkpoint in a real HDFS: what users see when it works, and when it does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.errors import EtlExit
from kafkad_etl.machine.download import fetched
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import CACHE, SparkReady
from tests.spark.hadoop import JARS, Hadoop
from tests.spark.test_kills import Run, processes, wait_for_none
from tests.spark.test_shipped_jobs import rows

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]

ROWS = 6000
JOB = """version: 1
name: NAME
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [NAME], rows_per_batch: 1500}
value: {format: json, schema: "id BIGINT", bad_rows: {action: dead_letter, topic: NAME-dlq}}
sink: {type: parquet, path: HDFS/lake/NAME}
run: {checkpoint: HDFS/checkpoints/NAME}
spark:
  master: yarn
  driver_memory: 700m
  executor_memory: 512m
  conf:
    spark.executor.instances: 1
    spark.executor.extraJavaOptions: QUICK
    spark.yarn.am.extraJavaOptions: QUICK
    spark.yarn.am.memory: 256m
    spark.yarn.jars: local:JARS/*
    spark.yarn.report.interval: 100ms
    spark.yarn.scheduler.heartbeat.interval-ms: 200
"""


@pytest.fixture(scope="module")
def hadoop(_spark: SparkReady, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hadoop]:
    jars = fetched(JARS, CACHE / "jars", os.environ)
    with Hadoop(tmp_path_factory.mktemp("hadoop"), _spark.home, _spark.java_home, jars) as running:
        yield running


@pytest.fixture
def directory(
    spark_ready: SparkReady,
    hadoop: Hadoop,
    on_broker: Kctl,
    broker: KafkadProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """With job.yaml, and a topic of the job's name."""
    name = f"yarn-{time.monotonic_ns()}"
    text = JOB.replace("NAME", name).replace("BOOTSTRAP", broker.bootstrap).replace("HDFS", hadoop.url)
    text = text.replace("JARS", str(spark_ready.home / "jars")).replace("QUICK", os.environ["SPARK_SUBMIT_OPTS"])
    (tmp_path / "job.yaml").write_text(text)
    (tmp_path / "name").write_text(name)
    assert on_broker("topics", "create", name, "--partitions", 2, "-y").code == 0
    assert on_broker("topics", "create", f"{name}-dlq", "--partitions", 1, "-y").code == 0
    produce(on_broker, tmp_path, [f'{{"id": {number}}}' for number in range(ROWS)] + ["no JSON"])
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hadoop.conf))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def produce(on_broker: Kctl, directory: Path, values: list[str]) -> None:
    (directory / "records").write_text("".join(f"{value}\n" for value in values))
    words = ("--file", directory / "records", "--partitioner", "round-robin")
    assert on_broker("produce", (directory / "name").read_text(), *words).code == 0


def run(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "kctl", "etl", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


def ids(hadoop: Hadoop, directory: Path) -> tuple[Any, ...]:
    """The numbers of rows, of different rows, and of files."""
    name = (directory / "name").read_text()
    copied = hadoop.fetch(f"/lake/{name}", directory / f"copy-{time.monotonic_ns()}")
    (found,) = rows(f"SELECT count(*), count(DISTINCT id) FROM '{copied}/*.parquet'")
    return (*found, len(list(copied.glob("*.parquet"))))


def lags(kctl: Kctl) -> list[int]:
    return [row["lag"] for row in json.loads(kctl("etl", "status", "job.yaml", "-o", "json").out)["items"]]


def wait_for_end(hadoop: Hadoop, name: str) -> str:
    """The final state of the application; YARN needs a moment to see that a driver has gone."""
    end = time.monotonic() + 60
    while (found := hadoop.applications()[name])[0] not in ("FINISHED", "FAILED", "KILLED"):
        assert time.monotonic() < end, found
        time.sleep(0.1)
    return found[1]


def test_rows_are_there_once_whatever_was_killed_and_all_is_known_afterwards(
    directory: Path, hadoop: Hadoop, on_broker: Kctl, kctl: Kctl
) -> None:
    name = (directory / "name").read_text()
    killed = Run()
    try:
        killed.until("batch")
    finally:
        killed.process.kill()  # the front: the driver finishes its batch by itself
        killed.end()
    wait_for_none(directory)
    assert wait_for_end(hadoop, name) == "SUCCEEDED"
    assert 0 < ids(hadoop, directory)[0] < ROWS

    code, said = run("run", "job.yaml", "--", "--master", "yarn", "--deploy-mode", "client", "--queue", "default")
    assert (code, " 1 bad" in said) == (EtlExit.DONE, True), said
    assert wait_for_end(hadoop, name) == "SUCCEEDED"
    assert ids(hadoop, directory)[:2] == (ROWS, ROWS)
    assert "no JSON" in on_broker("consume", f"{name}-dlq").out

    (listed,) = json.loads(kctl("etl", "list", "-o", "json").out)["items"]
    places = (f"{hadoop.url}/checkpoints/{name}", f"parquet {hadoop.url}/lake/{name}")
    assert (listed["checkpoint"], listed["sink"]) == places
    assert "the last run from this machine left it at batch" in kctl("etl", "status", "job.yaml").out
    assert lags(kctl) == [0, 0]
    assert not (directory / "lake").exists() and not list(directory.glob("**/_temporary"))

    produce(on_broker, directory, [f'{{"id": {number}}}' for number in range(ROWS, ROWS + 10)])
    assert lags(kctl) == [5, 5]
    code, said = run("run", "job.yaml", "--master", "local[1]")
    assert (code, "10 rows read, 10 written" in said) == (EtlExit.DONE, True), said
    code, said = run("compact", "job.yaml", "--master", "local[1]", "--min-files", "2")
    assert code == EtlExit.DONE, said
    assert ids(hadoop, directory) == (ROWS + 10, ROWS + 10, 1)

    hadoop.remove(f"/checkpoints/{name}")
    code, said = run("run", "job.yaml", "--master", "local[1]")
    assert code == EtlExit.CHECKPOINT, said
    assert "is incomplete: batch" in said and "but it now has no batches" in said


def test_what_yarn_refuses_is_said_as_yarn_says_it(directory: Path) -> None:
    code, said = run("run", "job.yaml", "--set", "spark.executor_memory=64g")
    assert code == EtlExit.FAILED, said
    assert "error: Required executor memory (65536 MB)" in said
    assert processes(directory) == {}
