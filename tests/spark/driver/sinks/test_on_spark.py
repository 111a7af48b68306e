"""Each sink on real Spark: one session for all, and one that is killed."""

from __future__ import annotations

import csv
import io
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkad_etl.driver.columns import columns_of
from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.paths import Entry, LocalFiles
from kafkad_etl.driver.sinks import sink_of
from kafkad_etl.driver.sinks.files.sink import need_shared, tidy
from kafkad_etl.driver.sinks.jdbc.sink import JdbcSink
from kafkad_etl.driver.sinks.topic import Records
from kafkad_etl.driver.tasks.compact import compact
from kafkad_etl.driver.terms import BatchId, JobFailed, Sink, Written
from kafkad_etl.job import Job, TopicSink
from kafkad_etl.messages import Compacted, Event, Plan, Rows, Schema, Warned
from kafkad_etl.sql_text import casting
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.spark.conftest import SparkReady
from tests.spark.driver.sinks.postgres import Postgres, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # PySpark leaves sockets open
]

ID = "0123456789abcdef"
AVRO = '{"type":"record","name":"R","fields":[{"name":"id","type":"long"},{"name":"s","type":["null","string"]}]}'


def environment_of(ready: SparkReady) -> dict[str, str]:
    return {"JAVA_HOME": str(ready.java_home), "SPARK_HOME": str(ready.home), "SPARK_LOCAL_IP": "127.0.0.1"}


def words_of(ready: SparkReady) -> str:
    jars = ",".join(map(str, ready.jars))
    conf = "--conf spark.ui.enabled=false --conf spark.sql.session.timeZone=UTC --conf spark.sql.shuffle.partitions=2"
    return f"--master local[2] --driver-memory 700m --jars {jars} {conf} pyspark-shell"


class Bench:
    """One job's sinks, each as if in a new process."""

    def __init__(self, spark: Any, checkpoint: Path) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.told: list[Event] = []
        self.stop = None

    def plan(
        self, *, run: str = "available-now", schema: Schema | None = None, client: Any = None, **sink: Any
    ) -> Plan:
        job = {"version": 1, "name": "orders", "source": {"topics": ["t"]}, "sink": sink}
        return Plan(
            task="run",
            job=msgspec.convert(job, Job),
            mode=run,  # type: ignore[arg-type]
            reading=None,
            checkpoint=str(self.checkpoint),
            owner=str(self.checkpoint),
            checkpoint_id=ID,
            sink_schema=schema,
            sink_client=client or {},
        )

    def sink(self, plan: Plan, rows: Any) -> Sink:
        sink = sink_of(self.spark, plan, self.send)
        sink.prepare(columns_of(rows))
        return sink

    def write(self, plan: Plan, rows: Any, number: int = 0) -> Written:
        sink = self.sink(plan, rows)
        return sink.finished(batch_of(number)) or sink.write(rows, batch_of(number))

    def send(self, event: Event) -> None:
        self.told.append(event)


def batch_of(number: int) -> BatchId:
    return BatchId(number, ID, {"t": {0: number * 10}}, {"t": {0: number * 10 + 10}})


@pytest.fixture
def bench(spark: Any, tmp_path: Path) -> Bench:
    return Bench(spark, tmp_path / "checkpoint")


@pytest.fixture
def rows(spark: Any) -> Any:
    """Text that is awkward in csv, nothing and empty text, microseconds."""
    return spark.sql(
        r"""SELECT id, concat('a"b\n;,', id, '\\') AS s, if(id = 3, NULL, '') AS e,
            timestamp'2026-01-02 03:04:05.123456' AS ts, id % 2 AS day FROM range(10)"""
    )


def duck(query: str) -> list[tuple[Any, ...]]:
    import duckdb

    return duckdb.sql(query).fetchall()


def names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


