"""Task `compact` for files, also run for `sink.compact` after a run: merges small files into large ones.

Nobody else writes to the job's files at the same time, since the front holds the checkpoint's lock. json and csv files
are merged line by line, with the csv header taken once. Before old files are removed, Spark compares row counts. Tables
of a lake are in `upkeep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafkad_etl.driver.paths import join
from kafkad_etl.driver.sinks.disks import explaining_full_disk
from kafkad_etl.driver.sinks.files.merging import Merge
from kafkad_etl.driver.sinks.files.sink import MB, Place, options, place_of
from kafkad_etl.driver.terms import DataFrame, Front, JobFailed
from kafkad_etl.job import Sink as Settings
from kafkad_etl.messages import Compacted, EndReason, Failed, Plan, Warned


def compact(spark: Any, plan: Plan, front: Front) -> EndReason:
    place = place_of(spark, plan)
    settings = plan.job.sink
    place.merging.settle()
    if warning := place.directory.settle():
        front.send(Warned(warning))
    with whole_files(spark):
        for merge in place.merging.merges(settings.compact.min_files, settings.target_file_mb * MB):
            if front.stop:
                return "stopped"
            with explaining_full_disk(place.files, place.layout.target):
                front.send(_merged(spark, place, settings, merge))
    if place.merging.was_seen:
        front.send(Warned(duplicates_warning(place.layout.target)))
    return "done"


def duplicates_warning(target: str) -> str:
    return (
        f"directories in {target} cannot be exchanged atomically: readers may have seen rows twice while files were "
        "merged"
    )


def _merged(spark: Any, place: Place, settings: Settings, merge: Merge) -> Compacted:
    old = [join(place.layout.target, name) for name in merge.names]
    rows = count(spark, settings, old)
    place.merging.settle()
    write(spark, settings, old, place.merging.staging)
    new = [join(place.merging.staging, entry.path) for entry in place.merging.written()]
    merged = count(spark, settings, new)
    if merged != rows:
        raise JobFailed(_differs(place.layout.target, merge, rows, merged))
    return place.merging.replace(merge, rows)


@contextmanager
def whole_files(spark: Any) -> Iterator[None]:
    """Keeps the lines of each file in order, as csv values spanning several lines require."""
    conf = "spark.sql.files.minPartitionNum"
    spark.conf.set(conf, "1")
    try:
        yield
    finally:
        spark.conf.unset(conf)


def count(spark: Any, settings: Settings, paths: list[str]) -> int:
    """Counts rows; for parquet, from the files' footers."""
    readers: dict[str, Callable[[], DataFrame]] = {
        "parquet": lambda: spark.read.parquet(*paths),
        "json": lambda: spark.read.text(paths, lineSep="\n"),
        "csv": lambda: spark.read.options(**options(settings)).option("multiLine", True).csv(paths),
    }
    return int(readers[settings.type]().count())


def write(spark: Any, settings: Settings, old: list[str], staging: str) -> None:
    if settings.type == "parquet":
        rows = spark.read.option("mergeSchema", True).parquet(*old).coalesce(1)
        rows.write.options(**options(settings)).parquet(staging)
        return
    lines = spark.read.text(old, lineSep="\n")
    if settings.type == "csv" and settings.csv.header:
        header = spark.read.text(old[:1], lineSep="\n").take(1)
        first = spark.createDataFrame(header, "value string")
        lines = first.union(lines.where(lines.value != header[0][0]))
    compression = options(settings)["compression"]
    lines.coalesce(1).write.options(compression=compression, lineSep="\n").text(staging)


def _differs(target: str, merge: Merge, rows: int, merged: int) -> Failed:
    return Failed(
        kind="sink",
        text=f"{len(merge.files)} files in {join(target, merge.directory)} have {rows} rows, but the merged file "
        f"has {merged}: "
        "they are left as they were",
        hints=["check that all of them have the same columns in the same order"],
    )
