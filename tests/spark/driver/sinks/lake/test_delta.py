"""The sink `delta` on real Spark, read by delta-rs. In CI the shipped example stands for it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.driver.tasks.upkeep import keep_up
from kafkad_etl.driver.terms import JobFailed, Written
from kafkad_etl.messages import Compacted, Event
from tests.spark.delta import marks_in, rows_in
from tests.spark.driver.rows import IN_PROCESS, Front
from tests.spark.driver.sinks.lake.test_iceberg import again, merged_meanwhile, small_disk
from tests.spark.driver.sinks.test_on_spark import Bench

pytestmark = [*IN_PROCESS, pytest.mark.long]


class Lake:
    """A table, written by a job, as if each batch came from a new process."""

    def __init__(self, bench: Bench, path: Path) -> None:
        self.bench = bench
        self.spark = bench.spark
        self.path = path

    def write(self, sql: str, number: int = 0, *, run: str = "available-now", **sink: Any) -> Written:
        plan = self.bench.plan(run=run, type="delta", path=str(self.path), **sink)
        return self.bench.write(plan, self.spark.sql(sql), number)

    def keep_up(self, **compact: Any) -> list[Event]:
        """What `kctl etl compact` says."""
        front = Front()
        plan = self.bench.plan(type="delta", path=str(self.path), compact=compact)
        keep_up(self.spark.newSession(), plan, front)
        return front.events

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in rows_in(self.path))

    def sql(self, sql: str) -> None:
        self.spark.sql(sql.replace("TABLE_", f"delta.`{self.path}`"))


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
    with pytest.raises(JobFailed, match=r"checkpoint is at batch 0, but table .*lake already has batch 1 of it"):
        lake.write(TEN, 0)
    with pytest.raises(JobFailed, match=r"is partitioned by day, but sink.partition_by says id"):
        lake.write(TEN, 2, partition_by=["id"])


def test_new_columns_stop_the_job_or_become_the_tables(lake: Lake) -> None:
    lake.write(TEN, 0)
    more = "SELECT 10L AS id, '0' AS day, 1.5D AS amount"
    with pytest.raises(JobFailed, match=r"has no column amount"):
        lake.write(more, 1)
    assert lake.write(more, 1, schema_changes="add_columns").rows == 1
    assert lake.write("SELECT 11 AS id", 2).rows == 1, "columns that are left out are null, and INT fits BIGINT"
    found = {row["id"]: (row["day"], row["amount"]) for row in rows_in(lake.path)}
    assert (found[9], found[10], found[11]) == (("1", None), ("0", 1.5), (None, None))
    odd = "SELECT 12L AS id, named_struct('ship-to', id) AS to FROM range(1)"
    assert [lake.write(odd, number, schema_changes="add_columns").rows for number in (3, 4)] == [1, 1]
    with pytest.raises(JobFailed, match=r"id is string, but id of table .* is bigint"):
        lake.write("SELECT '12' AS id", 5)


def test_an_upsert_keeps_the_newest_row_of_each_key_and_is_done_once(lake: Lake) -> None:
    sql = "SELECT id % 4 AS id, concat('n', id) AS name, '0' AS day, id AS _offset FROM range(6)"
    settings = {"mode": "upsert", "keys": ["id"]}
    assert lake.write(sql, 0, **settings).rows == 4
    newer = "SELECT id + 3 AS id, 'newer' AS name, '0' AS day FROM range(2)"
    written = lake.write(newer, 1, **settings)
    assert written.rows == 2, "those that the table copies into new files are not the batch's"
    lake.sql("UPDATE TABLE_ SET name = 'theirs' WHERE id = 4")
    assert lake.write(newer, 1, **settings) == written
    found = {row["id"]: row["name"] for row in rows_in(lake.path)}
    assert found == {0: "n4", 1: "n5", 2: "n2", 3: "newer", 4: "theirs"}
    assert len(lake.ids()) == 5
    with pytest.raises(JobFailed, match=r"a key occurs more than once in batch 2 \(id=1: 3 rows\)"):
        lake.write("SELECT 1L AS id, 'x' AS name FROM range(3)", 2, **settings)


def test_null_in_a_key_is_a_value_of_its_own(lake: Lake) -> None:
    settings = {"mode": "upsert", "keys": ["id", "day"]}
    for number, name in enumerate(("old", "new")):
        lake.write(f"SELECT id, IF(id < 2, NULL, 'x') AS day, '{name}' AS name FROM range(4)", number, **settings)
    lake.write("SELECT 0L AS id, 'x' AS day, 'other' AS name", 2, **settings)
    found = {(row["id"], row["day"]): row["name"] for row in rows_in(lake.path)}
    assert found == {(0, None): "new", (1, None): "new", (2, "x"): "new", (3, "x"): "new", (0, "x"): "other"}


def test_each_batch_may_replace_partitions(lake: Lake) -> None:
    settings = {"mode": "overwrite_partitions", "partition_by": ["day"]}
    lake.write(TEN, 0, **settings)
    for _ in range(2):
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
    with pytest.raises(JobFailed, match=r"sink.mode is error, and table .* already has rows"):
        lake.write(TEN, run="batch", mode="error")


def test_a_directory_of_other_files_is_left_alone(lake: Lake) -> None:
    lake.path.mkdir()
    (lake.path / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(JobFailed, match=r"has files and is no table of Delta"):
        lake.write(TEN)
    assert [file.name for file in lake.path.iterdir()] == ["part-0.parquet"]


def test_small_files_are_merged_and_batches_still_known(lake: Lake) -> None:
    with pytest.raises(JobFailed, match=r"table .*lake does not exist"):
        lake.keep_up()
    settings = {"partition_by": ["day"]}
    for number in range(3):
        where = "" if number else " WHERE id % 2 = 0"
        day = 'IF(id % 2 = 0, NULL, "it\'s") AS day'
        lake.write(f"SELECT id + {number * 10} AS id, {day} FROM range(10){where}", number, **settings)
    assert lake.keep_up(min_files=4) == []
    (merged,) = lake.keep_up(min_files=3)
    assert (merged.directory, merged.rows, merged.files_before, merged.files_after) == ("", 15, 3, 1)
    assert merged.bytes_before > merged.bytes_after > 0
    (merged,) = lake.keep_up(min_files=2)
    assert (merged.rows, merged.files_before, merged.files_after) == (10, 2, 1), "those of the other day"
    assert lake.keep_up(min_files=2) == [], "there is nothing more to do"
    expected = [*range(0, 10, 2), *range(10, 30)]
    assert lake.ids() == expected
    assert lake.write(TEN, 2, **settings).rows == 10
    assert lake.ids() == expected, "batch 2 is there"
    lake.write("SELECT 30L AS id, '0' AS day", 3, **settings)
    assert lake.ids() == [*expected, 30]


def test_files_that_nobody_needs_go(lake: Lake) -> None:
    for number in range(2):
        lake.write(TEN, number)
    stray = [lake.path / name for name in ("old.parquet", "new.parquet")]
    for path, age in zip(stray, (8, 0), strict=True):
        path.write_bytes(b"of a writer that was killed")
        os.utime(path, (time.time() - age * 86_400,) * 2)
    (expired,) = lake.keep_up(min_files=99, expire_after="7d")
    assert expired.files == 1
    assert [path.exists() for path in stray] == [False, True]
    assert lake.write(TEN, 1).rows == 10
    assert len(lake.ids()) == 20, "batch 1 is known"


def test_files_are_merged_while_the_job_and_others_write(lake: Lake) -> None:
    settings = {"mode": "upsert", "keys": ["id"]}
    lake.write("SELECT id, 'at first' AS day FROM range(20)", 0, **settings)

    def disturb() -> None:
        other = lake.spark.newSession()
        for number in range(100, 110):
            again(lambda n=number: other.sql(f"INSERT INTO delta.`{lake.path}` VALUES ({n}, 'theirs')"))

    events = merged_meanwhile(lake, disturb, **settings)
    assert any(isinstance(event, Compacted) for event in events)
    found = {row["id"]: row["day"] for row in rows_in(lake.path)}
    batches = {number: f"batch {number}" for number in range(1, 12)}
    rest = {number: "at first" for number in (0, *range(12, 20))}
    assert found == batches | rest | dict.fromkeys(range(100, 110), "theirs")
    assert len(lake.ids()) == 30
    marks = [mark for mark in marks_in(lake.path) if mark.startswith("orders/")]
    assert sorted(int(mark.rpartition("/")[2]) for mark in marks) == list(range(12))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_leaves_the_table_as_it_was_until_there_is_room(spark: Any, tmp_path: Path) -> None:
    small_disk(tmp_path / "small", lambda path: Lake(Bench(spark, tmp_path / "checkpoint"), path))
