"""Tables of Delta Lake, in a directory. A batch's number is in its commit as the version of a transaction (Delta's
SetTransaction), which the table keeps for each job, however long its log is kept. Delta itself leaves out a write whose
number the table already has. The commit's metadata bears the mark as well: it tells the number of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafkad_etl.driver.paths import HadoopFiles, join
from kafkad_etl.driver.sinks.lake.marks import Commit, is_last
from kafkad_etl.driver.sinks.lake.sink import create_statement, need_class
from kafkad_etl.driver.terms import BatchId, JobFailed
from kafkad_etl.job import Sink
from kafkad_etl.messages import Failed

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
SETTINGS = {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
"""Settings that a session needs from the start for Delta."""
RECENT = 20
"""How many commits are searched for the figures of one: those of others may follow it."""
LOG = "_delta_log"


class DeltaTable:
    def __init__(self, spark: Any, sink: Sink) -> None:
        self._spark = spark
        self._files = HadoopFiles(spark, sink.path)
        self._path = self._files.absolute(sink.path)
        self.name = sink.path
        self.sql = f"delta.`{self._path.replace('`', '``')}`"

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
        (found,) = self._spark.sql(f"DESCRIBE DETAIL {self.sql}").select("partitionColumns").collect()
        return [name.lower() for name in found[0]]

    def committed(self, job: str, batch: BatchId) -> Commit | None:
        mark = f"{_application(job, batch.checkpoint_id)}/{batch.number}"
        last = self._last_version(_application(job, batch.checkpoint_id))
        return self.commit_of(mark) if is_last(batch.number, last, self.name) else None

    def commit_of(self, mark: str) -> Commit:
        history = self._spark.sql(f"DESCRIBE HISTORY {self.sql} LIMIT {RECENT}")
        found = history.where(history.userMetadata == mark).select("operationMetrics").take(1)
        if not found:
            return Commit(0, mark)

        def number(*names: str) -> int:
            return next((int(found[0][0][name]) for name in names if name in found[0][0]), 0)

        files = number("numFiles", "numTargetFilesAdded")
        return Commit(0, mark, number("numOutputRows"), files, number("numOutputBytes", "numTargetBytesAdded"))

    @contextmanager
    def marking(self, session: Any, mark: str, *, is_repeatable: bool) -> Iterator[dict[str, str]]:
        settings = {"spark.databricks.delta.commitInfo.userMetadata": mark}
        if is_repeatable:
            application, _, number = mark.rpartition("/")
            settings["spark.databricks.delta.write.txnAppId"] = application
            settings["spark.databricks.delta.write.txnVersion"] = number
        for name, value in settings.items():
            session.conf.set(name, value)
        try:
            yield {}
        finally:
            for name in settings:
                session.conf.unset(name)

    def merge(self, session: Any, statement: str, mark: str) -> None:
        session.sql(statement)

    def _last_version(self, application: str) -> int | None:
        log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, self._path)
        defaults = [getattr(log, f"update$default${place}")() for place in (2, 3)]
        found = log.update(False, *defaults).transactions().get(application)
        return int(found.get()) if found.isDefined() else None


def _application(job: str, checkpoint_id: str) -> str:
    return f"{job}/{checkpoint_id}"
