from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.segments.lookup import Probe, search


@given(st.sets(st.integers(0, 100_000), max_size=3000), st.integers(-1, 100_001), st.sampled_from([8, 12]))
def test_finds_the_last_entry_that_is_not_after(keys: set[int], wanted: int, entry_size: int) -> None:
    ordered = sorted(keys)
    found = search(ordered, wanted, entry_size).found
    assert (-1 if found is None else found) == bisect_right(ordered, wanted) - 1


@pytest.mark.parametrize(
    ("wanted", "first", "most"),
    [
        (9_999, Probe(8_975, -1), 12),  # among the last 8 KB no other page is looked at
        (8_000, Probe(8_975, 1), 15),
    ],
)
def test_begins_with_the_newest_entries(wanted: int, first: Probe, most: int) -> None:
    done = search(range(10_000), wanted, 8)
    assert done.probes[0] == first
    assert len(done.probes) <= most
    assert done.found == wanted
