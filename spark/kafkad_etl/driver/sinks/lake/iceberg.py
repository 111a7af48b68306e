"""Sink `iceberg`: a table of Apache Iceberg, in a catalog of its own in Spark.

Exactly once: each commit bears the batch's mark in its snapshot's summary, and before a batch is written, the table's
history is asked for it. Mode batch has no such number: every run is a new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkad_etl.driver.sinks.lake.columns import Column, Fit, fit, need_keys, need_partitions
from kafkad_etl.driver.sinks.lake.marks import PROPERTY, Commit, committed, mark_of
from kafkad_etl.driver.sinks.lake.merging import merge, need_distinct, statement
from kafkad_etl.driver.sinks.newest import POSITION, last_of_each_key
from kafkad_etl.driver.source.json_rows import named
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.job import IcebergSink as Settings
from kafkad_etl.job import Sink
from kafkad_etl.messages import Failed, Plan

CATALOG = "org.apache.iceberg.spark.SparkCatalog"
MB = 1 << 20
VIEW = "kafkad_etl_batch"


def session_settings(sink: Sink) -> dict[str, str]:
    """The session's settings for the sink's catalog."""
    assert sink.iceberg is not None
    catalog = sink.iceberg.catalog
    found = {"type": catalog.type, "warehouse": sink.path, "cache-enabled": "false"}
    found |= {name: str(value) for name, value in catalog.options.items()}
    prefix = f"spark.sql.catalog.{catalog.name}"
    return {prefix: CATALOG} | {f"{prefix}.{name}": value for name, value in found.items()}


class IcebergSink:
    def __init__(self, spark: Any, plan: Plan, settings: Settings) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = plan.job.sink
        self._name = settings.table
        self._sql = ".".join(map(named, (settings.catalog.name, *settings.table.split("."))))
        self._fit: Fit | None = None

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        try:
            self._spark._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(CATALOG)
        except Exception as error:
            raise JobFailed(_no_iceberg()) from error
        need_partitions(columns, self._settings.partition_by)
        need_keys(columns, self._settings.keys)
        if self._settings.mode == "upsert":
            columns = self._without_position(columns)
        if not self._spark.catalog.tableExists(self._sql):
            self._create(columns)
        elif self._settings.mode == "error" and self._table().currentSnapshot() is not None:
            raise JobFailed(_not_empty(self._name))
        self._need_same_partitions()
        found = fit(columns, self._columns(), self._name, adds=self._settings.schema_changes == "add_columns")
        if found.added:
            new = ", ".join(f"{named(column.name)} {column.type}" for column in found.added)
            self._spark.sql(f"ALTER TABLE {self._sql} ADD COLUMNS ({new})")
        self._fit = found

    def finished(self, batch: BatchId) -> Written | None:
        if self._plan.mode == "batch":
            return None
        found = committed(self._history(), self._plan.job.name, batch, self._name)
        return Written(found.rows, found.files, found.bytes) if found else None

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        assert self._fit is not None
        mark = mark_of(self._plan.job.name, batch)
        if self._settings.mode == "upsert":
            count = self._merge(rows, batch, mark)
        else:
            self._commit(rows.selectExpr(*self._fit.selected), mark)
            count = None
        found = next((commit for commit in self._history() if commit.mark == mark), Commit(0))
        return Written(found.rows if count is None else count, found.files, found.bytes)

    def _commit(self, rows: DataFrame, mark: str) -> None:
        from pyspark.sql import functions as f

        settings = self._settings
        writer = rows.writeTo(self._sql).option(f"snapshot-property.{PROPERTY}", mark)
        writer = writer.option("target-file-size-bytes", settings.target_file_mb * MB)
        if settings.compression:
            writer = writer.option("compression-codec", settings.compression)
        writer = writer.options(**settings.options)
        if settings.mode == "overwrite_partitions":
            writer.overwritePartitions()
        elif settings.mode == "overwrite":
            writer.overwrite(f.lit(True))
        else:
            writer.append()

    def _merge(self, rows: DataFrame, batch: BatchId, mark: str) -> int:
        """Merges the batch, which is computed once and kept meanwhile. Returns the number of its keys."""
        assert self._fit is not None
        keys = self._settings.keys
        out = last_of_each_key(rows, keys).selectExpr(*self._fit.selected).persist()
        try:
            count = int(out.count())
            if "_offset" not in rows.columns:
                need_distinct(out, keys, batch.number)
            out.createOrReplaceTempView(VIEW)
            merge(self._spark, out.sparkSession, statement(self._sql, VIEW, keys), {PROPERTY: mark})
        finally:
            out.unpersist()
        return count

    def _without_position(self, columns: list[tuple[str, str]]) -> list[tuple[str, str]]:
        there = [column.name for column in self._columns()] if self._spark.catalog.tableExists(self._sql) else []
        return [(name, kind) for name, kind in columns if name not in POSITION or name in there]

    def _create(self, columns: list[tuple[str, str]]) -> None:
        listed = ", ".join(f"{named(name)} {kind}" for name, kind in columns)
        by = ", ".join(map(named, self._settings.partition_by))
        partitioned = f" PARTITIONED BY ({by})" if by else ""
        *namespace, _ = self._sql.split(".")
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(namespace)}")
        self._spark.sql(f"CREATE TABLE IF NOT EXISTS {self._sql} ({listed}) USING iceberg{partitioned}")

    def _need_same_partitions(self) -> None:
        wanted = [name.lower() for name in self._settings.partition_by]
        table = self._table()
        schema = table.schema()
        fields = [
            (str(field.transform().toString()), str(schema.findColumnName(field.sourceId())))
            for field in table.spec().fields()
        ]
        there = [name.lower() if how == "identity" else f"{how}({name})" for how, name in fields]
        if wanted and wanted != there:
            text = f"table {self._name} is partitioned by {', '.join(there) or 'nothing'}"
            raise JobFailed(
                Failed(
                    kind="sink",
                    text=f"{text}, but sink.partition_by says {', '.join(self._settings.partition_by)}",
                    hints=["remove sink.partition_by: the table itself decides"],
                )
            )

    def _columns(self) -> list[Column]:
        fields = self._spark.table(self._sql).schema.fields
        return [Column(field.name, field.dataType.simpleString(), field.nullable) for field in fields]

    def _table(self) -> Any:
        return self._spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self._spark._jsparkSession, self._sql
        )

    def _history(self) -> Iterator[Commit]:
        """The table's commits as it has them now, from the newest back; not those that were rolled back."""
        table = self._table()
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            summary, parent = snapshot.summary(), snapshot.parentId()

            def number(name: str, summary: Any = summary) -> int:
                return int(summary.get(name) or 0)

            yield Commit(
                int(snapshot.timestampMillis()),
                summary.get(PROPERTY) or "",
                number("added-records"),
                number("added-data-files"),
                number("added-files-size"),
                parent is not None,
            )
            snapshot = None if parent is None else table.snapshot(parent)


def _no_iceberg() -> Failed:
    return Failed(
        kind="environment",
        text="sink.type is iceberg, but Iceberg's jar is missing",
        hints=[
            "kctl etl jars fetch --with iceberg",
            "or spark.conf: {spark.jars.packages: …}, which replaces our jars",
        ],
    )


def _not_empty(table: str) -> Failed:
    hints = ["set sink.mode to append, overwrite or overwrite_partitions"]
    return Failed(kind="sink", text=f"sink.mode is error, and table {table} already has rows", hints=hints)
