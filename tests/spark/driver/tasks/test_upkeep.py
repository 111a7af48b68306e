"""Which of a table's own means are used, and what becomes of conflicts. The tables are on real Spark in sinks/lake."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad_etl.driver.sinks.lake.sink import Expiry, Merged
from kafkad_etl.driver.tasks import upkeep
from kafkad_etl.driver.tasks.upkeep import keep_up
from kafkad_etl.driver.terms import JobFailed
from kafkad_etl.messages import Compacted, Event, Expired, Failed, Plan, Stop
from tests.spark.driver.rows import Front, plan_of

CONFLICT = JobFailed(Failed(kind="sink", text="somebody else", retriable=True))
DAY_MS = 86_400_000


class Table:
    """Merges as `outcomes` say, one after another."""

    name = "shop.orders"

    def __init__(self, *outcomes: Merged | Exception) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[Any] = []

    def need_format(self) -> None:
        """It is there."""

    def exists(self) -> bool:
        return True

    def compact(self, min_files: int) -> Merged:
        self.asked.append(min_files)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def expire(self, now_ms: int, age_ms: int, ours: str) -> Expiry:
        self.asked.append((now_ms, age_ms, ours))
        return Expiry(now_ms - age_ms, 3)


def plan(**compact: Any) -> Plan:
    return plan_of({"sink": {"type": "iceberg", "iceberg": {"table": "shop.orders"}, "compact": compact}})


def said(monkeypatch: pytest.MonkeyPatch, table: Table, front: Front | None = None, **compact: Any) -> list[Event]:
    monkeypatch.setattr(upkeep, "table_of", lambda *_: table)
    front = front or Front()
    keep_up(None, plan(**compact), front, lambda: 30 * DAY_MS / 1000)
    return front.events


def test_without_enough_small_files_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(Merged())
    assert said(monkeypatch, table, min_files=5) == []
    assert table.asked == [5]


def test_what_was_merged_and_removed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(Merged(30, 9, 1, 900, 500))
    merged, expired = said(monkeypatch, table, expire_after="10d")
    assert merged == Compacted(
        directory="shop.orders", rows=30, files_before=9, files_after=1, bytes_before=900, bytes_after=500
    )
    assert expired == Expired(files=3, before="1970-01-21T00:00:00Z")
    assert table.asked == [8, (30 * DAY_MS, 10 * DAY_MS, "a//")]


def test_what_others_changed_meanwhile_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(Merged(10, 4, 1, 9, 5, left=6), CONFLICT, Merged(12, 5, 1, 9, 5))
    assert [event.rows for event in said(monkeypatch, table)] == [10, 12]
    assert table.outcomes == []


def test_a_table_that_others_change_all_the_time_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(*[CONFLICT] * 9)
    with pytest.raises(JobFailed, match=r"changed by others each time they had been merged, and are left as") as raised:
        said(monkeypatch, table)
    assert raised.value.failed.retriable
    assert len(table.asked) == upkeep.ATTEMPTS


def test_a_stop_ends_it_after_what_was_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    front = Front()
    front.stop = Stop()
    table = Table(Merged(10, 4, 1, 9, 5, left=6))
    assert len(said(monkeypatch, table, front, expire_after="10d")) == 1
    assert table.asked == [8]


def test_other_failures_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobFailed, match="no space"):
        said(monkeypatch, Table(JobFailed(Failed(kind="environment", text="no space"))))
