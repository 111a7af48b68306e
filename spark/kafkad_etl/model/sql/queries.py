"""Finds mistakes in each query of a job, using sqlglot's tree."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Literal, NamedTuple

from sqlglot import exp

from kafkad_etl.facts import is_stateful, is_streaming
from kafkad_etl.job import Job
from kafkad_etl.model.sql.columns import Analysis, Missing, Node, aggregates, groups_by_time, tables
from kafkad_etl.model.sql.parsing import Position, position, query_of
from kafkad_etl.model.sql.terms import Columns, Finding, Unparsed
from kafkad_etl.sql_text import as_needed
from kctl.errors import did_you_mean

_GROUP_BY_TIME = "add transform.watermark and GROUP BY window(…), or use run.output: update"


_UNITS = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")
_SPARKS_OWN = {
    *("current_date", "current_time", "current_timestamp", "localtimestamp", "current_user", "session_user", "user"),
    *("current_catalog", "current_database", "current_schema", "grouping__id", "_metadata", "window_time"),
    *("all", "default", "dayofyear", "dayofweek", "nanosecond", *_UNITS, *(f"{unit}s" for unit in _UNITS)),
}
"""Bare words that Spark resolves to functions, units of time or hidden columns."""


class _Query(NamedTuple):
    view: str
    path: str
    sql: str


class Queries:
    """The queries of one job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.from_source = {"source"}
        """Views derived from the stream."""
        self.may_aggregate = False
        """True if a step aggregates or cannot be parsed."""

    def steps(self, views: Mapping[str, Columns], result: Columns) -> Generator[Finding, None, Columns]:
        """Checks the steps in order. Returns the columns of the last one, or `result` if there are none."""
        views = dict(views)
        for query in steps_of(self.job):
            result = views[query.view] = yield from self._step(query, views)
        return result

    def checks(self, views: Mapping[str, Columns]) -> Iterator[Finding]:
        """Checks the queries in `checks`, over the views they may name."""
        for index, check in enumerate(self.job.checks):
            query = _Query("", f"checks.{index}.sql", check.sql)
            try:
                analysis = Analysis(query_of(query.sql), views)
            except Unparsed as error:
                yield error.at(query.path)
            else:
                yield from (_missing(missing, query) for missing in analysis.missing)

    def _step(self, query: _Query, views: Mapping[str, Columns]) -> Generator[Finding, None, Columns]:
        try:
            tree = query_of(query.sql)
        except Unparsed as error:
            self.may_aggregate = True
            self.from_source.add(query.view)
            yield error.at(query.path)
            return Columns()
        analysis = Analysis(tree, views)
        yield from (_missing(missing, query) for missing in analysis.missing)
        yield from self._state(tree, query)
        if tables(tree) & self.from_source:
            self.from_source.add(query.view)
        return analysis.result

    def _state(self, tree: Node, query: _Query) -> Iterator[Finding]:
        """Checks for SQL that streams do not support, or only within one batch."""
        grouping = list(aggregates(tree, self.from_source))
        self.may_aggregate = self.may_aggregate or bool(grouping)
        if not is_streaming(self.job) or not tables(tree) & self.from_source:
            return
        watermark = self.job.transform.watermark
        appends = self.job.run.output == "append"
        for select in grouping if appends else ():
            where = position(select, query.sql)
            if watermark is None:
                text = "this aggregates without a watermark, so in output append no group would ever be finished"
                yield Finding("wrong", query.path, text, (_GROUP_BY_TIME,), *where)
            elif not groups_by_time(select, watermark.column):
                text = f"groups without a window or {watermark.column} are never finished in output append"
                hint = f"GROUP BY window({as_needed(watermark.column)}, '1 minute')"
                yield Finding("doubt", query.path, text, (hint,), *where)
        yield from self._refused_by_streams(tree, query) if is_stateful(self.job) else _of_one_batch(tree, query)

    def _refused_by_streams(self, tree: Node, query: _Query) -> Iterator[Finding]:
        for window in tree.find_all(exp.Window):
            text = "Spark does not support OVER (…) in stateful queries"
            yield Finding("wrong", query.path, text, ("use GROUP BY window(…) instead",), *position(window, query.sql))
        if tree.args.get("order") and self.job.run.output != "complete":
            text = "Spark sorts streams only in output complete"
            yield Finding("wrong", query.path, text, ("remove ORDER BY",), *position(tree.args["order"], query.sql))


def _of_one_batch(tree: Node, query: _Query) -> Iterator[Finding]:
    for node in tree.find_all(exp.Select):
        if node.args.get("distinct"):
            text = "DISTINCT applies to each batch separately"
            hint = "transform.deduplicate with `within` works across batches"
            yield Finding("note", query.path, text, (hint,), *position(node, query.sql))


def _missing(missing: Missing, query: _Query) -> Finding:
    where: Position = position(missing.node, query.sql)
    hints = did_you_mean(missing.name, missing.known) or (f"known: {', '.join(missing.known)}",)
    if missing.is_view:
        return Finding("wrong", query.path, f'there is no view "{missing.name}"', hints, *where)
    level: Literal["doubt", "wrong"] = "doubt" if missing.name.lower() in _SPARKS_OWN else "wrong"
    return Finding(level, query.path, f'there is no column "{missing.name}"', hints, *where)


def steps_of(job: Job) -> list[_Query]:
    steps = [
        _Query(step.name.lower(), f"transform.steps.{index}.sql", step.sql)
        for index, step in enumerate(job.transform.steps)
    ]
    return steps or ([_Query("out", "transform.sql", job.transform.sql)] if job.transform.sql else [])
