"""Garbage collections of Python: what a long one has looked through is in no later one."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kafkad.garbage import FreezingAfterLong, no_collections

OLDEST = {"generation": 2, "collected": 0, "uncollectable": 0}
NEWEST = {"generation": 0, "collected": 0, "uncollectable": 0}


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """Also not by another test, or afterwards."""
    gc.unfreeze()
    yield
    gc.unfreeze()


class Collections:
    def __init__(self) -> None:
        self.now = 0.0
        self.callback = FreezingAfterLong(lambda: self.now)

    def collect(self, of: dict[str, int], seconds: float) -> None:
        self.callback("start", of)
        self.now += seconds
        self.callback("stop", of)


def test_what_a_long_collection_has_looked_through_is_in_no_later_one() -> None:
    Collections().collect(OLDEST, 0.02)
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize(("of", "seconds"), [(OLDEST, 0.001), (NEWEST, 0.02)])
def test_after_a_short_collection_or_of_a_younger_generation_all_is_as_before(
    of: dict[str, int], seconds: float
) -> None:
    Collections().collect(of, seconds)
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("many", [True, False])
def test_work_that_makes_objects_that_stay(many: bool) -> None:
    with no_collections(lambda: many):
        assert not gc.isenabled()
    assert gc.isenabled()
    assert (gc.get_freeze_count() > 0) == many


def test_collections_go_on_after_work_that_failed() -> None:
    with pytest.raises(ZeroDivisionError), no_collections():
        raise ZeroDivisionError
    assert gc.isenabled()
