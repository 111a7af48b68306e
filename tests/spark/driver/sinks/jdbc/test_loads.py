from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafkad_etl.driver.sinks.jdbc.loads import DatabaseError, Loads
from kafkad_etl.driver.sinks.jdbc.statements import Column
from kafkad_etl.driver.terms import BatchId, JobFailed, Written
from kafkad_etl.job import JdbcSink
from tests.spark.driver.sinks.disk import Crash

CODES = {"INTEGER": 4, "TEXT": 12, "REAL": 8}
COLUMNS = [("id", "bigint"), ("amount", "double")]


class Sqlite:
    """Python's own driver in the place of Java's, which stops at any step a test wants."""

    def __init__(self, connection: sqlite3.Connection, step: Callable[[], None]) -> None:
        self._connection = connection
        self._step = step

    def columns(self, table: str) -> tuple[Column, ...]:
        self.query(f"SELECT * FROM {table} WHERE 1 = 0")
        found = self._connection.execute(f"PRAGMA table_info({table})").fetchall()
        return tuple(Column(name, kind, CODES.get(kind, 4)) for _, name, kind, *_ in found)

    def execute(self, sql: str, *values: str | int) -> int:
        self._step()
        return self._connection.execute(sql, values).rowcount

    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise DatabaseError(str(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN")
        try:
            yield
            self._step()
            self._connection.execute("COMMIT")
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._step()


class Bench:
    database = Sqlite

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self.settings = msgspec.convert({"url": f"jdbc:sqlite:{path}", "table": "orders", **settings}, JdbcSink)
        self.steps_left: int | None = None

    def step(self) -> None:
        if self.steps_left is not None:
            if not self.steps_left:
                raise Crash
            self.steps_left -= 1

    @contextmanager
    def connect(self) -> Iterator[Sqlite]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            yield self.database(connection, self.step)
        finally:
            connection.close()

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            return connection.execute(text).fetchall()
        finally:
            connection.close()

    def loads(self, *, noted: bool = True, columns: list[tuple[str, str]] = COLUMNS) -> Loads:
        """In a new process."""
        loads = Loads(self.settings, "orders-job", "/cp", self.connect, noted=noted)
        loads.prepare(columns)
        return loads

    def write(self, loads: Loads, number: int, rows: list[tuple[Any, ...]]) -> Written:
        def fill() -> int:
            names = ", ".join(loads.written.values())
            self.sql(f"CREATE TABLE {loads.staging} ({names})")
            for row in rows:
                self.step()
                self.sql(f"INSERT INTO {loads.staging} VALUES {row}")
            return len(rows)

        batch = batch_of(number)
        return loads.finished(batch) or loads.write(batch, fill)

    def tables(self) -> set[str]:
        return {name for (name,) in self.sql("SELECT name FROM sqlite_master WHERE type = 'table'")}


class Oracle(Sqlite):
    """Has no BIGINT, and takes an empty text for NULL."""

    def execute(self, sql: str, *values: str | int) -> int:
        if "BIGINT" in sql:
            raise DatabaseError("ORA-00902: invalid datatype")
        return super().execute(sql, *(None if value == "" else value for value in values))  # type: ignore[arg-type]


def batch_of(number: int) -> BatchId:
    return BatchId(number, "0123", {"t": {0: number}}, {"t": {0: number + 1, 1: 7}})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "shop.db")
    bench.sql("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount REAL)")
    return bench


@pytest.fixture
def heap(tmp_path: Path) -> Bench:
    """A table without any key: what appears twice is there twice."""
    bench = Bench(tmp_path / "heap.db")
    bench.sql("CREATE TABLE orders (id INTEGER, amount REAL)")
    return bench


@pytest.mark.parametrize("ends", [{"t": {0: 1, 1: 7}}, {}])
def test_oracle_notes_batches_in_its_own_types(tmp_path: Path, ends: dict[str, dict[int, int]]) -> None:
    bench = Bench(tmp_path / "shop.db", url="jdbc:oracle:thin:@host:1521/shop")
    bench.database = Oracle
    bench.sql("CREATE TABLE orders (id INTEGER, amount REAL)")
    batch = BatchId(0, "0123", {}, ends)
    loads = bench.loads()
    assert loads.finished(batch) is None

    def fill() -> int:
        bench.sql(f"CREATE TABLE {loads.staging} AS SELECT 1 AS id, 2 AS amount")
        return 1

    assert loads.write(batch, fill) == Written(1)
    assert bench.loads().finished(batch) == Written(1)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_rows_are_there_once_wherever_a_run_crashes(mode: str, tmp_path: Path) -> None:
    batches = [[(1, 1.5), (2, 2.5)], [(2, 9.0) if mode == "upsert" else (4, 9.0), (3, 3.5)]]
    crashed = 0
    while True:
        bench = Bench(tmp_path / f"{crashed}.db", mode=mode, keys=["id"] if mode == "upsert" else [])
        bench.sql("CREATE TABLE orders (id INTEGER, amount REAL)")
        bench.sql("CREATE UNIQUE INDEX by_id ON orders (id)" if mode == "upsert" else "SELECT 1")
        bench.steps_left = crashed
        try:
            loads = bench.loads()
            for number, rows in enumerate(batches):
                bench.write(loads, number, rows)
            done = True
        except Crash:
            done = False
        bench.steps_left = None
        lines = bench.sql("SELECT max(batch) FROM kafkad_etl_offsets") if "kafkad_etl_offsets" in bench.tables() else []
        loads = bench.loads()
        for number in range(lines[0][0] or 0 if lines else 0, len(batches)):
            assert bench.write(loads, number, batches[number]).rows == 2
        expected = {1: 1.5, 2: 9.0, 3: 3.5} if mode == "upsert" else {1: 1.5, 2: 2.5, 3: 3.5, 4: 9.0}
        assert bench.sql("SELECT id, amount FROM orders ORDER BY id") == sorted(expected.items())
        assert bench.tables() == {"orders", "kafkad_etl_offsets"}
        if done:
            break
        crashed += 1
    assert crashed > 15


def test_the_offsets_of_the_newest_batch_are_noted_with_it(bench: Bench) -> None:
    loads = bench.loads()
    bench.write(loads, 0, [(1, 1.0)])
    bench.write(loads, 1, [(2, 1.0), (3, 1.0)])
    assert bench.sql("SELECT * FROM kafkad_etl_offsets ORDER BY topic_partition") == [
        ("orders-job", "0123", 1, "t", 0, 2, 2),
        ("orders-job", "0123", 1, "t", 1, 7, 2),
    ]
    assert bench.loads().finished(batch_of(1)) == Written(2)
    assert bench.loads().finished(batch_of(2)) is None


def test_another_writer_of_the_same_batch_is_turned_away(heap: Bench) -> None:
    """A driver that lives on unseen, while its batch is replayed elsewhere."""
    here, there = heap.loads(), heap.loads()
    batch = batch_of(0)
    assert there.finished(batch) is None
    heap.write(here, 0, [(1, 1.0)])

    def fill() -> int:
        heap.sql(f"CREATE TABLE {there.staging} AS SELECT 1 AS id, 1.0 AS amount")
        return 1

    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        there.write(batch, fill)
    assert heap.sql("SELECT count(*) FROM orders") == [(1,)]


@pytest.mark.parametrize(
    ("change", "there"),
    [
        ("DELETE FROM {}", 0),  # as PostgreSQL leaves it after a crash
        ("DELETE FROM {} WHERE id = 2", 1),  # what a task had written before the crash
        ("INSERT INTO {} VALUES (2, 2.0)", 3),  # by a task that ran twice
    ],
)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_batch_is_moved_only_if_staging_has_as_many_rows_as_spark_wrote(
    mode: str, change: str, there: int, bench: Bench
) -> None:
    bench = Bench(bench.path, mode=mode, keys=["id"] if mode == "upsert" else [])
    loads, batch = bench.loads(), batch_of(0)

    def fill() -> int:
        bench.sql(f"CREATE TABLE {loads.staging} AS SELECT 1 AS id, 1.0 AS amount UNION SELECT 2, 2.0")
        bench.sql(change.format(loads.staging))
        return 2

    with pytest.raises(JobFailed, match=f"has {there} rows, and Spark wrote 2") as it:
        loads.write(batch, fill)
    assert (it.value.failed.kind, it.value.failed.retriable) == ("sink", True)
    assert (bench.sql("SELECT * FROM orders"), bench.loads().finished(batch)) == ([], None)
    assert bench.write(bench.loads(), 0, [(1, 1.0), (2, 2.0)]) == Written(2)


def test_a_checkpoint_that_was_set_back_stops_the_job(bench: Bench) -> None:
    loads = bench.loads()
    for number in range(3):
        bench.write(loads, number, [(number, 1.0)])
    with pytest.raises(JobFailed, match=r"kafkad_etl_offsets says that batch 2 .* starts batch 1") as it:
        bench.loads().finished(batch_of(1))
    assert it.value.failed.kind == "checkpoint"
    with pytest.raises(JobFailed, match="batch 2"):
        bench.loads().finished(batch_of(2)._replace(end={"t": {0: 99}}))


def test_batch_mode_notes_nothing_and_writes_every_time(heap: Bench) -> None:
    for _ in range(2):
        loads = heap.loads(noted=False)
        assert heap.write(loads, 0, [(1, 1.0)]) == Written(1)
    assert heap.sql("SELECT count(*) FROM orders") == [(2,)]
    assert heap.tables() == {"orders"}


def test_keys_that_come_twice_in_a_batch_are_refused_unless_offsets_tell_the_newest(bench: Bench) -> None:
    upserts = Bench(bench.path, mode="upsert", keys=["id"])
    with pytest.raises(JobFailed, match=r"1 keys occur more than once in batch 0 \(id=5: 2 rows\)") as it:
        upserts.write(upserts.loads(), 0, [(5, 1.0), (5, 2.0), (6, 1.0)])
    assert "_offset" in it.value.failed.hints[0]
    assert bench.sql("SELECT count(*) FROM orders") == [(0,)]
    ordered = upserts.loads(columns=[*COLUMNS, ("_offset", "bigint"), ("_partition", "int")])
    assert ordered.written == {"id": "id", "amount": "amount"}


@pytest.mark.parametrize(
    ("settings", "columns", "text"),
    [
        ({"table": "ordres"}, COLUMNS, "sink.jdbc.table ordres cannot be read: no such table: ordres"),
        ({}, [("id", "bigint"), ("amonut", "double")], "orders has no column amonut: it has id INTEGER, amount REAL"),
        ({}, [("id", "string")], "id is string, and orders.id INTEGER"),
        ({}, [("amount", "struct<a:int>")], "amount is struct<a:int>, and orders.amount REAL"),
        ({"mode": "upsert", "keys": ["id"]}, [("amount", "double")], "sink.jdbc.keys: the result has no column id"),
        (
            {"mode": "upsert", "keys": ["amount"]},
            COLUMNS,
            r"found by sink.jdbc.keys \(amount\) in orders: ON C",
        ),
        ({"url": "jdbc:h2:x", "mode": "upsert", "keys": ["id"]}, COLUMNS, "sqlite and postgresql, not for h2"),
    ],
)
def test_what_does_not_fit_is_told_before_the_first_batch(
    settings: dict[str, Any], columns: list[tuple[str, str]], text: str, bench: Bench
) -> None:
    with pytest.raises(JobFailed, match=text):
        Bench(bench.path, **settings).loads(columns=columns)
    assert bench.tables() == {"orders"}


def test_names_are_found_as_in_sql_and_quoted_where_they_have_to_be(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "odd.db", table="order", mode="upsert", keys=["Select"])
    bench.sql('CREATE TABLE "order" ("select" INTEGER PRIMARY KEY, "two words" TEXT)')
    loads = bench.loads(columns=[("Select", "int"), ("two words", "string")])
    assert loads.written == {"Select": "select", "two words": "two words"}

    def fill() -> int:
        bench.sql(f'CREATE TABLE {loads.staging} AS SELECT 1 AS "select", \'x\' AS "two words"')
        return 1

    for number in range(2):
        assert loads.write(batch_of(number), fill) == Written(1)
    assert bench.sql('SELECT * FROM "order"') == [(1, "x")]