FORMATS: dict[str, dict[str, Any]] = {
    "parquet": {"type": "parquet", "partition_by": ["day"]},
    "json": {"type": "json", "compression": "gzip"},
    "csv with header": {"type": "csv", "csv": {"header": True}},
    "csv": {"type": "csv", "csv": {"delimiter": ";", "null": "NULL"}, "partition_by": ["day"]},
}


@pytest.mark.parametrize("form", FORMATS)
def test_files_are_written_once_and_merged_to_the_same_rows(form: str, bench: Bench, rows: Any, tmp_path: Path) -> None:
    path = tmp_path / "lake"
    plan = bench.plan(path=str(path), compact={"min_files": 3}, **FORMATS[form])
    for number in range(4):
        written = bench.write(plan, rows, number)
        assert (written.rows, bench.write(plan, rows, number)) == (10, written), "a replay writes nothing"
    assert bench.write(plan, rows.limit(0), 4) == Written(0)
    there = names(path)
    directories = 2 if "partition_by" in FORMATS[form] else 1
    assert written.files == directories
    assert len(there) == 4 * directories
    assert all(name.rpartition("/")[2].startswith("orders-01234567-0000000") for name in there)
    assert written.bytes == sum((path / name).stat().st_size for name in there if "-000000003-" in name)
    before = read(bench.spark, plan)
    assert len(before) == 40
    assert compact(bench.spark, plan, bench) == "done"
    merged = [event for event in bench.told if isinstance(event, Compacted)]
    assert [(it.files_before, it.files_after) for it in merged] == [(4, 1)] * directories
    assert read(bench.spark, plan) == before
    assert len(names(path)) == directories
    assert bench.write(plan, rows, 3) == written, "nor does a replay of what was merged"
    assert not [event for event in bench.told if isinstance(event, Warned)], "each directory was exchanged as a whole"
    tidy(bench.spark, plan)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "lake"]
    if form == "parquet":
        found = duck(f"SELECT count(*), count(DISTINCT id), min(epoch_us(ts)) % 1000000 FROM '{path}/*/*.parquet'")
        assert found == [(40, 10, 123456)]


AWKWARD = ['say "hi", ok', " x ", "\\", 'a\\"b', "a\\\nb", " ", "\t", '"', '" x', "a;b,c", "'"]


@pytest.mark.parametrize("form", [{"header": True}, {"delimiter": ";", "null": "NULL"}])
def test_others_read_csv_as_it_was_written_blanks_included(bench: Bench, form: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "lake"
    rows = bench.spark.createDataFrame([*enumerate(AWKWARD), (99, None)], "id INT, s STRING").coalesce(1)
    expected = [*([str(number), text] for number, text in enumerate(AWKWARD)), ["99", form.get("null", "")]]
    header = [["id", "s"]] if "header" in form else []

    def lines_of(text: str) -> list[list[str]]:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=form.get("delimiter", ",")))

    plan = bench.plan(path=str(path), type="csv", csv=form, compact={"min_files": 2})
    for number in range(2):
        bench.write(plan, rows, number)
    for name in names(path):
        assert lines_of((path / name).read_text()) == header + expected
    assert compact(bench.spark, plan, bench) == "done"
    (merged,) = names(path)
    assert lines_of((path / merged).read_text()) == header + 2 * expected

    settings = TopicSink(topic="t", format="csv")
    plan = bench.plan(type="topic", csv={**form, "header": False}, topic={"topic": "t", "format": "csv"})
    values = [row["value"] for row in rows.select(*Records(bench.spark, plan, settings).of(rows)).collect()]
    assert [line for value in values for line in lines_of(value)] == expected


def read(spark: Any, plan: Plan) -> list[str]:
    sink = plan.job.sink
    if sink.type == "csv":
        given = {"header": sink.csv.header, "sep": sink.csv.delimiter, "nullValue": sink.csv.null, "escape": '"'}
        frame = spark.read.csv(sink.path, multiLine=True, **given)
    else:
        frame = spark.read.format(sink.type).load(sink.path)
    return sorted(map(str, frame.collect()))


