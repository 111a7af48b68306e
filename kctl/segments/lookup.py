"""Look-ups in an index as a broker does them: the newest entries first, where most readers are, then the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_WARM_BYTES = 8192
"""The end of an index, in bytes, that brokers expect to be in the page cache."""


class Probe(NamedTuple):
    """An entry that was looked at; `order` is negative when what is wanted is after it, 0 when it is just that."""

    entry: int
    order: int


class Search(NamedTuple):
    probes: list[Probe]
    found: int | None
    """The last entry that is not after what is wanted; None when all are."""


def search(keys: Sequence[int], wanted: int, entry_size: int) -> Search:
    probes: list[Probe] = []

    def compare(number: int) -> int:
        order = (keys[number] > wanted) - (keys[number] < wanted)
        probes.append(Probe(number, order))
        return order

    if not keys:
        return Search(probes, None)
    first_warm = max(0, len(keys) - 1 - _WARM_BYTES // entry_size)
    if compare(first_warm) < 0:
        low, high = first_warm, len(keys) - 1
    elif compare(0) > 0:
        return Search(probes, None)
    else:
        low, high = 0, first_warm
    while low < high:
        middle = (low + high + 1) // 2
        order = compare(middle)
        if order > 0:
            high = middle - 1
        elif order < 0:
            low = middle
        else:
            return Search(probes, middle)
    return Search(probes, low)
