"""The sink `iceberg` on real Spark, read by PyIceberg. In CI the shipped example stands for it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.session import session_settings
from kafkad_etl.driver.sinks.lake.marks import PROPERTY
from kafkad_etl.driver.tasks.upkeep import keep_up
from kafkad_etl.driver.terms import JobFailed, Written
from kafkad_etl.messages import Compacted, Event, Plan
from tests.spark import iceberg_rest
from tests.spark.conftest import SparkReady
from tests.spark.driver.rows import IN_PROCESS, Front
from tests.spark.driver.sinks.postgres import Postgres, missing
from tests.spark.driver.sinks.test_on_spark import Bench, batch_of
from tests.spark.iceberg import NOTED, rows_of, table_at, table_in, table_of_server, table_of_sqlite

pytestmark = [*IN_PROCESS, pytest.mark.long]


class Lake:
    """A table, written by a job, as if each batch came from a new process."""

    def __init__(self, bench: Bench, path: Path, **catalog: Any) -> None:
        self.bench = bench
        self.spark = bench.spark
        self.path = path
        self.name = f"lake_{path.parent.name.replace('-', '_')}"
        self.catalog = catalog
        for name, value in session_settings(self.plan().job.sink).items():
            self.spark.conf.set(name, value)

    def plan(self, *, run: str = "available-now", **sink: Any) -> Plan:
        iceberg = {"table": "shop.orders", "catalog": {"name": self.name, **self.catalog}}
        place = "" if self.catalog.get("type") == "rest" else str(self.path)
        return self.bench.plan(run=run, type="iceberg", path=place, iceberg=iceberg, **sink)

    def write(self, sql: str, number: int = 0, **settings: Any) -> Written:
        return self.bench.write(self.plan(**settings), self.spark.sql(sql), number)

    def keep_up(self, *, days: float = 0, **compact: Any) -> list[Event]:
        """What `kctl etl compact` says, so many days later."""
        front = Front()
        keep_up(self.spark, self.plan(compact=compact), front, lambda: time.time() + days * 86_400)
        return front.events

    def table(self) -> Any:
        return table_in(self.path / "shop/orders")

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in rows_of(self.table()))

    def sql(self, sql: str) -> None:
        self.spark.sql(sql.replace("TABLE_", f"{self.name}.shop.orders"))


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Lake:
    return Lake(Bench(spark, tmp_path / "checkpoint"), tmp_path / "lake")


TEN = "SELECT id, CAST(id % 2 AS STRING) AS day FROM range(10)"


def test_a_batch_is_written_once_whoever_else_writes(lake: Lake) -> None:
    first = lake.write(TEN, 0, partition_by=["day"])
    assert (first.rows, first.files) == (10, 2)
    assert lake.write(TEN, 0) == first, "a replay writes nothing"
    lake.sql("INSERT INTO TABLE_ VALUES (100, 'x')")
    assert lake.write(TEN, 0) == first
    assert lake.write("SELECT id + 10 AS id, '0' AS day FROM range(2)", 1).rows == 2
    assert lake.ids() == [*range(12), 100]
    with pytest.raises(JobFailed, match=r"checkpoint is at batch 0, but table shop.orders already has batch 1 of it"):
        lake.write(TEN, 0)
    assert lake.table().spec().fields[0].name == "day"
    with pytest.raises(JobFailed, match=r"table shop.orders is partitioned by day, but sink.partition_by says id"):
        lake.write(TEN, 2, partition_by=["id"])


def test_a_rolled_back_batch_is_written_again(lake: Lake) -> None:
    lake.write(TEN, 0)
    kept = lake.table().current_snapshot().snapshot_id
    lake.write(TEN, 1)
    lake.spark.sql(f"CALL {lake.name}.system.rollback_to_snapshot('shop.orders', {kept})")
    assert lake.ids() == list(range(10))
    assert lake.write(TEN, 1).rows == 10
    assert lake.ids() == sorted([*range(10)] * 2)


def test_new_columns_stop_the_job_or_become_the_tables(lake: Lake) -> None:
    lake.write(TEN, 0)
    more = "SELECT 10L AS id, '0' AS day, 1.5D AS amount"
    with pytest.raises(JobFailed, match=r"table shop.orders has no column amount"):
        lake.write(more, 1)
    assert lake.write(more, 1, schema_changes="add_columns").rows == 1
    assert lake.write("SELECT 11 AS id", 2).rows == 1, "columns that are left out are null, and INT fits BIGINT"
    found = {row["id"]: (row["day"], row["amount"]) for row in rows_of(lake.table())}
    assert (found[9], found[10], found[11]) == (("1", None), ("0", 1.5), (None, None))
    with pytest.raises(JobFailed, match=r"id is string, but id of table shop.orders is bigint"):
        lake.write("SELECT '12' AS id", 3)


def test_an_upsert_keeps_the_newest_row_of_each_key_and_is_done_once(lake: Lake) -> None:
    sql = "SELECT id % 4 AS id, concat('n', id) AS name, '0' AS day, id AS _offset FROM range(6)"
    settings = {"mode": "upsert", "keys": ["id"]}
    assert lake.write(sql, 0, **settings).rows == 4
    newer = "SELECT id + 3 AS id, 'newer' AS name, '0' AS day FROM range(2)"
    written = lake.write(newer, 1, **settings)
    assert written.rows == 2, "those that the table copies into new files are not the batch's"
    lake.sql("UPDATE TABLE_ SET name = 'theirs' WHERE id = 4")
    assert lake.write(newer, 1, **settings) == written
    found = {row["id"]: row["name"] for row in rows_of(lake.table())}
    assert found == {0: "n4", 1: "n5", 2: "n2", 3: "newer", 4: "theirs"}
    assert len(lake.ids()) == 5
    with pytest.raises(JobFailed, match=r"a key occurs more than once in batch 2 \(id=1: 3 rows\)"):
        lake.write("SELECT 1L AS id, 'x' AS name FROM range(3)", 2, **settings)
    with pytest.raises(JobFailed, match=r"sink.keys names nr, which the result does not have: id"):
        lake.write("SELECT 1L AS id", 2, mode="upsert", keys=["nr"])


def test_null_in_a_key_is_a_value_of_its_own(lake: Lake) -> None:
    settings = {"mode": "upsert", "keys": ["id", "day"]}
    for number, name in enumerate(("old", "new")):
        lake.write(f"SELECT id, IF(id < 2, NULL, 'x') AS day, '{name}' AS name FROM range(4)", number, **settings)
    lake.write("SELECT 0L AS id, 'x' AS day, 'other' AS name", 2, **settings)
    found = {(row["id"], row["day"]): row["name"] for row in rows_of(lake.table())}
    assert found == {(0, None): "new", (1, None): "new", (2, "x"): "new", (3, "x"): "new", (0, "x"): "other"}


def test_each_batch_may_replace_partitions(lake: Lake) -> None:
    settings = {"mode": "overwrite_partitions", "partition_by": ["day"]}
    lake.write(TEN, 0, **settings)
    assert lake.write("SELECT 20L AS id, '0' AS day", 1, **settings).rows == 1
    assert lake.write("SELECT 20L AS id, '0' AS day", 1, **settings).rows == 1
    assert lake.ids() == [1, 3, 5, 7, 9, 20]


def test_mode_batch_replaces(lake: Lake) -> None:
    for mode, sql, left in (
        ("append", TEN, [*range(10)]),
        ("overwrite_partitions", "SELECT 20L AS id, '0' AS day", [1, 3, 5, 7, 9, 20]),
        ("overwrite", "SELECT 30L AS id, '0' AS day", [30]),
        ("append", "SELECT 30L AS id, '0' AS day", [30, 30]),
    ):
        lake.write(sql, run="batch", mode=mode, partition_by=["day"])
        assert lake.ids() == left
    with pytest.raises(JobFailed, match=r"sink.mode is error, and table shop.orders already has rows"):
        lake.write(TEN, run="batch", mode="error")


def test_small_files_are_merged_and_batches_still_known(lake: Lake) -> None:
    with pytest.raises(JobFailed, match=r"table shop.orders does not exist"):
        lake.keep_up()
    for number in range(3):
        lake.write(f"SELECT id + {number * 10} AS id, CAST(id % 2 AS STRING) AS day FROM range(10)", number)
    assert lake.keep_up(min_files=4) == []
    (merged,) = lake.keep_up(min_files=3)
    assert (merged.directory, merged.rows, merged.files_before, merged.files_after) == ("shop.orders", 30, 3, 1)
    assert merged.bytes_before > merged.bytes_after > 0
    assert lake.keep_up(min_files=2) == [], "there is nothing more to do"
    assert lake.ids() == list(range(30))
    assert lake.write(TEN, 2).rows == 10
    assert lake.ids() == list(range(30)), "batch 2 is there"
    lake.write("SELECT 30L AS id, '0' AS day", 3)
    assert lake.ids() == list(range(31))


def test_old_versions_go_but_not_the_last_batch_of_the_job(lake: Lake) -> None:
    for number in range(3):
        lake.write(TEN, number, mode="upsert", keys=["id"])
    for _ in range(2):
        lake.sql("UPDATE TABLE_ SET day = 'theirs' WHERE id = 1")
    data = lake.path / "shop/orders/data"
    stray = [data / name for name in ("old.parquet", "new.parquet")]
    for path, age in zip(stray, (2, 0), strict=True):
        path.write_bytes(b"of a writer that was killed")
        os.utime(path, (time.time() - age * 86_400,) * 2)
    assert lake.keep_up(min_files=99, days=1, expire_after="1d", after="never")[0].files > 0
    assert [path.exists() for path in stray] == [False, True]
    kept = [snapshot.summary.additional_properties.get(PROPERTY, "") for snapshot in lake.table().snapshots()]
    assert [mark.rpartition("/")[2] for mark in kept] == ["2", "", ""], "those since the last batch"
    assert lake.write(TEN, 2, mode="upsert", keys=["id"]).rows == 10
    assert {row["day"] for row in rows_of(lake.table()) if row["id"] == 1} == {"theirs"}, "batch 2 is known"


def test_files_are_merged_while_the_job_and_others_write(lake: Lake) -> None:
    settings = {"mode": "upsert", "keys": ["id"]}
    lake.write("SELECT id, 'at first' AS day FROM range(20)", 0, **settings)

    def disturb() -> None:
        other = lake.spark.newSession()
        for name, value in session_settings(lake.plan().job.sink).items():
            other.conf.set(name, value)
        for number in range(100, 110):
            again(lambda n=number: other.sql(f"INSERT INTO {lake.name}.shop.orders VALUES ({n}, 'theirs')"))

    events = merged_meanwhile(lake, disturb, **settings)
    assert any(isinstance(event, Compacted) for event in events)
    found = {row["id"]: row["day"] for row in rows_of(lake.table())}
    batches = {number: f"batch {number}" for number in range(1, 12)}
    rest = {number: "at first" for number in (0, *range(12, 20))}
    assert found == batches | rest | dict.fromkeys(range(100, 110), "theirs")
    assert len(lake.ids()) == 30
    summaries = [snapshot.summary.additional_properties for snapshot in lake.table().snapshots()]
    assert [each[PROPERTY].rpartition("/")[2] for each in summaries if PROPERTY in each] == [*map(str, range(12))]


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if why := missing():
        pytest.skip(why)
    with Postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


def has_batches_once(lake: Lake, table: Callable[[], Any]) -> None:
    def ids() -> list[int]:
        return sorted(row["id"] for row in rows_of(table()))

    settings = {"mode": "upsert", "keys": ["id"], "partition_by": ["day"]}
    assert lake.write(TEN, 0, **settings).rows == 10
    lake.sql("INSERT INTO TABLE_ VALUES (100, 'x')")
    assert lake.write(TEN, 0, **settings).rows == 10
    assert lake.write("SELECT id + 5 AS id, 'z' AS day FROM range(10)", 1, **settings).rows == 10
    lake.sql("INSERT INTO TABLE_ VALUES (101, 'x')")
    assert ids() == [*range(15), 100, 101]
    assert [event.files_before for event in lake.keep_up(min_files=2) if isinstance(event, Compacted)] == [2]
    assert lake.write(TEN, 1, **settings).rows == 10
    assert ids() == [*range(15), 100, 101], "batch 1 is there"


def test_a_catalog_in_sqlite(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    lake = Lake(Bench(spark, tmp_path / "checkpoint"), tmp_path / "lake", type="jdbc", url=f"jdbc:sqlite:{file}")
    has_batches_once(lake, lambda: table_of_sqlite(file))
    with contextlib.closing(sqlite3.connect(file)) as others:
        others.execute("BEGIN IMMEDIATE")
        with pytest.raises(Exception, match="database is locked") as raised:
            lake.write(TEN, 2)
        assert failure_of(raised.value).retriable
        others.rollback()
    assert lake.write(TEN, 2).rows == 10


def test_a_catalog_in_postgresql(spark: Any, postgresql: Postgres, tmp_path: Path) -> None:
    bench = Bench(spark, tmp_path / "checkpoint")
    login = {"type": "jdbc", "url": postgresql.url, "user": "postgres"}
    lake = Lake(bench, tmp_path / "lake", **login)
    has_batches_once(lake, lambda: table_at(postgresql.sql(NOTED)))
    for number, wrong in enumerate(({"user": "nobody"}, {"url": f"{postgresql.url}s"})):
        (tmp_path / f"other{number}").mkdir()
        other = Lake(bench, tmp_path / f"other{number}" / "lake", **login | wrong)
        with pytest.raises(JobFailed, match=r"catalog lake_other\d cannot be used: FATAL: .* does not exist") as it:
            other.write(TEN)
        assert it.value.failed.kind == "catalog"
        assert it.value.failed.hints == ["check sink.iceberg.catalog: url, user and password"]


def test_a_rest_catalog_and_one_that_goes_away(spark: Any, spark_ready: SparkReady, tmp_path: Path) -> None:
    if why := iceberg_rest.missing():
        pytest.skip(why)
    with iceberg_rest.running(spark_ready.home, tmp_path / "lake") as url:
        lake = Lake(Bench(spark, tmp_path / "checkpoint"), tmp_path / "lake", type="rest", url=url)
        has_batches_once(lake, lambda: table_of_server(url, "shop", "orders"))
        plan = lake.plan()
        rows = spark.sql(TEN)
        sink = lake.bench.sink(plan, rows)
    with pytest.raises(Exception, match="Connection refused") as raised:
        sink.write(rows, batch_of(2))
    assert failure_of(raised.value).retriable
    with pytest.raises(JobFailed, match=r"catalog .* cannot be used: .*Connection refused") as it:
        lake.write(TEN, 2)
    assert it.value.failed.kind == "catalog"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_leaves_the_table_as_it_was_until_there_is_room(spark: Any, tmp_path: Path) -> None:
    small_disk(tmp_path / "small", lambda path: Lake(Bench(spark, tmp_path / "checkpoint"), path))


def small_disk(small: Path, made: Callable[[Path], Any]) -> None:
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=True)
    try:
        lake = made(small / "lake")
        lake.write("SELECT id, 'x' AS s FROM range(10)", 0)
        many = "SELECT id + 10 AS id, sha2(cast(id AS string), 512) AS s FROM range(40000)"
        with pytest.raises(JobFailed, match=r"a disk is full: the batch was not written to .*/lake, which has") as it:
            lake.write(many, 1)
        assert it.value.failed.kind == "sink"
        assert lake.ids() == list(range(10))
        subprocess.run(["mount", "-o", "remount,size=50m", small], check=True)
        assert lake.write(many, 1).rows == 40_000
        assert lake.ids() == list(range(40_010))
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)  # Spark leaves a file open that it could not write


def merged_meanwhile(lake: Any, disturb: Callable[[], None], **settings: Any) -> list[Event]:
    """Writes batches 1 to 11, while another writer disturbs and files are merged again and again; what merging said."""
    events: list[Event] = []
    done = threading.Event()

    def maintain() -> None:
        while not done.is_set():
            with contextlib.suppress(JobFailed):  # others were faster, again and again
                events.extend(lake.keep_up(min_files=2))

    with ThreadPoolExecutor(2) as threads:
        maintaining, disturbing = threads.submit(maintain), threads.submit(disturb)
        try:
            for number in range(1, 12):
                again(lambda n=number: lake.write(f"SELECT {n}L AS id, 'batch {n}' AS day", n, **settings))
            disturbing.result()
        finally:
            done.set()
        maintaining.result()
    events.extend(lake.keep_up(min_files=2))  # in peace: a merge of files that others rewrite meanwhile is given up
    return events


def again(write: Callable[[], object]) -> None:
    """As a run does: what conflicts with the changes of others is written again."""
    while True:
        try:
            write()
            return
        except Exception as error:
            failed = failure_of(error)
            assert failed.retriable, failed.text