def test_overwriting_leaves_the_new_rows_alone(bench: Bench, rows: Any, tmp_path: Path) -> None:
    path = tmp_path / "lake"
    for mode, left in (("append", 10), ("overwrite_partitions", 10), ("append", 15), ("overwrite", 5)):
        plan = bench.plan(run="batch", type="parquet", path=str(path), partition_by=["day"], mode=mode)
        bench.write(plan, rows if left == 10 else rows.where("day = 1"))
        assert duck(f"SELECT count(*) FROM '{path}/*/*.parquet'") == [(left,)]
    assert {name.partition("/")[0] for name in names(path)} == {"day=1"}
    plan = bench.plan(run="batch", type="parquet", path=str(path), mode="error")
    with pytest.raises(JobFailed, match=r"sink.mode is error, and .* has 1 files"):
        bench.write(plan, rows)


KILLED = """
import os, signal, sys
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from kafkad_etl.driver import paths
from kafkad_etl.messages import Plan
from tests.spark.driver.sinks.test_on_spark import Bench, batch_of

plan = msgspec.json.decode(sys.argv[1], type=Plan)
spark = SparkSession.builder.getOrCreate()
rows = spark.sql("SELECT id, id % 5 AS day FROM range(10)")
bench = Bench(spark, Path(plan.checkpoint))
bench.write(plan, rows, 0)
renamed = 0
rename = paths.LocalFiles.rename

def some_and_then_die(self, source, target):
    global renamed
    if "/lake/" in target:
        renamed += 1
        if renamed == 3:
            print(spark.sparkContext._gateway.proc.pid, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    rename(self, source, target)

paths.LocalFiles.rename = some_and_then_die
bench.write(plan, rows, 1)
"""


def test_a_batch_that_is_killed_between_two_renames_is_there_once_after_its_replay(
    bench: Bench, spark_ready: SparkReady, tmp_path: Path
) -> None:
    path = tmp_path / "lake"
    plan = bench.plan(type="parquet", path=str(path), partition_by=["day"])
    here = str(Path(__file__).parents[4])
    environment = {
        **os.environ,
        **environment_of(spark_ready),
        "PYSPARK_SUBMIT_ARGS": words_of(spark_ready),
        "PYTHONPATH": os.pathsep.join((here, os.path.join(here, "spark"))),
    }
    command = [sys.executable, "-c", textwrap.dedent(KILLED), msgspec.json.encode(plan).decode()]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    count = f"SELECT count(*), count(DISTINCT id) FROM '{path}/*/*.parquet'"
    assert duck(count) == [(14, 10)], "ten of the first batch, and two of five files of the second"
    rows = bench.spark.sql("SELECT id, id % 5 AS day FROM range(10)")
    sink = bench.sink(plan, rows)
    written = sink.finished(batch_of(1))
    assert written is not None
    assert (written.rows, written.files) == (10, 5)
    assert duck(count) == [(20, 10)]
    assert names(tmp_path / ".lake-etl-staging") == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_stops_the_job_and_shows_readers_nothing(bench: Bench, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=True)
    try:
        rows = bench.spark.sql("SELECT id, sha2(cast(id AS string), 512) AS s FROM range(40000)")
        plan = bench.plan(type="parquet", path=str(small / "lake"))
        with pytest.raises(
            JobFailed, match=r"a disk is full: the batch was not written to .*/lake, which has \d+ MB"
        ) as it:
            bench.write(plan, rows)
        assert it.value.failed.kind == "sink"
        assert not (small / "lake").exists()
        with pytest.raises(JobFailed, match="is a mount point"):
            bench.write(bench.plan(type="parquet", path=str(small)), rows)
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)  # Spark leaves a file open that it could not write


