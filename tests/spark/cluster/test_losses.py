from __future__ import annotations

import pytest

from kafkad.names import TopicPartition
from kafkad_etl.cluster.losses import Gap, in_batch

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
