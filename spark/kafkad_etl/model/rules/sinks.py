"""Rules for `sink`."""

from __future__ import annotations

from collections.abc import Iterator

from kafkad_etl.facts import FILES, KNOWN_DATABASES, TABLES, duration_ms, is_streaming
from kafkad_etl.job import JdbcSink, Job, Kafka, Sink, TopicSink
from kafkad_etl.model.document import Mistake
from kafkad_etl.model.rules import catalogs, registries
from kafkad_etl.model.rules.sources import reads, topic_name

_OWN_BLOCKS = ("topic", "jdbc", "iceberg", "console")
_NEEDED_BLOCKS = ("topic", "jdbc", "iceberg")
_PATHS = (*FILES, *TABLES)
_ONLY_FOR = {
    "path": _PATHS,
    "partition_by": _PATHS,
    "mode": _PATHS,
    "compression": (*FILES, "iceberg"),
    "target_file_mb": (*FILES, "iceberg"),
    "compact": _PATHS,
    "csv": ("csv",),
    "options": _PATHS,
    "schema_changes": TABLES,
    "keys": TABLES,
}
"""Keys of `sink`, and the types they apply to."""
_UNCHECKED = "spark.databricks.delta.retentionDurationCheck.enabled"
"""Delta's own protection, which may be turned off."""
_BY_BATCH = ("upsert", "overwrite_partitions")
"""Modes in which each batch of a stream may replace rows of earlier ones."""
_TEXT_COMPRESSIONS = ("", "none", "snappy", "gzip", "lz4")


def mistakes(job: Job) -> Iterator[Mistake]:
    sink = job.sink
    yield from _blocks(sink)
    if sink.type in _PATHS:
        yield from _files(job)
        yield from _expiry(job)
    if sink.type in TABLES:
        yield from _keys(sink)
    if sink.type == "topic" and sink.topic is not None:
        yield from _topic(job, sink.topic)
    if sink.type == "jdbc" and sink.jdbc is not None:
        yield from _jdbc(sink.jdbc)
    if sink.type == "iceberg" and sink.iceberg is not None:
        yield from catalogs.mistakes(job, sink.iceberg)
    yield from _output(job)


def _blocks(sink: Sink) -> Iterator[Mistake]:
    if sink.type in _NEEDED_BLOCKS and getattr(sink, sink.type) is None:
        yield Mistake("sink", f"type {sink.type} needs the block `{sink.type}`")
    empty = Sink(type=sink.type)
    for name in _OWN_BLOCKS:
        if name != sink.type and getattr(sink, name) != getattr(empty, name):
            yield Mistake(f"sink.{name}", f"the type is {sink.type}", (f"set type: {name}, or remove the block",))
    for name, types in _ONLY_FOR.items():
        if sink.type not in types and getattr(sink, name) != getattr(empty, name):
            hint = (
                f"use the block `{sink.type}`" if sink.type in _OWN_BLOCKS and sink.type not in _PATHS else "remove it"
            )
            yield Mistake(f"sink.{name}", f"applies only to type {', '.join(types)}, not {sink.type}", (hint,))


def _files(job: Job) -> Iterator[Mistake]:
    sink = job.sink
    if not sink.path and not (sink.iceberg and sink.iceberg.catalog.type == "rest"):
        yield Mistake("sink", f"{sink.type} needs a `path`")
    if len(set(sink.partition_by)) < len(sink.partition_by):
        yield Mistake("sink.partition_by", "names a column twice")
    for index, name in enumerate(sink.partition_by if sink.type in FILES else ()):
        if name.startswith("."):
            text = "nobody sees directories whose names begin with a dot"
            yield Mistake(f"sink.partition_by.{index}", text, ("rename it in the SQL",))
    if sink.type in ("json", "csv") and sink.compression not in _TEXT_COMPRESSIONS:
        yield Mistake("sink.compression", f"Spark cannot write {sink.type} with {sink.compression}", ("use gzip",))
    if sink.mode == "overwrite_partitions" and not sink.partition_by:
        yield Mistake("sink.mode", "overwrite_partitions needs `partition_by`")
    if sink.mode == "upsert" and sink.type not in TABLES:
        only = ", ".join(TABLES)
        yield Mistake("sink.mode", f"upsert applies only to type {only}, not {sink.type}", ("jdbc has its own",))
    elif (
        not (sink.mode == "append" or (sink.type in TABLES and sink.mode in _BY_BATCH))
        and is_streaming(job)
        and (sink.mode, job.run.output) != ("overwrite", "complete")
    ):
        yield Mistake(
            "sink.mode",
            f"in mode {job.run.mode} every batch would replace the one before",
            ("use mode: append, or run.mode: batch",),
        )


