"""Each job of spark/jobs, as it is shipped, on Spark against kafkad."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import SparkReady

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(600)]

JOBS = Path(__file__).parents[2] / "spark" / "jobs"
COLUMNS = "id BIGINT, customer STRING, amount DECIMAL(12,2), at TIMESTAMP"

Run = Callable[..., str]


def lines(count: int, *, first: int = 0, day: int = 1) -> list[str]:
    return [
        json.dumps({"id": i, "customer": f" C{i % 7}", "amount": i + 0.5, "at": f"2026-11-0{day}T12:{i % 60:02d}:00Z"})
        for i in range(first, first + count)
    ]


@pytest.fixture
def run(spark_ready: SparkReady, broker: KafkadProcess) -> Run:
    """A shipped job in a process of its own, as a user starts it; what it says at the end."""

    def call(name: str, *words: str) -> str:
        small = ["--master", "local[2]", "--set", "spark.driver_memory=700m"]
        command = [sys.executable, "-m", "kctl", "etl", "run", str(JOBS / f"{name}.yaml"), *small, *words]
        environment = {**os.environ, "KCTL_BOOTSTRAP": broker.bootstrap}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return call


@pytest.fixture
def fill(on_broker: Kctl, tmp_path: Path) -> Callable[..., None]:
    def call(topic: str, values: list[str], partitions: int = 2) -> None:
        if on_broker("topics", "describe", topic).code:
            assert on_broker("topics", "create", topic, "--partitions", partitions, "--yes").code == 0
        file = tmp_path / "lines"
        file.write_text("".join(f"{value}\n" for value in values))
        assert on_broker("produce", topic, "--file", file, "--partitioner", "round-robin").code == 0

    return call


def consumed(kctl: Kctl, topic: str) -> list[dict[str, Any]]:
    ran = kctl("consume", topic, "-o", "json")
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def rows(query: str) -> list[tuple[Any, ...]]:
    import duckdb

    return duckdb.sql(query).fetchall()


def test_topic_to_parquet_goes_on_where_it_ended(run: Run, fill: Callable[..., None], tmp_path: Path) -> None:
    words = ["--var", "topic=shipped-lake", "--var", f"path={tmp_path}/lake"]
    fill("shipped-lake", [*lines(50), *lines(30, first=50, day=2), "no JSON"])
    assert "81 rows read, 80 written, 1 bad" in run("topic-to-parquet", *words)
    fill("shipped-lake", lines(20, first=80, day=2))
    assert "20 rows read, 20 written, 0 bad" in run("topic-to-parquet", *words)
    found = rows(
        f"SELECT day, count(*), count(DISTINCT id) FROM '{tmp_path}/lake/**/*.parquet' GROUP BY day ORDER BY day"
    )
    assert [(str(day), count, distinct) for day, count, distinct in found] == [
        ("2026-11-01", 50, 50),
        ("2026-11-02", 50, 50),
    ]


def test_parquet_to_topic(run: Run, on_broker: Kctl, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows_ = "SELECT i AS id, 'c' AS customer, i::DECIMAL(12,2) AS amount, TIMESTAMP '2026-11-01' AS at, 'd' AS day"
    import duckdb

    duckdb.sql(f"{rows_} FROM range(40) t(i)").write_parquet(str(tmp_path / "in" / "a.parquet"))
    run("parquet-to-topic", "--var", f"path={tmp_path}/in", "--var", "topic=shipped-from-files")
    found = consumed(on_broker, "shipped-from-files")
    assert sorted(int(record["key"]) for record in found) == list(range(40))


def test_json_clean_to_topic(run: Run, fill: Callable[..., None], on_broker: Kctl) -> None:
    wrong = ["no JSON", '{"id": 1, "other": 2}', '{"customer": "no id"}', '{"id": "x"}']
    fill("shipped-raw", [*lines(30), *wrong])
    assert on_broker("topics", "create", "shipped-dead", "--partitions", 1, "--yes").code == 0
    words = ["--var", "from=shipped-raw", "--var", "to=shipped-clean", "--var", "dead=shipped-dead"]
    assert "34 rows read, 30 written, 4 bad" in run("json-clean-to-topic", *words)
    dead = consumed(on_broker, "shipped-dead")
    assert sorted(record["value"] for record in dead) == sorted(wrong)
    names = {header["key"] if isinstance(header, dict) else header[0] for header in _headers(dead[0])}
    assert {"error", "column", "job", "topic", "partition", "offset", "timestamp"} <= names
    clean = consumed(on_broker, "shipped-clean")
    assert {json.loads(record["value"])["customer"] for record in clean} == {f"c{i}" for i in range(7)}
    assert len(clean) == 30


def _headers(record: dict[str, Any]) -> list[Any]:
    headers = record["headers"]
    return list(headers.items()) if isinstance(headers, dict) else headers


def test_windowed_counts_names_what_is_open(run: Run, fill: Callable[..., None], on_broker: Kctl) -> None:
    fill("shipped-windows", [*lines(60), *lines(5)], partitions=1)
    words = ["--var", "topic=shipped-windows", "--var", "to=shipped-minutes", "--mode", "available-now"]
    said = run("windowed-counts", *words)
    assert "65 rows read" in said
    assert "5 duplicates" in said
    minutes = {
        record["key"]: json.loads(record["value"])["orders"] for record in consumed(on_broker, "shipped-minutes")
    }
    assert minutes == {f"2026-11-01 12:{minute:02d}": 1 for minute in range(49)}  # 12:59 less ten minutes
    assert "open" in said


def test_topic_copy_between_clusters(
    run: Run, fill: Callable[..., None], on_broker: Kctl, broker: KafkadProcess
) -> None:
    fill("shipped-original", lines(40))
    assert on_broker("produce", "shipped-original", "--key", "k", "--value", "v", "--header", "h=1").code == 0
    assert on_broker("topics", "create", "shipped-copy", "--partitions", 2, "--yes").code == 0
    clusters = ["--var", f"from={broker.bootstrap}", "--var", f"to={broker.bootstrap}"]
    run(
        "topic-copy-between-clusters",
        *clusters,
        "--var",
        "topic=shipped-original",
        "--set",
        "sink.topic.topic=shipped-copy",
    )

    def content(topic: str) -> list[tuple[Any, ...]]:
        return sorted((one["partition"], str(one["key"]), one["value"]) for one in consumed(on_broker, topic))

    assert content("shipped-copy") == content("shipped-original")
    (with_key,) = (record for record in consumed(on_broker, "shipped-copy") if record["key"] == "k")
    assert len(_headers(with_key)) == 2  # its own, and where it came from


def test_backfill_by_time_may_be_repeated(run: Run, fill: Callable[..., None], tmp_path: Path) -> None:
    fill("shipped-day", [*lines(70), *lines(10)])
    today = datetime.now(UTC).date()
    words = ["--var", "topic=shipped-day", "--var", f"path={tmp_path}/days", "--var", f"day={today}"]
    for _ in range(2):
        run("backfill-by-time", *words, "--var", f"next={today + timedelta(days=1)}")
    found = rows(f"SELECT day::VARCHAR, count(*), sum(orders) FROM '{tmp_path}/days/**/*.parquet' GROUP BY day")
    assert found == [(str(today), 7, 70)]


def _zigzag(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _avro(i: int) -> bytes:
    customer = f"c{i}".encode()
    text = _zigzag(1) + _zigzag(len(customer)) + customer
    return _zigzag(i) + text + struct.pack("<d", i + 0.5) + _zigzag(1_793_534_400_000 + i)


def test_avro_to_csv(run: Run, on_broker: Kctl, tmp_path: Path) -> None:
    assert on_broker("topics", "create", "shipped-avro", "--partitions", 1, "--yes").code == 0
    files = []
    for i in range(5):
        (tmp_path / f"{i}.avro").write_bytes(_avro(i))
        files += ["--file", str(tmp_path / f"{i}.avro")]
    assert on_broker("produce", "shipped-avro", "--whole", *files).code == 0
    run("avro-to-csv", "--var", "topic=shipped-avro", "--var", f"path={tmp_path}/csv")
    found = rows(
        f"SELECT id, customer, amount FROM read_csv('{tmp_path}/csv/*.csv.gz', delim=';', header=true) ORDER BY id"
    )
    assert found == [(i, f"c{i}", i + 0.5) for i in range(5)]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shipped.db")
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount NUMERIC, at TEXT)")
    connection.execute(
        "CREATE TABLE events (topic TEXT, part INTEGER, off INTEGER, customer TEXT, amount NUMERIC, "
        "PRIMARY KEY (topic, part, off))"
    )
    connection.commit()
    yield connection
    connection.close()


def test_topic_to_jdbc_replaces(
    run: Run, fill: Callable[..., None], database: sqlite3.Connection, tmp_path: Path
) -> None:
    words = ["--var", "topic=shipped-table", "--var", f"url=jdbc:sqlite:{tmp_path}/shipped.db"]
    fill("shipped-table", lines(30), partitions=1)
    run("topic-to-jdbc", *words)
    fill("shipped-table", [json.dumps({"id": 3, "customer": "new", "amount": 1, "at": "2026-11-01T00:00:00Z"})])
    run("topic-to-jdbc", *words)
    assert database.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchall() == [(30, 30)]
    assert database.execute("SELECT customer, amount FROM orders WHERE id = 3").fetchall() == [("new", 1)]


def test_exactly_once_by_stored_offset(
    run: Run, fill: Callable[..., None], database: sqlite3.Connection, tmp_path: Path
) -> None:
    """Even when the checkpoint is thrown away, and everything is read again."""
    words = ["--var", "topic=shipped-events", "--var", f"url=jdbc:sqlite:{tmp_path}/shipped.db"]
    fill("shipped-events", lines(30))
    run("exactly-once-by-stored-offset", *words)
    assert "30 rows read" in run("exactly-once-by-stored-offset", *words, "--reset-checkpoint", "--yes")
    found = database.execute("SELECT part, count(*), max(off) - min(off) + 1 FROM events GROUP BY part").fetchall()
    assert [count == span for _, count, span in found] == [True, True]
    assert sum(count for _, count, _ in found) == 30
