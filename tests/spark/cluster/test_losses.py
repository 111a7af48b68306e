from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kafkad_etl.cluster import deletions
from kafkad_etl.cluster.appended import grown
from kafkad_etl.cluster.losses import Gap, in_batch
from kafkad_etl.messages import Batch
from kctl.errors import KctlError
from kctl.reach.offsets import OffsetAt

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("rows_read", "starts", "gaps"),
    [
        (150, {A: 0, B: 0}, []),
        (150, {A: 50, B: 50}, []),  # read, and deleted after that
        (150, {A: 5000, B: 5000}, []),
        (110, {A: 40, B: 0}, [Gap(A, 0, 40)]),
        (90, {A: 40, B: 20}, [Gap(A, 0, 40), Gap(B, 0, 20)]),
        (0, {A: 1000, B: 1000}, [Gap(A, 0, 100), Gap(B, 0, 50)]),
        (140, {A: 40, B: 0}, [Gap(A, 30, 40, False)]),  # some were read before
        (100, {A: 40, B: 0}, [Gap(A, 0, 40, False)]),  # ten offsets more are no rows
        (130, {A: 40, B: 30}, [Gap(A, 20, 40, False), Gap(B, 10, 30, False)]),
        (110, {A: 40}, [Gap(A, 0, 40)]),  # nobody says where the other one starts
    ],
)
def test_what_a_batch_did_not_find(rows_read: int, starts: dict[TopicPartition, int], gaps: list[Gap]) -> None:
    assert in_batch({A: 0, B: 0}, {A: 100, B: 50}, rows_read, starts) == gaps


def test_what_is_not_certain_says_so() -> None:
    assert str(Gap(A, 30, 40, False)) == "orders-0: up to 10 records (30-39) deleted before they were read"


def test_a_gap_that_was_accepted_when_the_run_began_is_not_counted_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "offsets_at", lambda _, asked: dict.fromkeys(asked, OffsetAt(30, -1, -1)))
    lost: list[Gap] = []
    watching = deletions.Deletions(closable(), {"orders": {0: 30}}, lost.append, pytest.fail)
    watching.offer(batch(first=0, end=100, rows_read=70))
    watching.close()
    assert lost == []
    monkeypatch.setattr(deletions, "offsets_at", lambda _, asked: dict.fromkeys(asked, OffsetAt(50, -1, -1)))
    watching = deletions.Deletions(closable(), {"orders": {0: 30}}, lost.append, pytest.fail)
    watching.offer(batch(first=0, end=100, rows_read=50))
    watching.close()
    assert lost == [Gap(A, 30, 50)]


def test_records_of_a_topic_that_was_made_again_and_is_shorter_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "offsets_at", lambda _, asked: dict.fromkeys(asked, OffsetAt(0, -1, -1)))
    lost: list[Gap] = []
    watching = deletions.Deletions(closable(), {"orders": {0: 30}}, lost.append, pytest.fail)
    watching.offer(batch(first=1000, end=200, rows_read=0))
    watching.close()
    assert [str(gap) for gap in lost] == [
        "orders-0: up to 200 records (0-199) not read: the topic was deleted and made again"
    ]


def batch(first: int, end: int, rows_read: int) -> Batch:
    return Batch(
        batch=1, start={"orders": {0: first}}, end={"orders": {0: end}}, rows_read=rows_read, rows_written=0, seconds=1
    )


def closable() -> Any:
    return SimpleNamespace(close=lambda: None)


def test_how_much_a_topic_has_grown() -> None:
    refused = KctlError("nobody answers")
    before = {A: OffsetAt(10, -1, -1), TopicPartition("orders", 2): refused}
    now = {A: OffsetAt(25, -1, -1), B: OffsetAt(7, -1, -1), TopicPartition("orders", 2): OffsetAt(9, -1, -1)}
    assert grown(before, now) == 15 + 7


def test_a_failure_that_nobody_expects_is_told_and_the_next_batch_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([KeyError("odd"), {A: OffsetAt(50, -1, -1)}])

    def ask(*_: object) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(deletions, "offsets_at", ask)
    lost: list[Gap] = []
    warnings: list[str] = []
    watching = deletions.Deletions(closable(), {"orders": {0: 0}}, lost.append, warnings.append)
    for _ in range(2):
        watching.offer(batch(first=0, end=100, rows_read=50))
    watching.close()
    assert warnings == ["batch 1: cannot tell whether records were deleted before it read them: 'odd'"]
    assert lost == [Gap(A, 0, 50)]