def test_records_have_every_column_and_say_where_they_come_from(
    bench: Bench, broker: KafkadProcess, on_broker: Kctl
) -> None:
    client = {"bootstrap.servers": broker.bootstrap}
    rows = bench.spark.sql(
        """SELECT id, CAST(NULL AS STRING) AS s, timestamp'2026-01-02 03:04:05.123456' AS ts, CAST(id AS INT) AS p,
           array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS hs,
           'in' AS _topic, 4 AS _partition, id * 10 AS _offset FROM range(3)"""
    )
    topics: dict[str, dict[str, Any]] = {
        "sunk-json": {"key": "id", "partition": "p", "headers": "hs", "source_header": True},
        "sunk-avro": {"format": "avro"},
        "sunk-text": {"format": "text", "acks": "1", "options": {"linger.ms": 5}},
    }
    shapes = {"sunk-json": rows, "sunk-avro": rows.select("id", "s")}
    shapes["sunk-text"] = rows.selectExpr("if(id = 1, NULL, concat('v', id)) AS value", "_offset")
    for topic, settings in topics.items():
        assert on_broker("topics", "create", topic, "--partitions", 3, "--yes").code == 0
        schema = Schema("avro", AVRO) if settings.get("format") == "avro" else None
        plan = bench.plan(type="topic", topic={"topic": topic, **settings}, client=client, schema=schema)
        assert bench.write(plan, shapes[topic]) == Written(3)
    read = bench.spark.read.format("kafka").options(**{"kafka.bootstrap.servers": broker.bootstrap})

    def records(topic: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = read.option("subscribe", topic).option("includeHeaders", True).load()
        return sorted(map(tuple, frame.selectExpr(*columns).collect()), key=str)

    headers = "concat_ws(' ', transform(headers, h -> concat(h.key, '=', CAST(h.value AS STRING))))"
    assert records("sunk-json", "CAST(key AS STRING)", "CAST(value AS STRING)", "partition", headers)[1] == (
        "1",
        '{"id":1,"s":null,"ts":"2026-01-02T03:04:05.123456Z"}',
        1,
        "h=x source=in/4/10",
    )
    assert {value for (value,) in records("sunk-text", "CAST(value AS STRING)")} == {None, "v0", "v2"}
    assert bytearray(b"\x02\x00") in [value for (value,) in records("sunk-avro", "value")]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_record_that_is_too_large_is_told_with_its_topic(
    bench: Bench, broker: KafkadProcess, on_broker: Kctl, delivery: str
) -> None:
    topic = f"sunk-small-{delivery}"
    assert on_broker("topics", "create", topic, "--partitions", 1, "--yes").code == 0
    large = bench.spark.sql("SELECT repeat('x', 2000000) AS value")
    settings = {"topic": topic, "format": "text", "delivery": delivery}
    plan = bench.plan(type="topic", topic=settings, client={"bootstrap.servers": broker.bootstrap})
    with pytest.raises(JobFailed) as refused:
        bench.write(plan, large)
    assert f'a record is too large for topic "{topic}"' in refused.value.failed.text
    assert "sink.topic.options: {max.request.size: …}" in refused.value.failed.hints[0]


def test_a_row_for_a_partition_that_the_topic_lacks_stops_the_batch_and_is_not_tried_again(
    bench: Bench, broker: KafkadProcess, on_broker: Kctl
) -> None:
    assert on_broker("topics", "create", "sunk-narrow", "--partitions", 2, "--yes").code == 0
    topic = {"topic": "sunk-narrow", "partition": "p"}
    plan = bench.plan(type="topic", topic=topic, client={"bootstrap.servers": broker.bootstrap})
    plan = msgspec.structs.replace(plan, sink_partitions=2)
    assert bench.write(plan, bench.spark.sql("SELECT id, if(id = 0, NULL, 1) AS p FROM range(3)")) == Written(3)
    for partition in (2, -1):
        rows = bench.spark.sql(f"SELECT id, {partition} AS p FROM range(3)")
        with pytest.raises(Exception, match="a row names partition") as error:
            bench.write(plan, rows)
        failed = failure_of(error.value)
        assert (failed.kind, failed.retriable) == ("topic", False)
        assert failed.text == f'a row names partition {partition}, and topic "sunk-narrow" had 2 when the run began'


def test_sqlite_takes_the_newest_row_of_each_key_once(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, at TIMESTAMP, day DATE, ok BOOLEAN)")
    connection.commit()
    rows = bench.spark.sql(
        """SELECT id % 3 AS id, concat('n', id) AS name, timestamp'2026-01-02 03:04:05.123456' AS at,
           date'2026-01-02' AS day, true AS ok, id AS _offset FROM range(6)"""
    )
    jdbc = {"url": f"jdbc:sqlite:{file}", "table": "orders", "mode": "upsert", "keys": ["id"]}
    plan = bench.plan(type="jdbc", jdbc=jdbc)
    for number in (0, 0, 1):
        assert bench.write(plan, rows, number) == Written(3)
    found = connection.execute("SELECT * FROM orders ORDER BY id").fetchall()
    assert found == [(n, f"n{n + 3}", "2026-01-02 03:04:05.123456", "2026-01-02", 1) for n in range(3)]
    assert connection.execute("SELECT batch, topic, next_offset FROM kafkad_etl_offsets").fetchall() == [(1, "t", 20)]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"orders", "kafkad_etl_offsets"}
    connection.close()


