"""Sinks `parquet`, `json` and `csv`: files in a directory that others may read while the job runs.

`manifest` describes how a batch appears there. In addition, `overwrite` and `overwrite_partitions` put the new files in
place before removing the old ones, so in between readers see both; the next run cleans up after a crash. An empty batch
writes no files, and with `overwrite` leaves none.

Mode batch has no checkpoint from which a batch could be repeated. If a run was interrupted while its files appeared,
the next run removes them if it reads all their rows again; otherwise it completes them, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kafkad_etl.driver.counting import counted
from kafkad_etl.driver.paths import ATOMIC_RENAME, Entry, Files, Storage, join, parent_and_name, storage_of
from kafkad_etl.driver.sinks.disks import explaining_full_disk
from kafkad_etl.driver.sinks.files.directory import Layout, TargetDirectory, not_shared, visible
from kafkad_etl.driver.sinks.files.manifest import Manifests
from kafkad_etl.driver.sinks.files.merging import Merging
from kafkad_etl.driver.sinks.text_formats import TIMES, csv_mistake, csv_options, nested
from kafkad_etl.driver.source.csv_rows import quotes
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed, Written
from kafkad_etl.facts import MANIFESTS, MERGES
from kafkad_etl.job import Offsets
from kafkad_etl.job import Sink as Settings
from kafkad_etl.messages import Event, Failed, Plan, Warned

MB = 1 << 20
NO_SUCCESS = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
"""An empty file _SUCCESS, which would be in staging alone."""
ROWS_PER_TASK = 25_000
PROBE = "probe"
"""The directory in staging to which executors write on a cluster before the first batch."""
FIRST_GUESS = 100
"""Bytes per offset, until a batch has shown the real figure."""


class Place(NamedTuple):
    """The directories and helpers of a job's file sink."""

    files: Storage
    layout: Layout
    directory: TargetDirectory
    merging: Merging


def place_of(spark: Any, plan: Plan) -> Place:
    files = storage_of(spark, plan.job.sink.path)
    target = files.absolute(plan.job.sink.path)
    layout = Layout.of(target, plan)
    manifest_files = storage_of(spark, layout.manifests)
    directory = TargetDirectory(files, layout, Manifests(manifest_files, layout.manifests), plan)
    return Place(files, layout, directory, Merging(files, manifest_files, layout, plan.job.name))


def tidy(spark: Any, plan: Plan) -> None:
    """Removes staging directories that are empty."""
    place = place_of(spark, plan)
    staging = place.layout.staging
    for path in (join(staging, MERGES), join(staging, MANIFESTS), staging, parent_and_name(staging)[0]):
        place.files.remove_if_empty(path)


class FileSink:
    def __init__(self, spark: Any, plan: Plan, tell: Callable[[Event], None]) -> None:
        self._spark = spark
        self._plan = plan
        self._settings = plan.job.sink
        self._tell = tell
        self._files, self._layout, self._directory, self._merging = place_of(spark, plan)
        self._bytes_per_offset: float = FIRST_GUESS

    def prepare(self, columns: list[tuple[str, str]]) -> None:
        failed = mistake(self._settings, columns)
        if failed is not None:
            raise JobFailed(failed)
        if self._files.scheme not in ATOMIC_RENAME:
            self._tell(Warned(copied(self._files.scheme, self._settings.mode)))
        self._check_devices()
        if self._files.scheme == "file" and not self._spark.sparkContext.master.startswith("local"):
            need_shared(self._spark, self._files, join(self._layout.staging, PROBE))
        conf = "spark.sql.parquet.outputTimestampType"
        if conf not in self._plan.job.spark.conf:
            self._spark.conf.set(conf, "TIMESTAMP_MICROS")  # Spark's own default, INT96, is one that others gave up
        self._merging.settle()
        self._settle_cut_off()
        if self._settings.mode == "error" and (there := self._directory.there()):
            raise JobFailed(_not_empty(self._layout.target, there))

    def finished(self, batch: BatchId) -> Written | None:
        self._settle_cut_off()  # of an attempt of this run that failed
        return self._directory.finished(batch)

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        with explaining_full_disk(self._files, self._layout.target):
            staging = self._directory.staging(batch)
            counting = counted(self._arranged(rows, batch))
            self._writer(counting.rows).save(staging)
            written = self._directory.appear(batch, counting.total())
        if (offsets := offsets_of(batch.start, batch.end)) and written.bytes:
            self._bytes_per_offset = written.bytes / offsets
        return written

    def _arranged(self, rows: DataFrame, batch: BatchId) -> DataFrame:
        offsets = offsets_of(batch.start, batch.end)
        if not offsets:
            return rows
        cores = self._spark.sparkContext.defaultParallelism
        wanted = tasks(offsets, self._bytes_per_offset, self._settings.target_file_mb, cores)
        return rows.coalesce(wanted)

    def _writer(self, rows: DataFrame) -> Any:
        return writer(rows, self._settings).partitionBy(*self._settings.partition_by)

    def _settle_cut_off(self) -> None:
        warning = self._directory.settle_cut_off()
        if warning:
            self._tell(Warned(warning))

    def _check_devices(self) -> None:
        """Fails for a mount point: there is no place next to it from which files could be renamed into it."""
        target, staging = self._layout.target, self._layout.staging
        if self._files.exists(target):
            self._files.make(staging)
            if not self._files.on_one_device(target, staging):
                raise JobFailed(_mount_point(target))


