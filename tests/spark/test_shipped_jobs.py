"""Each job of spark/jobs, as it is shipped, on Spark: against kafkad, and against real Kafka.

In CI they share one Spark; `make test-long` gives each run a process of its own, as a user does."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kctl.segments.avro import compile_schema
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.oracle.kafka import Kafka
from tests.spark import delta, iceberg_rest
from tests.spark.conftest import SparkReady
from tests.spark.driver.rows import IN_PROCESS
from tests.spark.driver.sinks.postgres import Postgres, missing
from tests.spark.iceberg import rows_of, table_in, table_of_server, table_of_sqlite
from tests.spark.schema_registry import running
from tests.spark.shared_spark import SharedSpark

pytestmark = IN_PROCESS

JOBS = Path(__file__).parents[2] / "spark" / "jobs"
COLUMNS = "id BIGINT, customer STRING, amount DECIMAL(12,2), at TIMESTAMP"

Run = Callable[..., str]
Cluster = KafkadProcess | Kafka
OTHER = {"broker": "kafka", "kafka": "broker"}


class Catalog(NamedTuple):
    type: str
    words: list[str]
    """What `kctl etl run` is told of it."""
    table: Callable[[], Any]


CLUSTERS = ["broker", pytest.param("kafka", marks=pytest.mark.long)]


def lines(count: int, *, first: int = 0, day: int = 1) -> list[str]:
    return [
        json.dumps({"id": i, "customer": f" C{i % 7}", "amount": i + 0.5, "at": f"2026-11-0{day}T12:{i % 60:02d}:00Z"})
        for i in range(first, first + count)
    ]


@pytest.fixture
def kafka(kafka: Kafka, kctl: Kctl, tmp_path: Path) -> Iterator[Kafka]:
    """The worker's, whose topics are deleted after each test: with another Spark the same test fills them again."""
    yield kafka
    listed = kctl("-b", kafka.bootstrap, "topics", "list", "-o", "json")
    assert listed.code == 0, listed.err
    names = [topic["topic"] for topic in json.loads(listed.out)["items"] if topic["topic"].startswith("shipped-")]
    delete = ("topics", "delete", *names, "--yes", "--undo-dir", tmp_path)
    assert not names or kctl("-b", kafka.bootstrap, *delete).code == 0
    for name in names:
        while kctl("-b", kafka.bootstrap, "topics", "create", name, "--dry-run").code:
            time.sleep(0.1)  # it is marked for deletion


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def on_cluster(kctl: Kctl, cluster: Cluster) -> Kctl:
    return lambda *arguments: kctl("-b", cluster.bootstrap, *arguments)


@pytest.fixture(params=["shared", pytest.param("own", marks=pytest.mark.long)])
def run(request: pytest.FixtureRequest) -> Run:
    """A shipped job; what it says at the end."""
    made: Run = request.getfixturevalue(f"run_in_{request.param}_spark")
    return made


def words_of(name: str, words: tuple[str, ...]) -> list[str]:
    small = ["--master", "local[1]", "--set", "spark.driver_memory=700m"]
    return ["etl", "run", str(JOBS / f"{name}.yaml"), *small, *words]


