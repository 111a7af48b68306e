"""Task `preview`: shows what the last rows would become. Nothing is written, and no checkpoint is touched."""

from __future__ import annotations

from typing import Any

from kafkad_etl.driver.batches import transform
from kafkad_etl.driver.batches.batch import count_bad, good
from kafkad_etl.driver.columns import columns_of
from kafkad_etl.driver.sinks.console import shown
from kafkad_etl.driver.source import reader
from kafkad_etl.driver.source.bad_rows import first_bad
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.driver.terms import Front
from kafkad_etl.messages import EndReason, Plan, Query, Rows, Warned


def preview(spark: Any, plan: Plan, front: Front) -> EndReason:
    parser = Parser(spark, plan)
    transform.create_lookups(spark, plan.job)
    rows = parser.parsed(reader.everything(spark, plan)).persist()
    if parser.can_be_bad and parser.learn(rows):
        rows.unpersist()
        rows = parser.parsed(reader.everything(spark, plan)).persist()
    kept = good(rows, parser)
    if plan.job.transform.deduplicate:
        kept = transform.first_of_each(kept, plan.job.transform.deduplicate.keys)
    out = transform.result(kept, plan.job)
    front.send(Query(columns_of(out)))
    read, bad = count_bad(rows) if parser.can_be_bad else (0, 0)
    if bad:
        lines = [f"{bad:,} of {read:,} rows could not be parsed", *map(str, first_bad(rows))]
        front.send(Warned("\n  ".join(lines)))
    front.send(Rows(list(out.columns), shown(out, plan.limit)))
    return "done"
