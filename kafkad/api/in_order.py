"""Sorting of thousands in pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Any, TypeVar

from kafkad.turns import Pieces

_RUN = 128

T = TypeVar("T")


def in_order(items: Iterable[T], key: Callable[[T], Any]) -> Pieces[Iterator[T]]:
    """The items that there are now. Each is found when it is asked for: who takes many has to yield between them."""
    found = list(items)
    runs = []
    for at in range(0, len(found), _RUN):
        if at:
            yield
        runs.append(sorted(found[at : at + _RUN], key=key))
    return merge(*runs, key=key)
