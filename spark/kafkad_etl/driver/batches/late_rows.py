"""Rows that come after the watermark, which Spark drops and does not count.

Its own counter counts groups, after a part of the aggregation. So the batch's rows are read again, and what would be
grouped is asked for: a row is late if its group's window ended by the watermark of the batch before. The rows are
those that the aggregate itself reads: all that the SQL does before belongs to it, filters too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkad_etl.driver.terms import DataFrame

DELAY_KEY = "spark.watermarkDelayMs"
"""Of Spark's columns that a watermark holds for."""
GROUPING = ("Aggregate", "Distinct")


class Group(NamedTuple):
    """The column by which an aggregate of the query forgets groups."""

    aggregate: int
    """Its place among all aggregates of the plan."""
    key: int
    """Which of its keys."""
    is_window: bool
    is_sliding: bool
    """Then a row is in several windows."""


def groups_of(stream: DataFrame) -> list[Group]:
    """Of the aggregates nearest to the source: what comes out of them is not late for others."""
    found = []
    for place, node in enumerate(_aggregates(stream)):
        if node.isStreaming() and not any(each.nodeName() in GROUPING for each in _below(node)):
            for position, key in enumerate(_keys(node)):
                if key.resolved() and key.metadata().contains(DELAY_KEY):
                    is_window = key.dataType().typeName() == "struct"
                    found.append(Group(place, position, is_window, _is_sliding(node)))
                    break
    return found


def late_rows(rows: DataFrame, group: Group, watermark_ms: int) -> int:
    """`rows`: the same query over the batch alone."""
    from pyspark.sql import DataFrame as Frame

    aggregate = _aggregates(rows)[group.aggregate]
    child = aggregate.child()
    key = _keys(aggregate)[group.key]
    names = [f"c{at}" for at in range(child.output().size())]
    ids = [child.output().apply(at).exprId() for at in range(child.output().size())]
    spark = rows.sparkSession
    dataset = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, child)
    frame = Frame(dataset, spark).toDF(*names)
    at = next(number for number, each in enumerate(ids) if each.equals(key.exprId()))
    late = frame.where(f"c{at}{'.end' if group.is_window else ''} <= timestamp_millis({watermark_ms})")
    if group.is_sliding:
        late = late.select(*_record(child)).distinct()
    return int(late.count())


def _record(child: Any) -> list[str]:
    """What tells one row from another; all columns but the window, where the SQL dropped that."""
    names = [str(child.output().apply(at).name()) for at in range(child.output().size())]
    record = [f"c{names.index(name)}" for name in ("_topic", "_partition", "_offset") if name in names]
    return record if len(record) == 3 else [f"c{at}" for at in range(len(names))]


def _aggregates(frame: DataFrame) -> list[Any]:
    plan = frame._jdf.queryExecution().analyzed()
    return [node for node in [plan, *_below(plan)] if node.nodeName() in GROUPING]


def _below(node: Any) -> Iterator[Any]:
    children = node.children()
    for at in range(children.size()):
        yield children.apply(at)
        yield from _below(children.apply(at))


def _keys(node: Any) -> list[Any]:
    keys = node.groupingExpressions() if node.nodeName() == "Aggregate" else node.child().output()
    return [keys.apply(at) for at in range(keys.size())]


def _is_sliding(node: Any) -> bool:
    return any(each.nodeName() == "Expand" for each in _below(node))
