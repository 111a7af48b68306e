"""The parts that stateless and stateful batches share: the result, timings, good rows, checks and the write."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from kafkad_etl.driver.batches.checks import check
from kafkad_etl.driver.source.parser import Parser
from kafkad_etl.driver.terms import BatchId, DataFrame, Sink, Written
from kafkad_etl.facts import BAD, FILE, RAW
from kafkad_etl.messages import Plan


class BatchResult(NamedTuple):
    """One processed batch: what was read, written and left out, and how long each phase took."""

    batch: BatchId
    rows_read: int
    written: Written
    seconds: float
    phases: dict[str, float]
    bad: int = 0
    late: int = 0
    duplicates: int = 0
    replayed: bool = False


class Phases:
    """Seconds spent in each phase of one batch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = round(self.seconds.get(name, 0.0) + self._clock() - began, 3)

    def total(self) -> float:
        return round(self._clock() - self._began, 3)


def good(parsed: DataFrame, parser: Parser) -> DataFrame:
    return unmarked(parsed.where(f"{BAD} IS NULL"), parser) if parser.can_be_bad else parsed


def unmarked(parsed: DataFrame, parser: Parser) -> DataFrame:
    """All rows, without the columns that only bad ones need."""
    return parsed.drop(BAD, FILE, *RAW) if parser.can_be_bad else parsed


def write(
    plan: Plan, sink: Sink, out: DataFrame, batch: BatchId, phases: Phases, warn: Callable[[str], None]
) -> Written:
    """Writes the batch after its checks have passed. These may need only a part of the rows, but all have to pass at
    once: rows that count themselves do so only the first time."""
    checks = plan.job.checks
    if checks:
        out = out.persist()
    try:
        if checks:
            with phases.phase("checks"):
                out.count()
                check(out, checks, batch.number, warn)
        with phases.phase("write"):
            return sink.write(out, batch)
    finally:
        if checks:
            out.unpersist()


def count_bad(rows: Any) -> tuple[int, int]:
    read, bad = rows.selectExpr("count(*)", f"count({BAD})").first()
    return read, bad
