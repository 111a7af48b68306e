"""Runs rows of `source` through the job's SQL."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from kafkad_etl.driver.failures import failure_of, sql_failed
from kafkad_etl.driver.source.reader import options_of
from kafkad_etl.driver.terms import DataFrame, JobFailed
from kafkad_etl.facts import POSITION
from kafkad_etl.job import Job, Lookup
from kafkad_etl.sql_text import named

SOURCE = "source"
OUT = "out"


class Query(NamedTuple):
    name: str
    sql: str


def queries(job: Job) -> list[Query]:
    """The job's queries; a single one is named `sql`."""
    if job.transform.steps:
        return [Query(step.name, step.sql) for step in job.transform.steps]
    return [Query("sql", job.transform.sql)] if job.transform.sql else []


def create_lookups(spark: Any, job: Job) -> None:
    """Raises JobFailed, with the key of the lookup, for one that cannot be read."""
    for name, lookup in job.transform.lookups.items():
        try:
            _read(spark, lookup).cache().createOrReplaceTempView(name)
        except Exception as error:
            key = f"transform.lookups.{name}" + (".path" if lookup.path else "")
            raise JobFailed(replace(failure_of(error), step=key)) from error


def _read(spark: Any, lookup: Lookup) -> DataFrame:
    reader = spark.read.format(lookup.format).options(**options_of(lookup))
    if lookup.schema:
        reader = reader.schema(lookup.schema)
    return reader.load(lookup.path) if lookup.path else reader.load()


def result(source: DataFrame, job: Job) -> DataFrame:
    """The result of the job's SQL. Temporary views belong to the frame's own session, since a stream's batches have
    a different one from the driver's."""
    from pyspark.errors import AnalysisException

    session = source.sparkSession
    source.createOrReplaceTempView(SOURCE)
    out = None
    for query in queries(job):
        try:
            out = session.sql(query.sql)
        except AnalysisException as error:  # ParseException is one
            raise sql_failed(error, query.name) from error
        out.createOrReplaceTempView(query.name)
    if out is None:
        return source.select(*[named(name) for name in plain_columns(source.columns, job)])
    return out.select("*")  # whose plan has the views' own in it: Spark looks there for what is observed


def has_limit(out: DataFrame) -> bool:
    """True if the SQL contains a limit anywhere, as Spark understands it: TABLESAMPLE (n ROWS) is one too."""
    limit = out.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.LIMIT()
    return bool(out._jdf.queryExecution().analyzed().containsPattern(limit))


def plain_columns(columns: list[str], job: Job) -> list[str]:
    """Columns of a job without SQL: the record's own, and those that the sink asks for."""
    sink = job.sink
    wanted = set(sink.partition_by)
    if sink.topic:
        wanted |= {sink.topic.key, sink.topic.partition, sink.topic.headers}
        if sink.topic.source_header:
            wanted |= set(POSITION)
    return [name for name in columns if not name.startswith("_") or name in wanted]


def first_of_each(source: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Drops duplicates within one batch, always keeping the same row."""
    if "_offset" not in source.columns:
        return source.dropDuplicates(list(keys))
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy(*[named(key) for key in keys]).orderBy("_timestamp", "_topic", "_partition", "_offset")
    return source.withColumn("_nth", f.row_number().over(order)).where("_nth = 1").drop("_nth")
