"""Finds mistakes in a job's SQL and columns, as far as possible without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kafkad_etl.facts import BAD, CORRUPT, END_OF_LINE, FILE, HEADERS, HEADERS_FROM, META, POSITION, RAW
from kafkad_etl.job import Job
from kafkad_etl.messages import Schema
from kafkad_etl.model.effective import Effective
from kafkad_etl.model.sql.ddl import columns_of_ddl
from kafkad_etl.model.sql.terms import Columns, Finding, Unparsed
from kafkad_etl.registry import protobuf
from kafkad_etl.sql_text import casting
from kctl.errors import did_you_mean

if TYPE_CHECKING:
    from kafkad_etl.model.sql.queries import Queries

_OF_TEXT = {"json": (CORRUPT,), "csv": (CORRUPT, END_OF_LINE)}
"""By format: columns that parsing needs beside those of the schema."""
_OF_LINES = (FILE, *RAW, BAD, CORRUPT)
"""Columns that rows of text files get beside those of their schema."""
_META_TYPES = {
    "_topic": "STRING",
    "_partition": "INT",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMP",
    HEADERS: "ARRAY",
}
_TIMES = ("TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "STRUCT")
"""Types that a watermark may have: a struct can be a window."""
_PARTITIONS = ("INT", "INTEGER", "SMALLINT", "SHORT", "TINYINT", "BYTE")
_SPARKS = {"LONG": "BIGINT", "INTEGER": "INT", "SHORT": "SMALLINT", "BYTE": "TINYINT"}
"""Types in Spark's JSON, where they are not called as in DDL."""
_AVROS = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
}
"""The types of Avro without a logical one."""


def findings(effective: Effective) -> list[Finding]:
    return list(_findings(effective))


def _findings(effective: Effective) -> Iterator[Finding]:
    job = effective.job
    source, found = _source(effective)
    yield from found
    keys, found = _of_schema(effective.schemas.key, "key.schema")
    yield from found
    yield from _impossible(job, keys, "key.schema", job.key.format, _OF_TEXT.get(job.key.format, ()))
    yield from _named_columns(job, source)
    lookups: dict[str, Columns] = {}
    for name, lookup in job.transform.lookups.items():
        path = f"transform.lookups.{name}.schema"
        lookups[name.lower()], found = _of_ddl(lookup.schema, path)
        yield from found
        yield from _impossible(job, lookups[name.lower()], path, lookup.format)
    queries = _queries(job)
    result = _plain(source, job)
    if queries is not None:
        result = yield from queries.steps({"source": source, **lookups}, result)
    if job.run.output == "complete" and not (queries and queries.may_aggregate):
        yield Finding("wrong", "run.output", "output complete requires SQL that aggregates", ("remove it",))
    yield from _wanted_columns(job, result)
    if queries is not None:
        yield from queries.checks({"out": result, **lookups})


def _queries(job: Job) -> Queries | None:
    if not (job.transform.steps or job.transform.sql or job.checks):
        return None
    from kafkad_etl.model.sql.queries import Queries

    return Queries(job)


# --- columns that are known before any SQL


def _source(effective: Effective) -> tuple[Columns, list[Finding]]:
    job = effective.job
    files = job.source.files
    if files is not None:
        columns, found = _of_ddl(files.schema, "source.files.schema")
        own: tuple[str, ...] = () if files.format == "parquet" else _OF_LINES
        found += _impossible(job, columns, "source.files.schema", files.format, own)
        return columns._replace(names=(*columns.names, *own[:1])), found
    meta = (*META, HEADERS) if job.source.headers else META
    if job.value.format in ("text", "raw"):
        kind = "STRING" if job.value.format == "text" else "BINARY"
        return Columns(("value", *meta), True, {"value": kind, **_META_TYPES}), []
    values, found = _of_schema(effective.schemas.value, "value.schema")
    own = (*META, HEADERS, *RAW, BAD, *_OF_TEXT.get(job.value.format, ()))
    found += _impossible(job, values, "value.schema", job.value.format, own)
    return Columns((*values.names, *meta), values.complete, {**values.types, **_META_TYPES}), found


def _of_schema(schema: Schema | None, path: str) -> tuple[Columns, list[Finding]]:
    if schema is None:
        return Columns(), []
    if schema.kind == "ddl":
        return _of_ddl(schema.text, path)
    if schema.kind == "protobuf":
        fields = protobuf.columns(protobuf.Compiled(schema.files, schema.message))["fields"]
    else:
        fields = json.loads(schema.text).get("fields", ())
    names = tuple(str(field.get("name")) for field in fields)
    type_of = _avro_type if schema.kind == "avro" else _spark_type
    types = {name.lower(): type_of(field.get("type")) for name, field in zip(names, fields, strict=True)}
    return Columns(names, True, types), []


def _spark_type(kind: Any) -> str:
    """The first word in DDL of a type in Spark's JSON."""
    word = str(kind.get("type") if isinstance(kind, dict) else kind).upper()
    return _SPARKS.get(word, word.partition("(")[0])


def _avro_type(kind: Any) -> str:
    """The same of a simple type of Avro, which may be null; empty for others."""
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if len(others) == 1 else None
    return _AVROS.get(kind, "") if isinstance(kind, str) else ""


