"""Sinks `iceberg` and `delta`: a table of a lake, whatever its format.

Exactly once: each commit bears the batch's mark, and before a batch is written, the table is asked for it. Mode batch
has no such number: every run is a new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from kafkad_etl.driver.columns import type_text
from kafkad_etl.driver.paths import storage_of
from kafkad_etl.driver.sinks.disks import explaining_full_disk
from kafkad_etl.driver.sinks.lake.columns import Column, Fit, Name, fit, need_keys, need_partitions
from kafkad_etl.driver.sinks.lake.marks import Commit, mark_of
from kafkad_etl.driver.sinks.lake.merging import need_distinct, statement
from kafkad_etl.driver.sinks.newest import last_of_each_key
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.facts import POSITION
from kafkad_etl.messages import Failed, Plan
from kafkad_etl.sql_text import named

VIEW = "kafkad_etl_batch"


class Merged(NamedTuple):
    """Small files that the table replaced by large ones."""

    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    left: int = 0
    """Files that it could not replace, since somebody else did something to them."""


class Expiry(NamedTuple):
    before_ms: int
    """Versions from before that time are gone."""
    files: int


class Table(Protocol):
    """What the formats of tables do differently. Spark writes them all by the same statements."""

    @property
    def name(self) -> str:
        """As people know it."""

    @property
    def sql(self) -> str:
        """As Spark's SQL knows it."""

    def need_format(self) -> None:
        """Fails if Spark lacks the format's classes."""

    def exists(self) -> bool: ...

    def create(self, columns: list[tuple[str, str]], partition_by: tuple[str, ...]) -> None: ...

    def partitions(self) -> list[str]:
        """Its partition columns in lower case; others than plain columns as transform(column)."""

    def committed(self, job: str, batch: BatchId) -> Commit | None:
        """The commit of this batch; None if it was not written. Raises JobFailed if that cannot be known."""

    def commit_of(self, mark: str) -> Commit:
        """A commit of this run, by its mark."""

    def marking(self, session: Any, mark: str, *, is_repeatable: bool) -> AbstractContextManager[dict[str, str]]:
        """While it lasts, commits of the session bear the mark. Gives options for writers."""

    def merge(self, session: Any, statement: str, mark: str, rows: int) -> None:
        """Runs MERGE with a batch of so many rows, whose commit bears the mark."""

    def compact(self, min_files: int) -> Merged:
        """Merges small files where there are at least so many. Whoever writes to the table meanwhile may go on."""

    def expire(self, now_ms: int, age_ms: int, ours: str) -> Expiry:
        """Removes versions of that age, and files that no other version needs. What tells which batches with marks that
        begin with `ours` were written stays."""


