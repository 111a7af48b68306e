"""Grouping of segments: those that compaction merges into one."""

from __future__ import annotations

import pytest

from kafkad.cleaner.compact import MOST_IN_ONE, Extent, grouped

SEGMENT, INDEX = 1000, 100


def extents(*sizes: int, index: int = 1, apart: int = 10) -> list[Extent]:
    return [Extent(n * apart, size, (n + 1) * apart, index, index) for n, size in enumerate(sizes)]


def bases(some: list[Extent]) -> list[list[int]]:
    return [[extent.base for extent in group] for group in grouped(some, SEGMENT, INDEX)]


@pytest.mark.parametrize(
    ("some", "expected"),
    [
        (extents(), []),
        (extents(5000), [[0]]),
        (extents(500, 500, 1), [[0, 10], [20]]),
        (extents(1, 5000, 1), [[0], [10], [20]]),
        (extents(1, 1, 1, index=50), [[0, 10], [20]]),
        (extents(1, 1, 1, apart=2**30), [[0, 2**30], [2**31]]),
        (extents(1, 1, 0, apart=2**30), [[0, 2**30, 2**31]]),
    ],
)
def test_neighbours_that_fit_together(some: list[Extent], expected: list[list[int]]) -> None:
    assert bases(some) == expected


def test_no_more_than_can_be_renamed_in_one_turn() -> None:
    assert [len(group) for group in bases(extents(*[1] * 150, index=0))] == [MOST_IN_ONE, MOST_IN_ONE, 22]
