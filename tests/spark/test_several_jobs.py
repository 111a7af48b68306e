"""Three jobs in one real Spark: one ends, one fails, and one goes on until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafkad_etl.errors import EtlExit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import SparkReady

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

ROWS = 1000
JOB = """version: 1
name: NAME
kafka: {bootstrap: [BOOTSTRAP]}
source: {topics: [TOPIC]}
value: {format: json, schema: "id BIGINT"}
spark: {master: "local[2]", driver_memory: 700m, conf: {spark.sql.session.timeZone: ZONE}}
"""
ZONED = "transform: {sql: \"SELECT id, date_format(timestamp_millis(0), 'HH') AS hour FROM source\"}\n"
FAILING = "transform: {sql: SELECT id / (id - 7) AS id FROM source}\n"
KINDS = {
    "ends": ("UTC", ZONED + "sink: {type: json, path: ends}\n"),
    "fails": ("UTC", FAILING + "sink: {type: json, path: fails}\n"),
    "lasts": ("Asia/Tokyo", ZONED + "sink: {type: json, path: lasts}\nrun: {mode: continuous, every: 100ms}\n"),
}


@pytest.fixture
def topic(spark_ready: SparkReady, on_broker: Kctl, broker: KafkadProcess, tmp_path: Path) -> str:
    topic = f"several-{time.monotonic_ns()}"
    (tmp_path / "records").write_text("".join(f'{{"id": {number}}}\n' for number in range(ROWS)))
    assert on_broker("topics", "create", topic, "--partitions", 2, "-y").code == 0
    assert on_broker("produce", topic, "--file", tmp_path / "records").code == 0
    for name, (zone, rest) in KINDS.items():
        text = JOB.replace("NAME", name).replace("BOOTSTRAP", broker.bootstrap).replace("TOPIC", topic)
        (tmp_path / f"{name}.yaml").write_text(text.replace("ZONE", zone) + rest)
    return topic


def written(directory: Path) -> list[tuple[int, str]]:
    lines = [line for path in directory.glob("*.json") for line in path.read_text().splitlines()]
    return sorted((row["id"], row["hour"]) for row in map(json.loads, lines))


def test_each_ends_in_its_own_way(topic: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "kctl", "etl", "run", *(f"{name}.yaml" for name in KINDS), "-o", "json"]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    ended: set[str] = set()
    batches: set[str] = set()
    told = []
    try:
        for line in run.stdout:
            event = json.loads(line)
            told.append(event)
            ended |= {event["job"]} if event["type"] == "summary" else set()
            batches |= {event["job"]} if event["type"] == "batch" else set()
            if ended == {"ends", "fails"} and batches == {"ends", "lasts"}:
                run.send_signal(signal.SIGINT)
                break
        out, err = run.communicate(timeout=120)
    finally:
        run.kill()
        run.communicate()
    told += map(json.loads, out.splitlines())
    assert run.returncode == EtlExit.FAILED, err
    ends = {event["job"]: event["outcome"] for event in told if event["type"] == "summary"}
    assert ends == {"ends": "done", "fails": "failed", "lasts": "interrupted"}, err
    assert len({event["application"] for event in told if event["type"] == "started"}) == 1
    assert written(tmp_path / "ends") == [(number, "00") for number in range(ROWS)]
    assert written(tmp_path / "lasts") == [(number, "09") for number in range(ROWS)]
    assert not (tmp_path / "fails").exists() or not list((tmp_path / "fails").glob("*.json"))