def _of_ddl(ddl: str, path: str) -> tuple[Columns, list[Finding]]:
    if not ddl:
        return Columns(), []
    try:
        return columns_of_ddl(ddl), []
    except Unparsed as error:
        return Columns(), [error.at(path)]


def _impossible(job: Job, columns: Columns, path: str, form: str, own: Sequence[str] = ()) -> Iterator[Finding]:
    """Columns of a schema that Spark would refuse once it runs. `own` are columns that rows get beside them."""
    is_sensitive = str(job.spark.conf.get("spark.sql.caseSensitive", "")).lower() == "true"
    seen: set[str] = set()
    for name in columns.names:
        bare = name if is_sensitive else name.lower()
        if bare in own:
            hint = "rename it, or read records as text and parse them in SQL: from_json(value, …)"
            yield Finding("wrong", path, f'the name "{name}" is taken by a column of kctl\'s own', (hint,))
        elif bare in seen:
            why = "" if is_sensitive else "; Spark ignores the case of names"
            hints = ["rename one of them, or leave it out"]
            hints += [] if is_sensitive else ["or spark.conf: {spark.sql.caseSensitive: true}"]
            yield Finding("wrong", path, f'"{name}" appears twice{why}', tuple(hints))
        seen.add(bare)
    if form == "csv":
        hint = "declare it STRING, and parse it in SQL: from_json(…), split(…)"
        for name in columns.nested:
            yield Finding("wrong", path, f'csv has no arrays, maps or structs, as "{name}" is', (hint,))


def _plain(source: Columns, job: Job) -> Columns:
    """The result without SQL: the record's own columns, and those that the sink asks for."""
    topic = job.sink.topic
    wanted = {*job.sink.partition_by, *((topic.key, topic.partition, topic.headers) if topic else ())}
    if topic is not None and topic.source_header:
        wanted |= set(POSITION)
    return source._replace(names=tuple(name for name in source.names if name[:1] != "_" or name in wanted))


# --- columns that other keys name


def _named_columns(job: Job, source: Columns) -> Iterator[Finding]:
    transform = job.transform
    if transform.watermark is not None:
        name, path = transform.watermark.column, "transform.watermark.column"
        yield from _lacking(source, name, path, "source")
        hint = "declare it TIMESTAMP" + ("" if job.source.files else ", or name _timestamp, the record's own time")
        yield from _mistyped(source, name, path, _TIMES, hint)
    if transform.deduplicate is not None:
        for index, name in enumerate(transform.deduplicate.keys):
            yield from _lacking(source, name, f"transform.deduplicate.keys.{index}", "source")


def _wanted_columns(job: Job, result: Columns) -> Iterator[Finding]:
    sink = job.sink
    for index, name in enumerate(sink.partition_by):
        yield from _lacking(result, name, f"sink.partition_by.{index}")
    if result.complete and {name.lower() for name in result.names} <= {name.lower() for name in sink.partition_by}:
        yield Finding("wrong", "sink.partition_by", "it leaves no columns for the files themselves")
    for index, name in enumerate(sink.keys):
        yield from _lacking(result, name, f"sink.keys.{index}")
    if sink.jdbc is not None:
        for index, name in enumerate(sink.jdbc.keys):
            yield from _lacking(result, name, f"sink.jdbc.keys.{index}")
    if sink.topic is None:
        return
    for key in ("key", "partition", "headers"):
        yield from _lacking(result, getattr(sink.topic, key), f"sink.topic.{key}")
    partition = sink.topic.partition
    casts = casting(partition, result.type_of(partition), _PARTITIONS[0])
    yield from _mistyped(result, partition, "sink.topic.partition", _PARTITIONS, *casts)
    yield from _mistyped(result, sink.topic.headers, "sink.topic.headers", ("ARRAY",), f"select {HEADERS_FROM}")
    if sink.topic.format in ("text", "raw") and result.lacks("value"):
        hint = f"SELECT … AS value; its columns are: {', '.join(result.names)}"
        text = f"format {sink.topic.format} writes the column `value`, but the result has none"
        yield Finding("wrong", "sink.topic.format", text, (hint,))
    lacking = [name for name in POSITION if sink.topic.source_header and result.lacks(name)]
    if lacking:
        columns, hint = "columns" if len(lacking) > 1 else "column", f"add {', '.join(lacking)} to the last SELECT"
        text = f"it is made of {', '.join(POSITION)}, and the result lacks the {columns} {', '.join(lacking)}"
        yield Finding("wrong", "sink.topic.source_header", text, (hint,))


def _lacking(columns: Columns, name: str, path: str, view: str = "the result") -> Iterator[Finding]:
    if name and columns.lacks(name):
        hints = did_you_mean(name, columns.names) or (f"known: {', '.join(columns.names)}",)
        yield Finding("wrong", path, f'{view} has no column "{name}"', hints)


def _mistyped(columns: Columns, name: str, path: str, kinds: tuple[str, ...], *hints: str) -> Iterator[Finding]:
    """A column whose type is known, and is none of these."""
    kind = columns.type_of(name)
    if kind and not columns.lacks(name) and kind not in kinds:
        yield Finding("wrong", path, f'the column "{name}" is {kind}, but must be {kinds[0]}', hints)
