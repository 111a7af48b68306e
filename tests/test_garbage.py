"""Garbage collections of Python: what a long one has looked through is in no later one, but for complete ones."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kafkad.garbage import ShortCollections, no_collections

OLDEST = {"generation": 2, "collected": 0, "uncollectable": 0}
NEWEST = {"generation": 0, "collected": 0, "uncollectable": 0}


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """Also not by another test; afterwards all is, as before the first one: other tests are to be quick."""
    gc.unfreeze()
    yield
    gc.freeze()


MILLION = 1_000_000
MINUTE_S = 60.0


class Collections:
    def __init__(self, millions: float = 2) -> None:
        """Of a process with so many blocks at its start."""
        self.now = 0.0
        self.worked = 0.0
        self.blocks = int(millions * MILLION)
        self.callback = ShortCollections(lambda: self.now, lambda: self.worked, lambda: self.blocks)

    def collect(self, of: dict[str, int], seconds: float) -> None:
        self.callback("start", of)
        self.worked += seconds
        self.callback("stop", of)

    def long(self, blocks: float) -> None:
        """A long collection with so many blocks."""
        self.blocks = int(blocks)
        self.collect(OLDEST, 0.02)

    def a_minute_with(self, blocks: float) -> None:
        """Also the minute before may have had fewer."""
        for _ in range(2):
            self.now += MINUTE_S
            self.long(blocks)


def test_what_a_long_collection_has_looked_through_is_in_no_later_one() -> None:
    Collections().collect(OLDEST, 0.02)
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize(("of", "seconds"), [(OLDEST, 0.001), (NEWEST, 0.02)])
def test_after_a_short_collection_or_of_a_younger_generation_all_is_as_before(
    of: dict[str, int], seconds: float
) -> None:
    Collections().collect(of, seconds)
    assert gc.get_freeze_count() == 0


def is_complete(collections: Collections) -> bool:
    """The next collection looks through what is frozen."""
    collections.callback("start", OLDEST)
    return gc.get_freeze_count() == 0


def test_a_collection_is_complete_when_the_memory_was_doubled_for_a_minute_since_the_last_one() -> None:
    collections = Collections()
    gc.freeze()
    seen = []
    for millions in (3.9, 4.1, 7.9, 8.3, 1.0, 2.5):
        collections.a_minute_with(millions * MILLION)
        seen.append(is_complete(collections))
        collections.callback("stop", OLDEST)
    assert seen == [False, True, False, True, False, False]


def test_memory_that_is_given_back_within_a_minute_is_no_reason_for_a_complete_one() -> None:
    collections = Collections()
    for _ in range(100):
        collections.now += MINUTE_S / 3
        collections.long(9 * MILLION)
        assert not is_complete(collections)
        collections.long(2.5 * MILLION)
        assert not is_complete(collections)


def test_memory_of_quiet_times_counts_where_collections_are_short() -> None:
    collections = Collections()
    for _ in range(5):
        collections.now += MINUTE_S
        collections.long(9 * MILLION)
        assert not is_complete(collections)
        collections.blocks = 2 * MILLION
        collections.collect(OLDEST, 0.001)


def test_little_memory_may_double_without_a_complete_one() -> None:
    collections = Collections(millions=0.05)
    collections.a_minute_with(1.04 * MILLION)
    assert not is_complete(collections)
    collections.a_minute_with(1.06 * MILLION)
    assert is_complete(collections)


def test_what_a_complete_collection_has_looked_through_is_in_no_later_one_if_it_was_long() -> None:
    for seconds in (0.001, 0.02):
        collections = Collections()
        collections.a_minute_with(4.1 * MILLION)
        collections.collect(OLDEST, seconds)
        assert (gc.get_freeze_count() > 0) == (seconds > 0.005)


def test_memory_that_work_has_taken_for_what_stays_is_no_reason_for_a_complete_one() -> None:
    collections = Collections()
    collections.blocks = 5 * MILLION
    collections.callback.made(before=3 * MILLION)
    collections.callback.made(before=2 * MILLION)
    collections.a_minute_with(9.9 * MILLION)
    assert not is_complete(collections)
    collections.a_minute_with(10.1 * MILLION)
    assert is_complete(collections), "it went on side by side, and is not counted twice"


class Node:
    def __init__(self) -> None:
        self.itself = self


def test_what_has_got_into_a_cycle_after_it_was_frozen_is_freed_by_a_complete_collection() -> None:
    collections = Collections()
    node = Node()
    left = weakref.ref(node)
    collections.collect(OLDEST, 0.02)
    del node
    gc.collect()
    assert left() is not None
    collections.a_minute_with(4.1 * MILLION)
    gc.callbacks.append(collections.callback)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(collections.callback)
    assert left() is None


@pytest.mark.parametrize("many", [True, False])
def test_work_that_makes_objects_that_stay(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    monkeypatch.setattr(ShortCollections, "made", lambda _, before: made.append(before))
    with no_collections(lambda: many):
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (gc.get_freeze_count() > 0, bool(made)) == (many, many)


def test_collections_go_on_after_work_that_failed() -> None:
    with pytest.raises(ZeroDivisionError), no_collections():
        raise ZeroDivisionError
    assert gc.isenabled()