def test_a_database_that_is_busy_is_not_one_without_the_table(bench: Bench, tmp_path: Path) -> None:
    """A staging table that a killed run left would not be dropped, and the batch's rows would be added to it."""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
        jdbc = {"url": f"jdbc:sqlite:{tmp_path / 'shop.db'}", "table": "orders", "options": {"busy_timeout": 1}}
        plan, rows = bench.plan(type="jdbc", jdbc=jdbc), bench.spark.range(3)
        sink = bench.sink(plan, rows)
        connection.execute("BEGIN EXCLUSIVE")
        for act in (lambda: bench.sink(plan, rows), lambda: sink.write(rows, batch_of(0))):
            with pytest.raises(JobFailed, match=r"table orders: \[SQLITE_BUSY\]") as it:
                act()
            assert (it.value.failed.kind, it.value.failed.retriable) == ("sink", True)
        connection.execute("ROLLBACK")
        assert bench.write(plan, rows) == Written(3)


class PartlyElsewhere(LocalFiles):
    """The driver's view of a directory in which an executor on another machine has written the last file."""

    def under(self, directory: str) -> list[Entry]:
        return super().under(directory)[:-1]


def test_files_of_executors_that_the_driver_does_not_see_are_found_out_before_the_first_batch(
    spark: Any, tmp_path: Path
) -> None:
    directory = f"file://{tmp_path}/probe"
    need_shared(spark, LocalFiles(str), directory)
    with pytest.raises(JobFailed, match=r"executors wrote 2 files to .*/probe, and the driver sees 1 of them"):
        need_shared(spark, PartlyElsewhere(str), directory)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if why := missing():
        pytest.skip(why)
    with Postgres(tmp_path_factory.mktemp("postgres", numbered=True)) as server:
        yield server