def _expiry(job: Job) -> Iterator[Mistake]:
    path, wanted = "sink.compact.expire_after", job.sink.compact.expire_after
    if not wanted:
        return
    if job.sink.type not in TABLES:
        yield Mistake(path, f"applies only to type {', '.join(TABLES)}, not {job.sink.type}", ("remove it",))
        return
    try:
        given = duration_ms(wanted)
    except ValueError as error:
        yield Mistake(path, str(error), ("30d",))
        return
    unchecked = str(job.spark.conf.get(_UNCHECKED, True)).lower() == "false"
    least = "7d" if job.sink.type == "delta" and not unchecked else "1d"
    if given < duration_ms(least):
        why = f"files of writers that have not committed yet look the same as files that nobody needs: at least {least}"
        yield Mistake(path, why)


def _keys(sink: Sink) -> Iterator[Mistake]:
    if sink.mode == "upsert" and not sink.keys:
        yield Mistake("sink", "upsert needs `keys`", ("the columns that identify a row",))
    if sink.mode != "upsert" and sink.keys:
        yield Mistake("sink.keys", f"{sink.mode} takes no keys", ("use mode: upsert",))


def _topic(job: Job, sink: TopicSink) -> Iterator[Mistake]:
    yield from topic_name(sink.topic, "sink.topic.topic")
    with_schema = {"avro": "orders.avsc", "protobuf": "orders.proto"}
    if sink.format in with_schema and sink.schema is None and sink.registry is None:
        hint = f"schema: {{file: {with_schema[sink.format]}}}, or registry: {{url: …}}"
        yield Mistake("sink.topic", f"{sink.format} needs a `schema`", (hint,))
    if sink.format not in with_schema and sink.schema is not None and not (sink.format == "json" and sink.registry):
        hints = ("json takes one with a `registry`",) if sink.format == "json" else ()
        yield Mistake("sink.topic.schema", f"only avro and protobuf take a schema, not {sink.format}", hints)
    if sink.message and sink.format != "protobuf":
        yield Mistake("sink.topic.message", f"applies only to protobuf, not to {sink.format}")
    if sink.registry is not None:
        yield from registries.sink_mistakes(sink, sink.registry)
    if sink.create is not None and sink.create.replication == 0:
        yield Mistake("sink.topic.create.replication", "must be at least 1, or -1 for the cluster's default")
    if sink.delivery == "exactly-once":
        yield from _exactly_once(job, sink)
    if reads(job.source, sink.topic) and _same_cluster(job.kafka, sink.kafka):
        yield Mistake(
            "sink.topic.topic", f"{sink.topic} is read by this job: rows it writes would be read again without end"
        )


def _exactly_once(job: Job, sink: TopicSink) -> Iterator[Mistake]:
    path = "sink.topic.delivery"
    if not is_streaming(job):
        said = "exactly-once needs a checkpoint that says which batch comes next, and mode batch has none"
        yield Mistake(path, said, ("use run.mode: available-now",))
    if sink.acks != "all":
        yield Mistake("sink.topic.acks", "exactly-once needs acks: all", ("remove it",))
    if str(sink.options.get("enable.idempotence", True)).lower() != "true":
        yield Mistake("sink.topic.options.enable.idempotence", "exactly-once needs it", ("remove it",))


def _same_cluster(source: Kafka, sink: Kafka | None) -> bool:
    return sink is None or (sink.cluster, set(sink.bootstrap)) == (source.cluster, set(source.bootstrap))


def _jdbc(sink: JdbcSink) -> Iterator[Mistake]:
    if not sink.url.startswith("jdbc:"):
        yield Mistake("sink.jdbc.url", "must start with jdbc:", ("jdbc:postgresql://host/database",))
    elif not sink.driver_jar and not sink.url.startswith(KNOWN_DATABASES):
        yield Mistake(
            "sink.jdbc",
            "needs `driver_jar`",
            ("only the drivers for PostgreSQL and SQLite are downloaded automatically",),
        )
    if sink.mode == "upsert" and not sink.keys:
        yield Mistake("sink.jdbc", "upsert needs `keys`", ("the columns of a unique index of the table",))
    if sink.mode == "append" and sink.keys:
        yield Mistake("sink.jdbc.keys", "append takes no keys", ("use mode: upsert",))
    for name in ("url", "dbtable", "user", "password", "driver"):
        if name in sink.options:
            yield Mistake(f"sink.jdbc.options.{name}", "has its own key", ("set it in `sink.jdbc`",))


def _output(job: Job) -> Iterator[Mistake]:
    """Checks that the sink can replace groups written by earlier batches."""
    output, sink = job.run.output, job.sink
    if output == "append":
        return
    if not is_streaming(job):
        yield Mistake("run.output", "mode batch writes every group once", ("remove it",))
        return
    hint = "use a topic sink, or jdbc, delta or iceberg with mode upsert"
    if sink.type in _PATHS and sink.mode != "upsert" and (output == "update" or sink.mode != "overwrite"):
        also = " unless `sink.mode` is overwrite" if output == "complete" else ""
        yield Mistake(
            "run.output", f"a sink of type {sink.type} cannot replace groups of an earlier batch{also}", (hint,)
        )
    if sink.type == "jdbc" and sink.jdbc is not None and sink.jdbc.mode == "append":
        yield Mistake("run.output", f"output {output} would add every group again", ("sink.jdbc.mode: upsert",))
