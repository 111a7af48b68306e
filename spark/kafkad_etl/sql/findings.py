"""What is wrong with a job's SQL, as far as it can be known without Spark."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Literal, NamedTuple

from sqlglot import exp

from kafkad_etl.effective import Effective
from kafkad_etl.facts import is_stateful, is_streaming
from kafkad_etl.job import Job
from kafkad_etl.messages import Schema
from kafkad_etl.sql.columns import Analysis, Columns, Missing, Node, aggregates, groups_by_time, tables
from kafkad_etl.sql.parsing import Position, Unparsed, columns_of_ddl, position, query_of
from kctl.errors import did_you_mean

META = ("_key", "_topic", "_partition", "_offset", "_timestamp")
_GROUP_BY_TIME = "transform.watermark, and GROUP BY window(…), or run.output: update"


class Finding(NamedTuple):
    """`wrong` it is; a `doubt` is Spark's to decide, whose SQL is larger than what is known here; a `note` is no
    mistake."""

    level: Literal["wrong", "doubt", "note"]
    path: str
    text: str
    hints: tuple[str, ...] = ()
    line: int = 0
    column: int = 0


class _Query(NamedTuple):
    view: str
    path: str
    sql: str


def findings(effective: Effective) -> list[Finding]:
    return list(_Findings(effective).all())


class _Findings:
    def __init__(self, effective: Effective) -> None:
        self.effective = effective
        self.job = effective.job
        self.from_source = {"source"}
        """Views that are made of the stream."""
        self.has_aggregates = False
        self.all_known = True

    def all(self) -> Iterator[Finding]:
        source, found = _source(self.effective)
        yield from found
        yield from _named_columns(self.job, source)
        views = {"source": source}
        for name, lookup in self.job.transform.lookups.items():
            views[name.lower()], found = _of_ddl(lookup.schema, f"transform.lookups.{name}.schema")
            yield from found
        result = _plain(source, self.job)
        for query in _queries(self.job):
            result = yield from self._query(query, views)
            views[query.view] = result
        if self.job.run.output == "complete" and self.all_known and not self.has_aggregates:
            yield Finding("wrong", "run.output", "output complete is for SQL that aggregates", ("leave it out",))
        yield from _wanted_columns(self.job, result)
        lookups = {name: columns for name, columns in views.items() if name in self.job.transform.lookups}
        for index, check in enumerate(self.job.checks):
            yield from self._check(check.sql, f"checks.{index}.sql", {"out": result, **lookups})

    def _query(self, query: _Query, views: dict[str, Columns]) -> Generator[Finding, None, Columns]:
        try:
            tree = query_of(query.sql)
        except Unparsed as error:
            self.all_known = False
            self.from_source.add(query.view)
            yield _unparsed(query.path, error)
            return Columns()
        analysis = Analysis(tree, views)
        yield from (_missing(missing, query) for missing in analysis.missing)
        yield from self._state(tree, query)
        if tables(tree) & self.from_source:
            self.from_source.add(query.view)
        return analysis.result

    def _check(self, sql: str, path: str, views: dict[str, Columns]) -> Iterator[Finding]:
        try:
            analysis = Analysis(query_of(sql), views)
        except Unparsed as error:
            yield _unparsed(path, error)
            return
        yield from (_missing(missing, _Query("", path, sql)) for missing in analysis.missing)

    def _state(self, tree: Node, query: _Query) -> Iterator[Finding]:
        """What a stream cannot have, or has only for one batch."""
        grouping = list(aggregates(tree, self.from_source))
        self.has_aggregates = self.has_aggregates or bool(grouping)
        if not is_streaming(self.job) or not tables(tree) & self.from_source:
            return
        watermark = self.job.transform.watermark
        appends = self.job.run.output == "append"
        for select in grouping if appends else ():
            where = position(select, query.sql)
            if watermark is None:
                text = "this aggregates without a watermark, so that in output append no group would ever be finished"
                yield Finding("wrong", query.path, text, (_GROUP_BY_TIME,), *where)
            elif not groups_by_time(select, watermark.column):
                text = f"groups without a window or {watermark.column} are never finished in output append"
                yield Finding("doubt", query.path, text, (f"GROUP BY window({watermark.column}, '1 minute')",), *where)
        yield from self._refused_by_streams(tree, query) if is_stateful(self.job) else _of_one_batch(tree, query)

    def _refused_by_streams(self, tree: Node, query: _Query) -> Iterator[Finding]:
        for window in tree.find_all(exp.Window):
            text = "Spark has no OVER (…) in queries with a state"
            yield Finding("wrong", query.path, text, ("group by window(…) instead",), *position(window, query.sql))
        if tree.args.get("order") and self.job.run.output != "complete":
            text = "Spark sorts streams in output complete only"
            yield Finding("wrong", query.path, text, ("leave ORDER BY out",), *position(tree.args["order"], query.sql))


def _of_one_batch(tree: Node, query: _Query) -> Iterator[Finding]:
    for node in tree.find_all(exp.Select):
        if node.args.get("distinct"):
            text = "DISTINCT is over each batch by itself"
            hint = "transform.deduplicate with `within` looks across batches"
            yield Finding("note", query.path, text, (hint,), *position(node, query.sql))


def _unparsed(path: str, error: Unparsed) -> Finding:
    hint = "if Spark knows it, `kctl etl run` runs it all the same"
    return Finding("doubt", path, error.text, (hint,), error.line, error.column)


def _missing(missing: Missing, query: _Query) -> Finding:
    where: Position = position(missing.node, query.sql)
    hints = did_you_mean(missing.name, missing.known) or (f"there are: {', '.join(missing.known)}",)
    if missing.is_view:
        return Finding("wrong", query.path, f'there is no view "{missing.name}"', hints, *where)
    return Finding("doubt", query.path, f'there is no column "{missing.name}"', hints, *where)


def _queries(job: Job) -> list[_Query]:
    steps = [
        _Query(step.name.lower(), f"transform.steps.{index}.sql", step.sql)
        for index, step in enumerate(job.transform.steps)
    ]
    return steps or ([_Query("out", "transform.sql", job.transform.sql)] if job.transform.sql else [])


# --- columns that are known before any SQL


def _source(effective: Effective) -> tuple[Columns, list[Finding]]:
    job = effective.job
    files = job.source.files
    if files is not None:
        columns, found = _of_ddl(files.schema, "source.files.schema")
        file = () if files.format == "parquet" else ("_file",)
        return Columns((*columns.names, *file), columns.complete), found
    meta = (*META, "_headers") if job.source.headers else META
    if job.value.format in ("text", "raw"):
        return Columns(("value", *meta), True), []
    values, found = _of_schema(effective.value_schema, "value.schema")
    return Columns((*values.names, *meta), values.complete), found


def _of_schema(schema: Schema | None, path: str) -> tuple[Columns, list[Finding]]:
    if schema is None:
        return Columns(), []
    if schema.kind == "ddl":
        return _of_ddl(schema.text, path)
    names = tuple(str(field.get("name")) for field in json.loads(schema.text).get("fields", ()))
    return Columns(names, True), []


def _of_ddl(ddl: str, path: str) -> tuple[Columns, list[Finding]]:
    if not ddl:
        return Columns(), []
    try:
        return Columns(tuple(columns_of_ddl(ddl)), True), []
    except Unparsed as error:
        return Columns(), [_unparsed(path, error)]


def _plain(source: Columns, job: Job) -> Columns:
    """The result without SQL: what was in the record, and of the rest what the sink asks for."""
    topic = job.sink.topic
    wanted = {*job.sink.partition_by, *((topic.key, topic.partition, topic.headers) if topic else ())}
    if topic is not None and topic.source_header:
        wanted |= {"_topic", "_partition", "_offset"}
    return Columns(tuple(name for name in source.names if name[:1] != "_" or name in wanted), source.complete)


# --- columns that other keys name


def _named_columns(job: Job, source: Columns) -> Iterator[Finding]:
    transform = job.transform
    if transform.watermark is not None:
        yield from _lacking(source, transform.watermark.column, "transform.watermark.column", "source")
    if transform.deduplicate is not None:
        for index, name in enumerate(transform.deduplicate.keys):
            yield from _lacking(source, name, f"transform.deduplicate.keys.{index}", "source")


def _wanted_columns(job: Job, result: Columns) -> Iterator[Finding]:
    sink = job.sink
    for index, name in enumerate(sink.partition_by):
        yield from _lacking(result, name, f"sink.partition_by.{index}")
    if result.complete and {name.lower() for name in result.names} <= {name.lower() for name in sink.partition_by}:
        yield Finding("wrong", "sink.partition_by", "no column is left for the files themselves")
    if sink.jdbc is not None:
        for index, name in enumerate(sink.jdbc.keys):
            yield from _lacking(result, name, f"sink.jdbc.keys.{index}")
    if sink.topic is None:
        return
    for key in ("key", "partition", "headers"):
        yield from _lacking(result, getattr(sink.topic, key), f"sink.topic.{key}")
    if sink.topic.format in ("text", "raw") and result.lacks("value"):
        hint = f"SELECT … AS value; there are: {', '.join(result.names)}"
        text = f"format {sink.topic.format} writes the column `value`, and there is none"
        yield Finding("wrong", "sink.topic.format", text, (hint,))
    for name in ("_topic", "_partition", "_offset") if sink.topic.source_header else ():
        yield from _lacking(result, name, "sink.topic.source_header")


def _lacking(columns: Columns, name: str, path: str, view: str = "the result") -> Iterator[Finding]:
    if name and columns.lacks(name):
        hints = did_you_mean(name, columns.names) or (f"there are: {', '.join(columns.names)}",)
        yield Finding("wrong", path, f'{view} has no column "{name}"', hints)
