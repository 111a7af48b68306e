"""Tables of Apache Iceberg, in a catalog of its own in Spark. A commit's mark is in its snapshot's summary."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.sinks.lake.marks import PROPERTY, ROWS, Commit, committed
from kafkad_etl.driver.sinks.lake.merging import merge
from kafkad_etl.driver.sinks.lake.sink import Expiry, Merged, create_statement, need_class, setting
from kafkad_etl.driver.terms import BatchId, JobFailed
from kafkad_etl.facts import SQLITE
from kafkad_etl.job import Catalog, Sink
from kafkad_etl.job import IcebergSink as Settings
from kafkad_etl.messages import Failed
from kafkad_etl.sql_text import named

CATALOG = "org.apache.iceberg.spark.SparkCatalog"
BASIC = ("rest.auth.basic.username", "rest.auth.basic.password")
CODEC = "spark.sql.iceberg.compression-codec"
"""The compression of files, unless it is the table's own."""
COMPACTION = "kafkad-etl.compaction"
"""The property of a snapshot by which one that merged files is found."""
MB = 1 << 20


def session_settings(sink: Sink) -> dict[str, str]:
    """The session's settings for the sink's catalog."""
    assert sink.iceberg is not None
    prefix = f"spark.sql.catalog.{sink.iceberg.catalog.name}"
    found = {f"{prefix}.{name}": value for name, value in _properties(sink, sink.iceberg.catalog).items()}
    made = {f"{prefix}.jdbc.init-catalog-tables": "false"} if _is_in_sqlite(sink.iceberg.catalog) else {}
    return {prefix: CATALOG} | made | found


def _is_in_sqlite(catalog: Catalog) -> bool:
    return catalog.url.startswith(SQLITE)


def _properties(sink: Sink, catalog: Catalog) -> dict[str, str]:
    login = ("jdbc.user", "jdbc.password") if catalog.type == "jdbc" else BASIC
    found = {
        "type": catalog.type,
        "warehouse": catalog.warehouse or sink.path,
        "uri": catalog.url,
        "token": catalog.token,
        "credential": catalog.credential,
        **dict(zip(login, (catalog.user, catalog.password), strict=True)),
        "rest.auth.type": "basic" if catalog.type == "rest" and catalog.user else "",
        "cache-enabled": "false",
    }
    return {name: value for name, value in found.items() if value} | {
        name: str(value) for name, value in catalog.options.items()
    }


def _unusable(catalog: Catalog, failed: Failed) -> Failed:
    text = f"catalog {catalog.name} cannot be used: {failed.text}"
    hints = [f"check sink.iceberg.catalog: {'url, user and password' if catalog.type == 'jdbc' else 'url and login'}"]
    return replace(failed, kind="catalog", text=text, hints=hints if catalog.url else failed.hints)


