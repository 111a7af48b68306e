from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkad_etl.driver.sinks.lake.marks import SLACK_MS, Commit, committed, mark_of
from kafkad_etl.driver.terms import BatchId, JobFailed

NOW = 10 * SLACK_MS
BATCH = BatchId(7, "0123", {}, {}, NOW)
SOMEBODY = Commit(NOW + 5, "")


def ours(number: int, *, checkpoint: str = "0123", time_ms: int = NOW + 1) -> Commit:
    return Commit(time_ms, mark_of("orders", BatchId(number, checkpoint, {}, {})), rows=number)


def found(*history: Commit) -> Commit | None:
    return committed(history, "orders", BATCH, "shop.orders")


def test_a_batch_is_found_behind_the_commits_of_others() -> None:
    assert found(SOMEBODY, ours(3, checkpoint="4567"), ours(7), ours(6)) == ours(7)


def test_an_earlier_batch_says_that_this_one_is_not_there() -> None:
    def history() -> Iterator[Commit]:
        yield SOMEBODY
        yield ours(5)
        raise AssertionError("nothing is read beyond it")

    assert committed(history(), "orders", BATCH, "shop.orders") is None
    assert found() is None
    assert found(Commit(NOW + 1, follows=False)) is None


def test_commits_from_long_before_the_batch_are_not_read() -> None:
    assert found(SOMEBODY, Commit(NOW - SLACK_MS - 1), ours(7)) is None


def test_a_job_whose_name_begins_alike_is_another() -> None:
    assert committed([ours(7)._replace(follows=False)], "order", BATCH, "t") is None
    assert committed([Commit(NOW, "orders-2/0123/7", follows=False)], "orders", BATCH, "t") is None


def test_a_later_batch_stops_the_job() -> None:
    with pytest.raises(JobFailed, match=r"the checkpoint is at batch 7, but table shop.orders already has batch 8"):
        found(SOMEBODY, ours(8), ours(7))


def test_a_history_that_was_forgotten_stops_the_job_unless_it_reaches_back_far_enough() -> None:
    with pytest.raises(JobFailed, match="batch 7 was interrupted, and nobody knows whether it was written") as raised:
        found(SOMEBODY)
    assert raised.value.failed.kind == "checkpoint"
    assert found(SOMEBODY, Commit(NOW - 1)) is None
