"""Counts rows that arrive after the watermark, which Spark drops without counting.

Spark's own counter counts groups after partial aggregation. So the batch's rows are read again and passed to the query
up to its aggregate: a row is late if its group's window ended by the watermark of the previous batch. All SQL before
the aggregate applies, filters included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kafkad_etl.driver.terms import DataFrame

DELAY_KEY = "spark.watermarkDelayMs"
"""Metadata key of columns that a watermark applies to."""
GROUPING = ("Aggregate", "Distinct")


class Group(NamedTuple):
    """The key column by which an aggregate expires groups."""

    aggregate: int
    """The aggregate's index in the plan."""
    key: int
    """The key's index."""
    is_window: bool
    is_sliding: bool
    """True if a row belongs to several windows."""


def groups_of(stream: DataFrame) -> list[Group]:
    """Groups of the aggregates closest to the source; later aggregates receive no late rows."""
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
    """The number of late rows. `rows` is the same query over the batch alone."""
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
    """Columns that identify a row; all columns but the window if the SQL dropped its position."""
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
