"""Task `compact` for tables of a lake, also run for `sink.compact` after a run: small files are merged and old versions
removed by the table's own means. Others may write to the table meanwhile, the job itself included: each side's commit
fails if the other has changed the same files, and is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from kafkad_etl.driver.failures import failure_of
from kafkad_etl.driver.sinks import table_of
from kafkad_etl.driver.sinks.lake.marks import marks_begin
from kafkad_etl.driver.sinks.lake.sink import Merged, Table
from kafkad_etl.driver.terms import Front, JobFailed
from kafkad_etl.facts import duration_ms
from kafkad_etl.messages import Compacted, EndReason, Expired, Failed, Plan

ATTEMPTS = 5


def keep_up(spark: Any, plan: Plan, front: Front, clock: Callable[[], float] = time.time) -> EndReason:
    sink = plan.job.sink
    table = table_of(spark, sink)
    table.need_format()
    if not table.exists():
        raise JobFailed(_missing(table.name))
    for merged in _merges(table, sink.compact.min_files, front):
        front.send(
            Compacted(
                directory=sink.iceberg.table if sink.iceberg else "",
                rows=merged.rows,
                files_before=merged.files_before,
                files_after=merged.files_after,
                bytes_before=merged.bytes_before,
                bytes_after=merged.bytes_after,
            )
        )
    if sink.compact.expire_after and not front.stop:
        ours = marks_begin(plan.job.name, plan.checkpoint_id)
        expiry = table.expire(int(clock() * 1000), duration_ms(sink.compact.expire_after), ours)
        text = datetime.fromtimestamp(expiry.before_ms / 1000, UTC).isoformat(timespec="seconds")
        front.send(Expired(files=expiry.files, before=text.replace("+00:00", "Z")))
    return "stopped" if front.stop else "done"


def _merges(table: Table, min_files: int, front: Front) -> Iterator[Merged]:
    """Merges until nothing is left that could not be merged because of what others did meanwhile."""
    for _ in range(ATTEMPTS):
        try:
            merged = table.compact(min_files)
        except Exception as error:
            failed = failure_of(error)
            if not failed.retriable:
                raise
            merged = Merged(left=1)
        if merged.files_before:
            yield merged
        if not merged.left or front.stop:
            return
    raise JobFailed(_in_the_way(table.name))


def _missing(table: str) -> Failed:
    return Failed(kind="sink", text=f"table {table} does not exist", hints=["kctl etl run creates it"])


def _in_the_way(table: str) -> Failed:
    text = f"files of table {table} were changed by others each time they had been merged, and are left as they are"
    return Failed(kind="sink", text=text, hints=["try again when less is written"], retriable=True)