def need_shared(spark: Any, files: Files, directory: str) -> None:
    """Fails unless the driver sees what executors write: a file of each of as many tasks as run at once."""
    tasks = max(2, spark.sparkContext.defaultParallelism)
    files.remove(directory)
    try:
        spark.range(0, tasks, 1, tasks).write.parquet(directory)
        seen = sum(entry.path.endswith(".parquet") for entry in visible(files.under(directory)))
    finally:
        files.remove(directory)
    if seen < tasks:
        raise JobFailed(not_shared(f"executors wrote {tasks} files to {directory}, and the driver sees {seen} of them"))


def writer(rows: DataFrame, settings: Settings) -> Any:
    return rows.write.format(settings.type).mode("append").options(**options(settings))


def options(settings: Settings) -> dict[str, Any]:
    compression = settings.compression or ("zstd" if settings.type == "parquet" else "none")
    chosen: dict[str, Any] = {"compression": compression, NO_SUCCESS: "false"}
    if settings.type == "parquet" and compression == "lz4":
        chosen["compression"] = "lz4_raw"  # "lz4" is Hadoop's own framing, which few others read
    if settings.type == "json":
        chosen |= {"ignoreNullFields": False, **TIMES}
    if settings.type == "csv":
        chosen |= {"header": settings.csv.header, **csv_options(settings.csv), **quotes(settings.options)}
    return chosen | settings.options


def mistake(settings: Settings, columns: list[tuple[str, str]]) -> Failed | None:
    types = dict(columns)
    unknown = [name for name in settings.partition_by if name not in types]
    if unknown:
        text = f"sink.partition_by names {unknown[0]}, which the result does not have: {', '.join(types)}"
        return Failed(kind="schema", text=text)
    for name in settings.partition_by:
        if nested(types[name]):
            return Failed(
                kind="schema", text=f"sink.partition_by: {name} is {types[name]}, which cannot name directories"
            )
    rest = [(name, kind) for name, kind in columns if name not in settings.partition_by]
    if not rest:
        return Failed(kind="schema", text="sink.partition_by names every column, leaving none for the files")
    if settings.type == "csv" and (failed := csv_mistake(rest)):
        return failed
    if settings.type != "parquet" and settings.compression == "zstd":
        hints = ["use gzip, snappy or lz4"]
        return Failed(kind="sink", text=f"Spark's {settings.type} files cannot be compressed by zstd", hints=hints)
    return None


def tasks(offsets: int, bytes_per_offset: float, target_mb: int, cores: int) -> int:
    """The number of writing tasks, each producing at least one file: few enough for large files, but enough to keep
    the cores busy."""
    files = -(-int(offsets * bytes_per_offset) // (target_mb * MB))
    return max(files, min(cores, offsets // ROWS_PER_TASK), 1)


def offsets_of(start: Offsets, end: Offsets) -> int:
    return sum(
        last - start.get(topic, {}).get(partition, 0)
        for topic, partitions in end.items()
        for partition, last in partitions.items()
    )


def copied(scheme: str, mode: str) -> str:
    replaces = (
        "; for a while, readers see both the old files and those that replace them"
        if mode.startswith("overwrite")
        else ""
    )
    return (
        f"{scheme}:// cannot rename: files are copied from staging one by one, and each appears only once "
        f"complete{replaces}"
    )


def _not_empty(target: str, there: list[Entry]) -> Failed:
    return Failed(
        kind="sink",
        text=f"sink.mode is error, and {target} already has {len(there)} files",
        hints=["set sink.mode to append, overwrite or overwrite_partitions"],
    )


def _mount_point(target: str) -> Failed:
    return Failed(
        kind="sink",
        text=f"sink.path: {target} is a mount point, and files cannot be renamed into it from the outside",
        hints=[f"use a directory below it: {join(target, 'data')}"],
    )