class TableSink:
    def __init__(self, spark: Any, plan: Plan, table: Table) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = plan.job.sink
        self._table = table
        self._fit: Fit | None = None

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        table = self._table
        table.need_format()
        need_partitions(columns, self._settings.partition_by)
        need_keys(columns, self._settings.keys)
        there = table.exists()
        if self._settings.mode == "upsert":
            known = [column.name for column in self._columns()] if there else []
            columns = [(name, kind) for name, kind in columns if name not in POSITION or name in known]
        if not there:
            table.create(columns, self._settings.partition_by)
        elif self._settings.mode == "error" and not self._spark.table(table.sql).isEmpty():
            raise JobFailed(_not_empty(table.name))
        self._need_same_partitions()
        adds = self._settings.schema_changes == "add_columns"
        found = fit(columns, self._columns(), Name(table.name, table.sql), adds=adds)
        if found.added:
            new = ", ".join(f"{named(column.name)} {column.type}" for column in found.added)
            self._spark.sql(f"ALTER TABLE {table.sql} ADD COLUMNS ({new})")
        self._fit = found

    def finished(self, batch: BatchId) -> Written | None:
        if self._plan.mode == "batch":
            return None
        found = self._table.committed(self._plan.job.name, batch)
        return Written(found.rows, found.files, found.bytes) if found else None

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        path = self._settings.path
        if not path:
            return self._written(rows, batch)
        with explaining_full_disk(storage_of(self._spark, path), path):
            return self._written(rows, batch)

    def _written(self, rows: DataFrame, batch: BatchId) -> Written:
        mark = mark_of(self._plan.job.name, batch)
        is_repeatable = self._plan.mode != "batch"
        with self._table.marking(rows.sparkSession, mark, is_repeatable=is_repeatable) as options:
            if self._settings.mode == "upsert":
                self._merge(rows, batch, mark)
            else:
                self._write(rows, options)
        found = self._table.commit_of(mark)
        return Written(found.rows, found.files, found.bytes)

    def _write(self, rows: DataFrame, options: dict[str, str]) -> None:
        from pyspark.sql import functions as f

        assert self._fit is not None
        writer = rows.selectExpr(*self._fit.selected).writeTo(self._table.sql)
        writer = writer.options(**options).options(**self._settings.options)
        if self._settings.mode == "overwrite_partitions":
            writer.overwritePartitions()
        elif self._settings.mode == "overwrite":
            writer.overwrite(f.lit(True))
        else:
            writer.append()

    def _merge(self, rows: DataFrame, batch: BatchId, mark: str) -> None:
        """Merges the batch, which is computed once and kept meanwhile."""
        assert self._fit is not None
        keys = self._settings.keys
        out = last_of_each_key(rows, keys).selectExpr(*self._fit.selected).persist()
        try:
            count, *not_null = out.selectExpr("count(*)", *(f"count({named(key)})" for key in keys)).first()
            null = {key for key, found in zip(keys, not_null, strict=True) if found < count}
            if "_offset" not in rows.columns:
                need_distinct(out, keys, batch.number)
            out.createOrReplaceTempView(VIEW)
            self._table.merge(out.sparkSession, statement(self._table.sql, VIEW, keys, null), mark, count)
        finally:
            out.unpersist()

    def _need_same_partitions(self) -> None:
        wanted = [name.lower() for name in self._settings.partition_by]
        there = self._table.partitions()
        if wanted and wanted != there:
            text = f"table {self._table.name} is partitioned by {', '.join(there) or 'nothing'}"
            raise JobFailed(
                Failed(
                    kind="sink",
                    text=f"{text}, but sink.partition_by says {', '.join(self._settings.partition_by)}",
                    hints=["remove sink.partition_by: the table itself decides"],
                )
            )

    def _columns(self) -> list[Column]:
        fields = self._spark.table(self._table.sql).schema.fields
        return [Column(field.name, type_text(field.dataType), field.nullable) for field in fields]


def create_statement(sql: str, form: str, columns: list[tuple[str, str]], partition_by: tuple[str, ...]) -> str:
    listed = ", ".join(f"{named(name)} {kind}" for name, kind in columns)
    partitioned = f" PARTITIONED BY ({', '.join(map(named, partition_by))})" if partition_by else ""
    return f"CREATE TABLE IF NOT EXISTS {sql} ({listed}) USING {form}{partitioned}"


def need_class(spark: Any, name: str, form: str) -> None:
    """Fails if the format's jars are missing."""
    try:
        spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception as error:
        failed = Failed(
            kind="environment",
            text=f"sink.type is {form}, but its jars are missing",
            hints=[
                f"kctl etl jars fetch --with {form}",
                "or spark.conf: {spark.jars.packages: …}, which replaces our jars",
            ],
        )
        raise JobFailed(failed) from error


@contextmanager
def setting(session: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of SQL for as long as it lasts."""
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def _not_empty(table: str) -> Failed:
    hints = ["set sink.mode to append, overwrite or overwrite_partitions"]
    return Failed(kind="sink", text=f"sink.mode is error, and table {table} already has rows", hints=hints)