class IcebergTable:
    def __init__(self, spark: Any, sink: Sink, settings: Settings) -> None:
        self._spark = spark
        self._sink = sink
        self._settings = settings
        self.name = settings.table
        self.sql = ".".join(map(named, (settings.catalog.name, *settings.table.split("."))))

    def need_format(self) -> None:
        need_class(self._spark, CATALOG, "iceberg")

    def exists(self) -> bool:
        """The first that is asked of the catalog."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            if _is_in_sqlite(self._settings.catalog):
                self._make_catalog()
            return bool(self._spark.catalog.tableExists(self.sql))
        except (Py4JJavaError, PySparkException) as error:
            raise JobFailed(_unusable(self._settings.catalog, failure_of(error))) from error

    def _make_catalog(self) -> None:
        """Has Iceberg make its tables in SQLite. It leaves its look for them open, which keeps everybody from writing
        to the database: so a catalog of its own does it, which is closed then."""
        properties = self._spark._jvm.java.util.HashMap()
        for name, value in _properties(self._sink, self._settings.catalog).items():
            properties.put(name, value)
        build = self._spark._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog
        build(self._settings.catalog.name, properties, self._spark._jsc.hadoopConfiguration()).close()

    def create(self, columns: list[tuple[str, str]], partition_by: tuple[str, ...]) -> None:
        *namespace, _ = self.sql.split(".")
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {'.'.join(namespace)}")
        self._spark.sql(create_statement(self.sql, "iceberg", columns, partition_by))

    def partitions(self) -> list[str]:
        table = self._table()
        schema = table.schema()
        fields = [
            (str(field.transform().toString()), str(schema.findColumnName(field.sourceId())))
            for field in table.spec().fields()
        ]
        return [name.lower() if how == "identity" else f"{how}({name})" for how, name in fields]

    def committed(self, job: str, batch: BatchId) -> Commit | None:
        return committed(self._history(), job, batch, self.name)

    def commit_of(self, mark: str) -> Commit:
        return next((commit for commit in self._history() if commit.mark == mark), Commit(0))

    @contextmanager
    def marking(self, session: Any, mark: str, *, is_repeatable: bool) -> Iterator[dict[str, str]]:
        options = {
            f"snapshot-property.{PROPERTY}": mark,
            "target-file-size-bytes": str(self._sink.target_file_mb * MB),
        }
        yield options | ({"compression-codec": self._sink.compression} if self._sink.compression else {})

    def merge(self, session: Any, statement: str, mark: str, rows: int) -> None:
        merge(self._spark, session, statement, {PROPERTY: mark, ROWS: str(rows)})

    def compact(self, min_files: int) -> Merged:
        with setting(self._spark, {CODEC: self._sink.compression} if self._sink.compression else {}):
            action = self._actions().rewriteDataFiles(self._table())
            action.binPack()
            mark = uuid4().hex
            action.snapshotProperty(COMPACTION, mark)
            for name, value in {
                "min-input-files": min_files,
                "target-file-size-bytes": self._sink.target_file_mb * MB,
                "partial-progress.enabled": "true",  # so that somebody else's change costs a part of the work only
            }.items():
                action.option(name, str(value))
            left = int(action.execute().failedDataFilesCount())
        table = self._table()
        summaries = [snapshot.summary() for snapshot in table.snapshots() if snapshot.summary().get(COMPACTION) == mark]

        def total(name: str) -> int:
            return sum(int(summary.get(name) or 0) for summary in summaries)

        return Merged(
            total("added-records"),
            total("deleted-data-files"),
            total("added-data-files"),
            total("removed-files-size"),
            total("added-files-size"),
            left,
        )

    def expire(self, now_ms: int, age_ms: int, ours: str) -> Expiry:
        before_ms = now_ms - age_ms
        last = next((commit.time_ms for commit in self._history() if commit.mark.startswith(ours)), before_ms)
        before_ms = min(before_ms, last)
        expired = self._actions().expireSnapshots(self._table()).expireOlderThan(before_ms).execute()
        files = sum(
            int(count)
            for count in (
                expired.deletedDataFilesCount(),
                expired.deletedPositionDeleteFilesCount(),
                expired.deletedEqualityDeleteFilesCount(),
                expired.deletedManifestsCount(),
                expired.deletedManifestListsCount(),
            )
        )
        orphans = self._actions().deleteOrphanFiles(self._table()).olderThan(before_ms).execute()
        return Expiry(before_ms, files + sum(1 for _ in orphans.orphanFileLocations()))

    def _actions(self) -> Any:
        return self._spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession)

    def _table(self) -> Any:
        return self._spark._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self._spark._jsparkSession, self.sql
        )

    def _history(self) -> Iterator[Commit]:
        """The table's commits as it has them now, from the newest back; not those that were rolled back."""
        table = self._table()
        snapshot = table.currentSnapshot()
        while snapshot is not None:
            summary, parent = snapshot.summary(), snapshot.parentId()

            def number(*names: str, summary: Any = summary) -> int:
                return next((int(value) for name in names if (value := summary.get(name))), 0)

            yield Commit(
                int(snapshot.timestampMillis()),
                summary.get(PROPERTY) or "",
                number(ROWS, "added-records"),
                number("added-data-files"),
                number("added-files-size"),
                parent is not None,
            )
            snapshot = None if parent is None else table.snapshot(parent)
