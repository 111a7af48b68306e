"""Configures Spark's readers according to the Plan."""

from __future__ import annotations

import json
from typing import Any

from kafkad_etl.driver.source.csv_rows import quotes
from kafkad_etl.driver.terms import BatchId, DataFrame, JobFailed
from kafkad_etl.facts import CORRUPT, FILE, MERGED
from kafkad_etl.job import Files, Lookup, Offsets
from kafkad_etl.messages import Failed, Plan, Reading

EARLIEST = -2
ANY_AGE = {"maxFileAge": "36500d"}
"""Files of any age, of which Spark's stream otherwise leaves out those a week older than the newest one."""
NAMES = "pathGlobFilter"
"""The option of Spark's reader for which names of files are read."""


def offsets_text(offsets: Offsets) -> str:
    return json.dumps({topic: {str(p): offset for p, offset in parts.items()} for topic, parts in offsets.items()})


def client_options(plan: Plan, reading: Reading) -> dict[str, str]:
    source = plan.job.source
    client = {"isolation.level": source.isolation, "max.poll.records": str(source.poll_records)} | reading.client
    options = {f"kafka.{name}": value for name, value in client.items()}
    options["failOnDataLoss"] = str(reading.fail_on_data_loss).lower()
    options["includeHeaders"] = str(source.headers).lower()
    if source.min_partitions:
        options["minPartitions"] = str(source.min_partitions)
    return options


def bounded_options(plan: Plan, reading: Reading, start: Offsets, end: Offsets) -> dict[str, str]:
    """Options to read exactly these offsets, without partitions added since. A partition missing in `start` is read
    from its beginning."""
    begin = {t: {p: start.get(t, {}).get(p, EARLIEST) for p in parts} for t, parts in end.items()}
    assigned = json.dumps({topic: sorted(parts) for topic, parts in end.items()})
    where = {"assign": assigned, "startingOffsets": offsets_text(begin), "endingOffsets": offsets_text(end)}
    return client_options(plan, reading) | where


def stream_options(plan: Plan, reading: Reading) -> dict[str, str]:
    where = {reading.how: reading.what, "startingOffsets": offsets_text(reading.start)}
    return client_options(plan, reading) | where | {"maxOffsetsPerTrigger": str(plan.job.source.rows_per_batch)}


def bounded(spark: Any, plan: Plan, start: Offsets, end: Offsets) -> DataFrame:
    assert plan.reading
    return spark.read.format("kafka").options(**bounded_options(plan, plan.reading, start, end)).load()


class PlannedSource:
    """The source that a Plan names."""

    def __init__(self, spark: Any, plan: Plan) -> None:
        self._spark, self._plan = spark, plan

    def stream(self) -> DataFrame:
        spark, plan = self._spark, self._plan
        if plan.reading:
            return spark.readStream.format("kafka").options(**stream_options(plan, plan.reading)).load()
        need_unmerged(spark, plan)
        return files(spark.readStream, plan)

    def everything(self) -> DataFrame:
        return everything(self._spark, self._plan)

    def again(self, batch: BatchId) -> DataFrame | None:
        return bounded(self._spark, self._plan, batch.start, batch.end) if self._plan.reading else None


def everything(spark: Any, plan: Plan) -> DataFrame:
    """The whole source of a run in mode batch."""
    if plan.reading:
        return bounded(spark, plan, plan.reading.start, plan.reading.end)
    return files(spark.read, plan)


def options_of(block: Files | Lookup) -> dict[str, str]:
    """Options for Spark's reader. The block's own come last, so that they win."""
    ours = quotes(block.options) if block.format == "csv" else {}
    if isinstance(block, Files):
        ours |= ANY_AGE
    return ours | {name: str(value) for name, value in block.options.items()}


def need_unmerged(spark: Any, plan: Plan) -> None:
    """Fails if files of the source were merged: a stream takes the merged file for a new one, and reads again the rows
    of those that it has replaced. A job that says itself which names it reads is taken at its word."""
    source = plan.job.source.files
    assert source
    options = options_of(source)
    if NAMES.lower() in map(str.lower, options):
        return
    reader = spark.read.format(source.format).schema(source.schema).options(**options, **{NAMES: MERGED})
    try:
        merged = reader.load(source.path).inputFiles()
    except Exception as error:
        from pyspark.errors import AnalysisException

        if not isinstance(error, AnalysisException) or error.getCondition() != "PATH_NOT_FOUND":
            raise
        return  # nothing is there yet
    if merged:
        raise JobFailed(_merged(sorted(merged)[0], len(merged)))


def _merged(first: str, count: int) -> Failed:
    others = f" and {count - 1} more" if count > 1 else ""
    return Failed(
        kind="store",
        text=f"source.files.path has merged files, whose rows would be read again: {first}{others}",
        hints=[
            "read what the job that merges there reads, or a directory that is not merged (sink.compact)",
            "run.mode: batch reads all files anew, each row once",
            'source.files.options: {pathGlobFilter: "*"} reads them again, if the sink replaces rows of equal keys',
        ],
    )


def files(reader: Any, plan: Plan) -> DataFrame:
    source = plan.job.source.files
    assert source
    reader = reader.format(source.format).options(**options_of(source))
    if not source.schema:
        return reader.load(source.path)
    if source.format == "parquet":
        return reader.schema(source.schema).load(source.path)
    reader = reader.schema(f"{source.schema}, {CORRUPT} STRING").option("columnNameOfCorruptRecord", CORRUPT)
    return reader.load(source.path).selectExpr("*", f"_metadata.file_path AS {FILE}")