def test_postgresql_takes_rows_once_and_says_what_it_does_not_take(bench: Bench, postgres: Postgres) -> None:
    postgres.sql(
        "CREATE SCHEMA shop; CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL, "
        "amount NUMERIC(12,2), at TIMESTAMPTZ, data JSONB, raw BYTEA); CREATE TABLE shop.log (id BIGINT)"
    )
    rows = bench.spark.sql(
        """SELECT id % 100 AS id, concat('n', id) AS name, CAST(id AS DECIMAL(12,2)) AS amount,
           timestamp'2026-01-02 03:04:05' AS at, '{"a": 1}' AS data, X'00ff' AS raw, id AS _offset FROM range(200)"""
    )

    def plan(**jdbc: Any) -> Plan:
        given = {"url": postgres.url, "user": "postgres", "table": "shop.orders", "mode": "upsert", "keys": ["id"]}
        return bench.plan(type="jdbc", jdbc={**given, **jdbc})

    for number in (0, 0, 1):
        assert bench.write(plan(), rows, number) == Written(100)
    assert (
        postgres.sql("SELECT count(*), sum(amount), min(data->>'a'), min(raw::text) FROM shop.orders")
        == "100|14950.00|1|\\x00ff"
    )
    bench.checkpoint = bench.checkpoint.with_name("another")
    for number in (2, 2):
        assert bench.write(plan(table="shop.log", mode="append", keys=[]), rows.select("id"), number) == Written(200)
    assert postgres.sql("SELECT count(*) FROM shop.log") == "200"
    tables = postgres.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'shop' ORDER BY tablename")
    assert tables.split() == ["kafkad_etl_offsets", "log", "orders"]
    fails: list[tuple[dict[str, Any], Any, str]] = [
        ({}, rows.selectExpr("id", "repeat('x', 30) AS name", "_offset"), r"value too long for type character"),
        ({}, rows.selectExpr("id", "name", "name AS amount"), "amount is string, and shop.orders.amount numeric"),
        ({"keys": ["name"]}, rows, "rows cannot be found by sink.jdbc.keys .name. in shop.orders"),
        ({"table": "shop.nothing"}, rows, 'relation "shop.nothing" does not exist'),
        ({"url": postgres.url.replace(str(postgres.port), "1")}, rows, "Connection to 127.0.0.1:1 refused"),
        ({"url": "jdbc:mariadb://x/y", "mode": "append"}, rows, "no JDBC driver found for mariadb"),
    ]
    for change, shape, text in fails:
        with pytest.raises(JobFailed, match=text) as it:
            bench.write(plan(**change), shape, 9)
        assert "\n" not in it.value.failed.text
    assert it.value.failed.kind == "environment"
    assert postgres.sql("SELECT count(*) FROM shop.orders WHERE name LIKE 'x%'") == "0"


def test_postgresql_may_crash_between_staging_and_the_table(
    bench: Bench, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.sql("CREATE SCHEMA crash; CREATE TABLE crash.log (id BIGINT)")
    plan = bench.plan(type="jdbc", jdbc={"url": postgres.url, "user": "postgres", "table": "crash.log"})
    rows = bench.spark.range(200)
    fill = JdbcSink._fill

    def crashing(sink: JdbcSink, rows: Any) -> int:
        filled = fill(sink, rows)
        postgres.crash()
        return filled

    with monkeypatch.context() as patch, pytest.raises(JobFailed, match="has 0 rows, and Spark wrote 200") as it:
        patch.setattr(JdbcSink, "_fill", crashing)
        bench.write(plan, rows)
    assert it.value.failed.retriable
    assert bench.write(plan, rows) == Written(200)
    assert postgres.sql("SELECT count(*) FROM crash.log") == "200"


def test_the_console_gets_the_first_rows_and_none_counts_them(bench: Bench, rows: Any) -> None:
    assert bench.write(bench.plan(type="console", console={"limit": 2}), rows.select("id", "e")) == Written(10)
    assert bench.told == [Rows(["id", "e"], [["0", ""], ["1", ""]])]
    assert bench.write(bench.plan(type="none"), rows) == Written(10)


_KINDS = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(12,2)", "string", "binary"),
    *("date", "timestamp", "timestamp_ntz", "array<int>", "map<string,int>", "struct<a:int>", "variant"),
)


def test_spark_has_the_casts_that_are_recommended(spark: Any) -> None:
    for kind, into in product(_KINDS, _KINDS):
        if casting("c", kind, into):
            assert spark.sql(f"SELECT CAST(CAST(NULL AS {kind}) AS {into}) AS c").dtypes[0][1] == into
