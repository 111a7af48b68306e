"""Tables of Delta Lake, in a directory. A batch's number is in its commit as the version of a transaction (Delta's
SetTransaction), which the table keeps for each job, however long its log is kept. Delta itself leaves out a write whose
number the table already has. The commit's metadata bears the mark as well: it tells the number of its rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from kafkad_etl.driver.paths import join, storage_of
from kafkad_etl.driver.sinks.lake.marks import Commit, is_last
from kafkad_etl.driver.sinks.lake.sink import Expiry, Merged, create_statement, need_class, setting
from kafkad_etl.driver.terms import BatchId, JobFailed
from kafkad_etl.job import Sink
from kafkad_etl.messages import Failed
from kafkad_etl.sql_text import named, quoted

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
SETTINGS = {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
"""Settings that a session needs from the start for Delta."""
RECENT = 20
"""How many commits are searched for the figures of one: those of others may follow it."""
LOG = "_delta_log"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated")
"""The figures of a MERGE that make up the batch's rows."""
COMPACTION = "kafkad-etl.compaction"
"""Begins the metadata of a commit that merged files."""
SMALL_FILES = "spark.databricks.delta.optimize.minFileSize"
HOUR_MS = 3_600_000
GB = 1 << 30
"""Delta's default for it."""


class DeltaTable:
    def __init__(self, spark: Any, sink: Sink) -> None:
        self._spark = spark
        self._files = storage_of(spark, sink.path)
        self._path = self._files.absolute(sink.path)
        self.name = sink.path
        self.sql = f"delta.{named(self._path)}"

    def need_format(self) -> None:
        need_class(self._spark, CATALOG, "delta")
        if EXTENSION not in self._spark.conf.get("spark.sql.extensions", ""):
            hints = [f"add {EXTENSION} to spark.conf spark.sql.extensions, or remove that setting"]
            text = "sink.type is delta, but spark.sql.extensions of this session does not name Delta's"
            raise JobFailed(Failed(kind="environment", text=text, hints=hints))

    def exists(self) -> bool:
        return self._files.exists(join(self._path, LOG))

    def create(self, columns: list[tuple[str, str]], partition_by: tuple[str, ...]) -> None:
        if self._files.under(self._path):  # Delta would take the directory, and leave those files out of the table
            text = f"{self.name} has files and is no table of Delta"
            hints = ["set sink.path to an empty directory", f"or CONVERT TO DELTA parquet.`{self._path}` first"]
            raise JobFailed(Failed(kind="sink", text=text, hints=hints))
        self._spark.sql(create_statement(self.sql, "delta", columns, partition_by))

    def partitions(self) -> list[str]:
        return [str(name).lower() for name in self._snapshot().metadata().partitionSchema().fieldNames()]

    def committed(self, job: str, batch: BatchId) -> Commit | None:
        mark = f"{_application(job, batch.checkpoint_id)}/{batch.number}"
        last = self._last_version(_application(job, batch.checkpoint_id))
        return self.commit_of(mark) if is_last(batch.number, last, self.name) else None

    def commit_of(self, mark: str) -> Commit:
        found = self._history().where(f"userMetadata = {quoted(mark)}").select("operationMetrics").take(1)
        if not found:
            return Commit(0, mark)

        def number(*names: str) -> int:
            return next((int(found[0][0][name]) for name in names if name in found[0][0]), 0)

        merged = sum(number(name) for name in MERGED)  # its numOutputRows are also those that it copied
        files = number("numFiles", "numTargetFilesAdded")
        return Commit(
            0, mark, merged or number("numOutputRows"), files, number("numOutputBytes", "numTargetBytesAdded")
        )

    @contextmanager
    def marking(self, session: Any, mark: str, *, is_repeatable: bool) -> Iterator[dict[str, str]]:
        settings = {USER_METADATA: mark}
        if is_repeatable:
            application, _, number = mark.rpartition("/")
            settings["spark.databricks.delta.write.txnAppId"] = application
            settings["spark.databricks.delta.write.txnVersion"] = number
        with setting(session, settings):
            yield {}

    def merge(self, session: Any, statement: str, mark: str, rows: int) -> None:
        session.sql(statement)

    def compact(self, min_files: int) -> Merged:
        wanted = self._partitions_to_merge(min_files)
        if not wanted:
            return Merged()
        mark = f"{COMPACTION}/{uuid4().hex}"
        where = f" WHERE {' OR '.join(wanted)}" if all(wanted) else ""
        with setting(self._spark, {USER_METADATA: mark}):
            self._spark.sql(f"OPTIMIZE {self.sql}{where}")
        history = self._history().where(f"userMetadata = {quoted(mark)}").select("version").collect()
        actions = [action for (version,) in history for action in self._actions_of(version)]
        added = [action["add"] for action in actions if "add" in action]
        removed = [action["remove"] for action in actions if "remove" in action]
        rows = sum(json.loads(each.get("stats") or "{}").get("numRecords", 0) for each in added)
        before, after = (sum(each.get("size") or 0 for each in files) for files in (removed, added))
        return Merged(rows, len(removed), len(added), before, after)

    def expire(self, now_ms: int, age_ms: int, ours: str) -> Expiry:
        """The log is Delta's own to shorten, and keeps the numbers of batches."""
        self._spark.sql(f"VACUUM {self.sql} RETAIN {age_ms / HOUR_MS:.3f} HOURS")
        found = self._history().where("operation = 'VACUUM END'").select("operationMetrics").take(1)
        return Expiry(now_ms - age_ms, int(found[0][0].get("numDeletedFiles", 0)) if found else 0)

    def _partitions_to_merge(self, min_files: int) -> list[str]:
        """A condition for each partition that has enough small files; an empty one for a table without partitions."""
        from pyspark.sql import DataFrame

        snapshot = self._snapshot()
        names = list(snapshot.metadata().partitionSchema().fieldNames())
        keys = list(snapshot.metadata().physicalPartitionSchema().fieldNames())
        small = int(self._spark.conf.get(SMALL_FILES, str(GB)))
        files = DataFrame(snapshot.allFiles().toDF(), self._spark).where(f"size < {small}")
        values = [f"partitionValues[{quoted(key)}] AS p{at}" for at, key in enumerate(keys)]
        counts = files.selectExpr("1 AS file", *values).groupBy(*(f"p{at}" for at in range(len(keys)))).count()
        return [
            " AND ".join(_is(name, value) for name, value in zip(names, row[:-1], strict=True))
            for row in counts.where(f"count >= {min_files}").collect()
        ]

    def _history(self) -> Any:
        return self._spark.sql(f"DESCRIBE HISTORY {self.sql} LIMIT {RECENT}")

    def _actions_of(self, version: int) -> list[dict[str, Any]]:
        content = self._files.read(join(join(self._path, LOG), f"{version:020}.json"))
        return [json.loads(line) for line in content.splitlines()]

    def _last_version(self, application: str) -> int | None:
        found = self._snapshot().transactions().get(application)
        return int(found.get()) if found.isDefined() else None

    def _snapshot(self) -> Any:
        """The table as it is now."""
        log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path)
        defaults = [getattr(log, f"update$default${place}")() for place in (2, 3)]
        return log.update(False, *defaults)


def _is(column: str, value: str | None) -> str:
    return f"{named(column)} IS NULL" if value is None else f"{named(column)} = {quoted(value)}"


def _application(job: str, checkpoint_id: str) -> str:
    return f"{job}/{checkpoint_id}"
