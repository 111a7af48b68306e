"""Sinks as a user meets them: `kctl etl run` and `kctl etl compact`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, Ran
from tests.spark.conftest import SparkReady
from tests.spark.driver.rows import IN_PROCESS
from tests.spark.driver.sinks.postgres import Postgres, missing

pytestmark = [*IN_PROCESS, pytest.mark.timeout(900)]

LAKE = """\
version: 1
name: lake
source: {topics: [e2e-lake], rows_per_batch: 20}
value: {format: json, schema: "id BIGINT, day STRING"}
sink: {type: parquet, path: lake, partition_by: [day], compact: {after: run, min_files: 3}}
transform: {sql: "SELECT id, day FROM source"}
spark: {master: "local[2]", driver_memory: 700m}
"""
TABLE = """\
version: 1
name: table
source: {topics: [e2e-table], rows_per_batch: 40}
value: {format: json, schema: "id BIGINT, name STRING"}
transform: {sql: "SELECT id, name, _offset FROM source"}
sink:
  type: jdbc
  jdbc: {url: "${url}", table: people, user: postgres, password: "${env:PW}", mode: upsert, keys: [id]}
vars: {url: ""}
spark: {master: "local[2]", driver_memory: 700m}
"""
SHOWN = """\
version: 1
name: shown
kafka: {bootstrap: [BOOTSTRAP], options: {ssl.keystore.key: "${env:PW}"}}
source: {topics: [e2e-shown]}
value: {format: json, schema: "id BIGINT", bad_rows: {action: dead_letter, topic: e2e-shown-bad}}
sink: {type: topic, topic: {topic: e2e-shown-out}}
spark:
  master: "local[2]"
  driver_memory: 700m
  conf:
    spark.eventLog.enabled: true
    spark.eventLog.compress: false
    spark.eventLog.dir: EVENTS
    spark.redaction.regex: e2e-shown-bad
    spark.sql.catalog.lake.credential: "id:${env:PW}"
    spark.own.pin: "${env:PW}"
"""

Etl = Callable[..., Ran]


@pytest.fixture
def in_own_process(spark_ready: SparkReady, broker: KafkadProcess) -> Etl:
    def call(*words: str) -> Ran:
        command = [sys.executable, "-m", "kctl", "etl", *words]
        environment = {**os.environ, "KCTL_BOOTSTRAP": broker.bootstrap, "PW": "not-to-be-seen"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=400, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def in_shared_spark(shared_spark: object, kctl: Kctl, broker: KafkadProcess, monkeypatch: pytest.MonkeyPatch) -> Etl:
    monkeypatch.setenv("KCTL_BOOTSTRAP", broker.bootstrap)
    return lambda *words: kctl("etl", *words)


@pytest.fixture(params=["in_shared_spark", pytest.param("in_own_process", marks=pytest.mark.long)])
def etl(request: pytest.FixtureRequest) -> Etl:
    made: Etl = request.getfixturevalue(request.param)
    return made


def produce(kctl: Kctl, topic: str, rows: list[dict[str, Any]], directory: Path) -> None:
    if kctl("topics", "describe", topic).code:
        assert kctl("topics", "create", topic, "--partitions", 2, "--yes").code == 0
    file = directory / "rows"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert kctl("produce", topic, "--file", file, "--partitioner", "round-robin").code == 0


def lake(directory: Path) -> tuple[int, int]:
    """Rows, and different ones, as a reader sees them that knows nothing of Spark."""
    import duckdb

    found = duckdb.sql(f"SELECT count(*), count(DISTINCT id) FROM '{directory}/lake/*/*.parquet'").fetchall()
    return (int(found[0][0]), int(found[0][1]))


def test_small_files_are_merged_after_a_run_and_by_the_command(etl: Etl, on_broker: Kctl, tmp_path: Path) -> None:
    (tmp_path / "lake.yaml").write_text(LAKE)
    produce(on_broker, "e2e-lake", [{"id": n, "day": f"d{n // 2 % 2}"} for n in range(100)], tmp_path)
    ran = etl("run", "lake.yaml")
    assert ran.code == 0, ran.err
    assert ran.err.count("merged ") == 2, ran.err
    assert lake(tmp_path) == (100, 100)
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2
    produce(on_broker, "e2e-lake", [{"id": n, "day": f"d{n // 2 % 2}"} for n in range(100, 160)], tmp_path)
    ran = etl("run", "lake.yaml", "--set", "sink.compact.after=never")
    assert ran.code == 0, ran.err
    assert lake(tmp_path) == (160, 160)
    ran = etl("compact", "lake.yaml", "-o", "json")
    assert ran.code == 0, ran.err
    merged = json.loads(ran.out)["items"]
    assert [(it["directory"], it["rows"], it["files_after"]) for it in merged] == [("day=d0", 80, 1), ("day=d1", 80, 1)]
    assert lake(tmp_path) == (160, 160)
    assert len(list((tmp_path / "lake").rglob("*.parquet"))) == 2


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_table_has_the_newest_row_of_each_key(in_own_process: Etl, on_broker: Kctl, tmp_path: Path) -> None:
    (tmp_path / "table.yaml").write_text(TABLE)
    produce(on_broker, "e2e-table", [{"id": n % 50, "name": f"n{n}"} for n in range(100)], tmp_path)
    with Postgres(tmp_path / "postgres") as postgres:
        postgres.sql("CREATE TABLE people (id BIGINT PRIMARY KEY, name TEXT)")
        ran = in_own_process("run", "table.yaml", "--var", f"url={postgres.url}")
        assert ran.code == 0, ran.err
        assert "not-to-be-seen" not in ran.err + ran.out
        assert postgres.sql("SELECT count(*), count(*) FILTER (WHERE name = 'n' || (id + 50)) FROM people") == "50|50"
        assert postgres.sql("SELECT sum(next_offset) FROM kafkad_etl_offsets") == "100"
        ran = in_own_process("run", "table.yaml", "--var", f"url={postgres.url}", "--set", "sink.jdbc.table=nobody")
        assert ran.code == 7, "another table under the same checkpoint"
        logs = "".join(path.read_text() for path in tmp_path.rglob("*.log"))
        assert "not-to-be-seen" not in logs


def test_spark_writes_no_secret_into_its_event_log(
    in_own_process: Etl, on_broker: Kctl, broker: KafkadProcess, tmp_path: Path
) -> None:
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "shown.yaml").write_text(SHOWN.replace("BOOTSTRAP", broker.bootstrap).replace("EVENTS", str(events)))
    for topic in ("e2e-shown-out", "e2e-shown-bad"):
        assert on_broker("topics", "create", topic, "--partitions", 1, "--yes").code == 0
    produce(on_broker, "e2e-shown", [{"id": n} for n in range(9)] + [{"id": "none"}], tmp_path)
    ran = in_own_process("run", "shown.yaml")
    assert ran.code == 0, ran.err
    assert "10 rows read, 9 written, 1 bad" in ran.err
    log = "".join(path.read_text() for path in events.rglob("events_*"))
    assert "SQLExecutionStart" in log
    assert "not-to-be-seen" not in log
    assert "e2e-shown-bad" not in log
