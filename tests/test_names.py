"""How a text names many."""

from __future__ import annotations

import pytest

from kafkad.names import TopicPartition, some


@pytest.mark.parametrize(
    ("things", "of", "text"),
    [
        ([], 0, ""),
        ([TopicPartition("t", 0), TopicPartition("t", 1)], 0, "t-0, t-1"),
        ([1, 2, 3, 4], 0, "1, 2 and 2 more"),
        ([1, 2], 7, "1, 2 and 5 more"),
        ([1], 1, "1"),
    ],
)
def test_the_first_of_many_are_named(things: list[object], of: int, text: str) -> None:
    assert some(things, most=2, of=of) == text