@pytest.fixture
def run_in_own_spark(spark_ready: SparkReady, cluster: Cluster) -> Run:
    """In a process of its own, as a user starts it."""

    def call(name: str, *words: str) -> str:
        command = [sys.executable, "-m", "kctl", *words_of(name, words)]
        environ = {**os.environ, "KCTL_BOOTSTRAP": cluster.bootstrap}
        done = subprocess.run(command, capture_output=True, text=True, env=environ, timeout=500, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    return call


@pytest.fixture
def run_in_shared_spark(
    shared_spark: SharedSpark, kctl: Kctl, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.setenv("KCTL_BOOTSTRAP", cluster.bootstrap)

    def call(name: str, *words: str) -> str:
        ran = kctl(*words_of(name, words))
        assert ran.code == 0, ran.err
        return ran.err

    return call


@pytest.fixture
def fill(on_cluster: Kctl, tmp_path: Path) -> Callable[..., None]:
    def call(topic: str, values: list[str], partitions: int = 2) -> None:
        if on_cluster("topics", "describe", topic).code:
            assert on_cluster("topics", "create", topic, "--partitions", partitions, "--yes").code == 0
        file = tmp_path / "lines"
        file.write_text("".join(f"{value}\n" for value in values))
        assert on_cluster("produce", topic, "--file", file, "--partitioner", "round-robin").code == 0

    return call


def consumed(kctl: Kctl, topic: str) -> list[dict[str, Any]]:
    ran = kctl("consume", topic, "-o", "json")
    assert ran.code == 0, ran.err
    return [json.loads(line) for line in ran.out.splitlines()]


def bytes_of(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


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


@pytest.fixture(params=["hadoop", "jdbc", "rest"])
def catalog(request: pytest.FixtureRequest, spark_ready: SparkReady, tmp_path: Path) -> Iterator[Catalog]:
    """A real one of each type."""
    place = ["--var", f"path={tmp_path}/lake", "--var", f"catalog=shipped_{request.param}"]
    kind = ["--set", f"sink.iceberg.catalog.type={request.param}", "--set"]
    if request.param == "hadoop":
        yield Catalog(request.param, place, lambda: table_in(tmp_path / "lake/shop/orders"))
    elif request.param == "jdbc":
        url = f"sink.iceberg.catalog.url=jdbc:sqlite:{tmp_path}/catalog.db"
        yield Catalog(request.param, [*place, *kind, url], lambda: table_of_sqlite(tmp_path / "catalog.db"))
    else:
        if why := iceberg_rest.missing():
            pytest.skip(why)
        with iceberg_rest.running(spark_ready.home, tmp_path / "lake") as url:
            words = [*place, *kind, f"sink.iceberg.catalog.url={url}", "--set", "sink.path="]
            yield Catalog(request.param, words, lambda: table_of_server(url, "shop", "orders"))


def test_topic_to_iceberg_goes_on_where_it_ended(run: Run, fill: Callable[..., None], catalog: Catalog) -> None:
    topic = f"shipped-table-{catalog.type}"
    words = ["--var", f"topic={topic}", *catalog.words]
    fill(topic, [*lines(50), *lines(30, first=50, day=2), "no JSON"])
    assert "81 rows read, 80 written, 1 bad" in run("topic-to-iceberg", *words)
    fill(topic, lines(20, first=80, day=2))
    assert "20 rows read, 20 written, 0 bad" in run("topic-to-iceberg", *words)
    found = rows_of(catalog.table())
    days = [row["day"] for row in found]
    assert sorted(row["id"] for row in found) == list(range(100))
    assert (days.count("2026-11-01"), days.count("2026-11-02")) == (50, 50)


def test_topic_to_delta_keeps_the_newest_of_each_key(run: Run, fill: Callable[..., None], tmp_path: Path) -> None:
    words = ["--var", "topic=shipped-changes", "--var", f"path={tmp_path}/table"]
    fill("shipped-changes", [*lines(20), "no JSON"], partitions=1)
    assert "21 rows read, 20 written, 1 bad" in run("topic-to-delta", *words)
    fill("shipped-changes", [*lines(10, first=15), *lines(5, day=2)])
    assert "15 rows read, 15 written, 0 bad" in run("topic-to-delta", *words)
    found = {row["id"]: row["at"].day for row in delta.rows_in(tmp_path / "table")}
    assert found == {number: 2 if number < 5 else 1 for number in range(25)}


def test_parquet_to_topic(run: Run, on_cluster: Kctl, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows_ = "SELECT i AS id, 'c' AS customer, i::DECIMAL(12,2) AS amount, TIMESTAMP '2026-11-01' AS at, 'd' AS day"
    import duckdb

    duckdb.sql(f"{rows_} FROM range(40) t(i)").write_parquet(str(tmp_path / "in" / "a.parquet"))
    run("parquet-to-topic", "--var", f"path={tmp_path}/in", "--var", "topic=shipped-from-files")
    found = consumed(on_cluster, "shipped-from-files")
    assert sorted(int(record["key"]) for record in found) == list(range(40))


def test_json_clean_to_topic(run: Run, fill: Callable[..., None], on_cluster: Kctl) -> None:
    wrong = ["no JSON", '{"id": 1, "other": 2}', '{"customer": "no id"}', '{"id": "x"}']
    fill("shipped-raw", [*lines(30), *wrong])
    assert on_cluster("topics", "create", "shipped-dead", "--partitions", 1, "--yes").code == 0
    words = ["--var", "from=shipped-raw", "--var", "to=shipped-clean", "--var", "dead=shipped-dead"]
    assert "34 rows read, 30 written, 4 bad" in run("json-clean-to-topic", *words)
    dead = consumed(on_cluster, "shipped-dead")
    assert sorted(record["value"] for record in dead) == sorted(wrong)
    names = {header["key"] if isinstance(header, dict) else header[0] for header in _headers(dead[0])}
    assert {"error", "column", "job", "topic", "partition", "offset", "timestamp"} <= names
    clean = consumed(on_cluster, "shipped-clean")
    assert {json.loads(record["value"])["customer"] for record in clean} == {f"c{i}" for i in range(7)}
    assert len(clean) == 30


def _headers(record: dict[str, Any]) -> list[Any]:
    headers = record["headers"]
    return list(headers.items()) if isinstance(headers, dict) else headers


def test_windowed_counts_names_what_is_open(run: Run, fill: Callable[..., None], on_cluster: Kctl) -> None:
    fill("shipped-windows", [*lines(60), *lines(5)], partitions=1)
    words = ["--var", "topic=shipped-windows", "--var", "to=shipped-minutes", "--mode", "available-now"]
    said = run("windowed-counts", *words)
    assert "65 rows read" in said
    assert "5 duplicates" in said
    minutes = {
        record["key"]: json.loads(record["value"])["orders"] for record in consumed(on_cluster, "shipped-minutes")
    }
    assert minutes == {f"2026-11-01 12:{minute:02d}": 1 for minute in range(49)}  # 12:59 less ten minutes
    assert "open" in said


def test_topic_copy_between_clusters(
    run: Run,
    fill: Callable[..., None],
    kctl: Kctl,
    on_cluster: Kctl,
    cluster: Cluster,
    request: pytest.FixtureRequest,
) -> None:
    """From kafkad to Kafka, and from Kafka to kafkad."""
    name = request.node.callspec.params["cluster"]
    other: Cluster = request.getfixturevalue(OTHER[name])
    topic = f"shipped-of-{name}-{request.node.callspec.params['run']}"

    def on_other(*arguments: object) -> Any:
        return kctl("-b", other.bootstrap, *arguments)

    fill(topic, lines(40))
    assert on_cluster("produce", topic, "--key", "k", "--value", "v", "--header", "h=1").code == 0
    assert on_other("topics", "create", topic, "--partitions", 2, "--yes").code == 0
    clusters = ["--var", f"from={cluster.bootstrap}", "--var", f"to={other.bootstrap}"]
    run("topic-copy-between-clusters", *clusters, "--var", f"topic={topic}")

    def content(kctl: Kctl) -> list[tuple[Any, ...]]:
        return sorted((one["partition"], str(one["key"]), one["value"]) for one in consumed(kctl, topic))

    assert content(on_other) == content(on_cluster)
    (with_key,) = (record for record in consumed(on_other, topic) if record["key"] == "k")
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


def test_avro_to_csv(run: Run, on_cluster: Kctl, tmp_path: Path) -> None:
    assert on_cluster("topics", "create", "shipped-avro", "--partitions", 1, "--yes").code == 0
    files = []
    for i in range(5):
        (tmp_path / f"{i}.avro").write_bytes(_avro(i))
        files += ["--file", str(tmp_path / f"{i}.avro")]
    assert on_cluster("produce", "shipped-avro", "--whole", *files).code == 0
    run("avro-to-csv", "--var", "topic=shipped-avro", "--var", f"path={tmp_path}/csv")
    found = rows(
        f"SELECT id, customer, amount FROM read_csv('{tmp_path}/csv/*.csv.gz', delim=';', header=true) ORDER BY id"
    )
    assert found == [(i, f"c{i}", i + 0.5) for i in range(5)]


def test_avro_registry_reads_several_writers_and_registers_what_it_writes(
    run: Run, on_cluster: Kctl, tmp_path: Path
) -> None:
    parts = [{"name": "zip", "type": "int"}, {"name": "city", "type": "string"}]
    address = {"type": "record", "name": "address", "fields": parts}
    fields = [{"name": "id", "type": "long"}, {"name": "address", "type": address}]
    first = {"type": "record", "name": "order", "fields": fields}
    second = first | {"fields": [*fields, {"name": "amount", "type": ["double", "null"], "default": 0.25}]}
    assert on_cluster("topics", "create", "shipped-orders", "--partitions", 1, "--yes").code == 0
    with running() as registry:
        older, newer = (registry.add("shipped-orders-value", each) for each in (first, second))
        bern = _zigzag(7) + _zigzag(3000) + _zigzag(4) + b"Bern"
        values = [older.to_bytes(5, "big") + bern, newer.to_bytes(5, "big") + bern + b"\0" + struct.pack("<d", 1.5)]
        for at, value in enumerate(values):
            (tmp_path / str(at)).write_bytes(value)
        files = ["--file", str(tmp_path / "0"), "--file", str(tmp_path / "1")]
        assert on_cluster("produce", "shipped-orders", "--whole", *files).code == 0
        words = [
            "--var",
            f"registry={registry.url}",
            "--var",
            "topic=shipped-orders",
            "--var",
            "target=shipped-by-city",
        ]
        assert "registered schema 3 for subject shipped-by-city-value" in run("avro-registry", *words)
        [stored] = registry.subjects["shipped-by-city-value"]
    decode = compile_schema(stored.schema)
    found = [bytes_of(each["value"]) for each in consumed(on_cluster, "shipped-by-city")]
    assert {value[:5] for value in found} == {(3).to_bytes(5, "big")}
    city = {"city": "BERN", "zip": 3000}
    assert sorted((decode(value) for value in found), key=lambda row: row["amount"]) == [
        {"id": 7, "address": city, "amount": 0.25},
        {"id": 7, "address": city, "amount": 1.5},
    ]


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shipped.db")
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if why := missing():
        pytest.skip(why)
    with Postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


def replaced(run: Run, fill: Callable[..., None], topic: str, *words: str) -> None:
    """30 rows in several batches, the last of which has a newer one."""
    newer = {"id": 3, "customer": "new", "amount": 1, "at": "2026-11-01T00:00:00Z"}
    fill(topic, [*lines(30), json.dumps(newer)], partitions=1)
    run("topic-to-jdbc", "--var", f"topic={topic}", "--set", "source.rows_per_batch=20", *words)


def test_topic_to_jdbc_sqlite(run: Run, fill: Callable[..., None], sqlite: sqlite3.Connection, tmp_path: Path) -> None:
    sqlite.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, amount NUMERIC, at TEXT)")
    replaced(run, fill, "shipped-sqlite", "--var", f"url=jdbc:sqlite:{tmp_path}/shipped.db")
    assert sqlite.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchall() == [(30, 30)]
    assert sqlite.execute("SELECT customer, amount FROM orders WHERE id = 3").fetchall() == [("new", 1)]


def test_topic_to_jdbc_postgresql(run: Run, fill: Callable[..., None], postgresql: Postgres) -> None:
    postgresql.sql("DROP TABLE IF EXISTS orders, kafkad_etl_offsets")
    postgresql.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT, amount NUMERIC(12,2), at TEXT)")
    url = ["--var", f"url={postgresql.url}", "--set", "sink.jdbc.user=postgres"]
    replaced(run, fill, "shipped-postgresql", *url)
    assert postgresql.sql("SELECT count(*), count(DISTINCT id) FROM orders") == "30|30"
    assert postgresql.sql("SELECT customer, amount FROM orders WHERE id = 3") == "new|1.00"


def test_exactly_once_by_stored_offset(
    run: Run, fill: Callable[..., None], sqlite: sqlite3.Connection, tmp_path: Path
) -> None:
    """Even when the checkpoint is thrown away, and everything is read again."""
    sqlite.execute(
        "CREATE TABLE events (topic TEXT, part INTEGER, off INTEGER, customer TEXT, amount NUMERIC, "
        "PRIMARY KEY (topic, part, off))"
    )
    words = ["--var", "topic=shipped-events", "--var", f"url=jdbc:sqlite:{tmp_path}/shipped.db"]
    fill("shipped-events", lines(30))
    run("exactly-once-by-stored-offset", *words)
    assert "30 rows read" in run("exactly-once-by-stored-offset", *words, "--reset-checkpoint", "--yes")
    found = sqlite.execute("SELECT part, count(*), max(off) - min(off) + 1 FROM events GROUP BY part").fetchall()
    assert [count == span for _, count, span in found] == [True, True]
    assert sum(count for _, count, _ in found) == 30


@pytest.mark.usefixtures("shared_spark")
def test_each_job_passes_its_tests(kctl: Kctl) -> None:
    """As `kctl etl test jobs/*.yaml` runs them."""
    jobs = sorted(JOBS.glob("*.yaml"))
    ran = kctl("etl", "test", *jobs, "-o", "json")
    assert ran.code == 0, ran.err
    assert {Path(each["job"]) for each in json.loads(ran.out)["items"]} == set(jobs)
