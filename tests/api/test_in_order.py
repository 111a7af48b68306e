"""Sorting in pieces."""

from __future__ import annotations

from kafkad.api.in_order import in_order
from kafkad.turns import at_once


def test_all_are_found_in_order() -> None:
    names = [f"t{number * 7 % 1000}" for number in range(1000)]
    assert list(at_once(in_order(names, str))) == sorted(names)
    assert list(at_once(in_order([], str))) == []


def test_many_are_sorted_in_pieces_and_few_at_once() -> None:
    assert sum(1 for _ in in_order(range(1000), int)) >= 5
    assert sum(1 for _ in in_order(range(50), int)) == 0


def test_what_is_sorted_may_change_between_the_pieces() -> None:
    numbers = dict.fromkeys(range(1000))
    sorting = in_order(numbers, int)
    next(sorting)
    numbers.clear()
    assert list(at_once(sorting)) == list(range(1000))
