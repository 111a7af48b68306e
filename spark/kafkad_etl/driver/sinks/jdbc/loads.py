"""Loads batches into a table exactly once, with any database that has transactions.

A batch is first written to a staging table, in parallel. Then one transaction moves it to the table and notes in
`kafkad_etl_offsets`, in the same schema, the job, the batch and its end offsets. A batch that is repeated after a crash
finds this note, and nothing is written.

Staging may have other rows than Spark wrote: a database that crashes may empty it, and tasks commit one by one, so that
one that runs twice may leave its rows twice. The batch is moved only if their number is right.

Mode batch notes nothing: its one transaction succeeded or not, and every run is a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from kafkad_etl.driver.sinks.jdbc.statements import (
    OFFSETS,
    Column,
    Statements,
    Table,
    beside,
    dialect_of,
    mapped,
    marks,
    mistake,
    spellings,
    staging_name,
    statements,
)
from kafkad_etl.driver.terms import BatchId, JobFailed, Written
from kafkad_etl.job import JdbcSink as Settings
from kafkad_etl.job import Offsets
from kafkad_etl.messages import Failed


class DatabaseError(Exception):
    """An error in the database's own words."""


class Database(Protocol):
    """A database connection. Each statement is its own transaction, except within `transaction`. Raises DatabaseError
    for a wrong statement, such as one with a table that is missing, and another error if the database is not able to
    answer now."""

    def columns(self, table: str) -> tuple[Column, ...]: ...
    def execute(self, sql: str, *values: str | int) -> int:
        """Returns the number of affected rows."""

    def query(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]: ...
    def transaction(self) -> AbstractContextManager[None]: ...


class Loads:
    """The loads of one job into one table."""

    def __init__(
        self,
        settings: Settings,
        job: str,
        owner: str,
        connect: Callable[[], AbstractContextManager[Database]],
        *,
        noted: bool,
    ) -> None:
        self._settings = settings
        self._job = job
        self._dialect = dialect_of(settings.url)
        self._name = staging_name(job, owner)
        self._connect = connect
        self._noted = noted
        self._ordered = False
        self.staging = ""
        self.written: dict[str, str] = {}
        """The result's columns that are written, and their names in the table."""

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        with self._connect() as database:
            table = self._table(database)
            failed = mistake(self._settings, columns, table)
            if failed is not None:
                raise JobFailed(failed)
            found = mapped(columns, table)
            assert isinstance(found, dict)
            self.written = {name: column.name for name, column in found.items()}
            self._ordered = "_offset" in dict(columns)
            self._prepare_statements(table)
            self._drop_staging(database)
            if self._settings.mode == "upsert":
                self._explain(database)
            if self._noted and not self._has(database, self._offsets):
                database.execute(self._sql.create_offsets)

    def finished(self, batch: BatchId) -> Written | None:
        if not self._noted:
            return None
        with self._connect() as database:
            lines = database.query(self._sql.find_batch, self._job, batch.checkpoint_id, batch.number)
        if not lines:
            return None
        ends: Offsets = {}
        for _, topic, partition, end, _ in lines:
            if topic != self._dialect.no_topic:
                ends.setdefault(topic, {})[int(partition)] = int(end)
        newest = max(int(number) for number, *_ in lines)
        if newest > batch.number or ends != batch.end:
            raise JobFailed(self._set_back(newest, ends, batch))
        return Written(int(lines[0][4]))

    def write(self, batch: BatchId, fill: Callable[[], int]) -> Written:
        """Writes a batch. `fill` writes the rows to `staging`, creating it if it does not exist, and returns their
        number."""
        with self._connect() as database:
            self._drop_staging(database)
            if self._sql.create_staging:
                database.execute(self._sql.create_staging)
        filled = fill()
        with self._connect() as database:
            self._need_all(database, filled)
            if self._settings.mode == "upsert" and not self._ordered:
                self._refuse_doubles(database, batch)
            with database.transaction():
                rows = database.execute(self._sql.insert)
                self._need_all(database, filled)  # a task that Spark gave up may still have been writing
                if self._noted:
                    for line in marks(self._dialect, self._job, batch, rows):
                        database.execute(self._sql.mark_batch, *line)
                    database.execute(self._sql.forget_batches, self._job, batch.checkpoint_id, batch.number)
            self._drop_staging(database)
        return Written(rows)

    def _prepare_statements(self, table: Table) -> None:
        self.staging = beside(self._dialect, table.sql, self._name)
        self._offsets = beside(self._dialect, table.sql, OFFSETS)
        self._sql: Statements = statements(
            self._settings, table, self.staging, self._offsets, list(self.written.values())
        )

    def _table(self, database: Database) -> Table:
        problems = []
        for spelling in spellings(self._dialect, self._settings.table):
            try:
                return Table(spelling, database.columns(spelling))
            except DatabaseError as error:
                problems.append(str(error))
        raise JobFailed(
            Failed(
                kind="sink",
                text=f"sink.jdbc.table {self._settings.table} cannot be read: {problems[0]}",
                hints=["the table must exist: jobs do not create it"],
            )
        )

    def _has(self, database: Database, table: str) -> bool:
        try:
            database.columns(table)
        except DatabaseError:
            return False
        return True

    def _drop_staging(self, database: Database) -> None:
        if self._has(database, self.staging):
            database.execute(self._sql.drop_staging)

    def _need_all(self, database: Database, filled: int) -> None:
        """Fails, to be tried again, unless staging has as many rows as Spark wrote."""
        there = int(database.query(self._sql.count_staging)[0][0])
        if there != filled:
            text = f"the staging table of {self._settings.table} has {there} rows, and Spark wrote {filled}"
            hints = ["the batch was not written: the database may have restarted, or a task have run twice"]
            raise JobFailed(Failed(kind="sink", text=text, retriable=True, hints=hints))

    def _explain(self, database: Database) -> None:
        try:
            database.query(self._sql.explain)
        except DatabaseError as error:
            keys = ", ".join(self._settings.keys)
            raise JobFailed(
                Failed(
                    kind="sink",
                    text=f"rows cannot be found by sink.jdbc.keys ({keys}) in {self._settings.table}: {error}",
                    hints=[f"CREATE UNIQUE INDEX by_keys ON {self._settings.table} ({keys})"],
                )
            ) from error

    def _refuse_doubles(self, database: Database, batch: BatchId) -> None:
        doubles = database.query(self._sql.doubled)
        if doubles:
            keys = ", ".join(f"{key}={value}" for key, value in zip(self._settings.keys, doubles[0], strict=False))
            raise JobFailed(
                Failed(
                    kind="sink",
                    text=f"{len(doubles)} keys occur more than once in batch {batch.number} ({keys}: {doubles[0][-1]} "
                    "rows), and it is unknown which row is the newest",
                    hints=["also SELECT _offset, so that the last row wins", "or GROUP BY the keys in the SQL"],
                )
            )

    def _set_back(self, newest: int, ends: Offsets, batch: BatchId) -> Failed:
        return Failed(
            kind="checkpoint",
            text=f"{OFFSETS} says that batch {newest} of this checkpoint was written, up to {ends}, but Spark's "
            "checkpoint "
            f"starts batch {batch.number}, up to {batch.end}",
            hints=["the checkpoint was restored or edited; --reset-checkpoint starts a new one"],
        )
