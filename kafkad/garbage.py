"""Python's garbage collections, kept short: everything else stands still meanwhile.

They are for objects in a cycle, of which a broker makes few: the rest is freed at once, when nothing uses it any more.
A collection looks through all objects, and comes again and again while they become more. What has been looked through
once may be left out of later ones (it is "frozen"): it is still freed when nothing uses it, unless it has got into a
cycle by then. That is found by a complete collection, which looks through the frozen as well, and holds up the broker
for 160 ms for each million of blocks of memory.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from time import monotonic, thread_time
from typing import Any, Final

_LONG_S: Final = 0.005
_MINUTE_S: Final = 60.0
_MANY: Final = 1_000_000
"""Blocks of memory: about 70 MB of Python's objects."""
_THRESHOLDS: Final = (700, 10, 1)
"""New objects until there is a collection of the newest, and collections of each generation until one of the next.
Python's last threshold is 10: so many new objects at a time that looking through them would take 50 ms."""


def keep_collections_short() -> None:
    """For the rest of the life of this process: what a long collection has looked through is in no later one."""
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(_of_this_process)


class ShortCollections:
    """A callback of `gc`: what a long collection has looked through is frozen. Where collections are short there is
    nothing to gain, and cycles are still found.

    Memory that was never less for a minute than twice what it was after the last complete collection, and a million
    blocks more, may be in cycles: the next collection of all generations is complete. What requests take and give back
    soon is no reason for one. A process that keeps nothing in cycles has few in its life, whatever it is used for.
    Time for which the processor did something else does not count as that of a collection.
    """

    def __init__(
        self,
        now: Callable[[], float] = monotonic,
        worked: Callable[[], float] = thread_time,
        blocks: Callable[[], int] = sys.getallocatedblocks,
    ) -> None:
        """`blocks`: the memory of Python's objects. To count those that are frozen would take 60 ms for a million."""
        self._now = now
        self._worked = worked
        self._blocks = blocks
        self._begun = 0.0
        self._blocks_then = blocks()
        """After the last complete collection, and of what has been made since that needs none."""
        self._minute_begun, self._fewest = now(), self._blocks_then
        """Of the present minute."""
        self._complete_is_due = False
        """The present collection of all generations is complete, or the next one will be."""

    def __call__(self, phase: str, of: dict[str, Any]) -> None:
        if of["generation"] < 2:
            return
        if phase == "start":
            if self._complete_is_due:
                gc.unfreeze()
            self._begun = self._worked()
        else:
            self._ended(self._worked() - self._begun > _LONG_S)

    def _ended(self, was_long: bool) -> None:
        blocks = self._blocks()
        self._fewest = min(self._fewest, blocks)
        if was_long:
            gc.freeze()
        if self._complete_is_due:
            self._blocks_then = blocks
        self._complete_is_due = False
        now = self._now()
        if was_long and now - self._minute_begun >= _MINUTE_S:
            self._complete_is_due = self._fewest > max(2 * self._blocks_then, self._blocks_then + _MANY)
            self._minute_begun, self._fewest = now, blocks

    def made(self, before: int) -> None:
        """What was made since there were so many blocks stays, and is in no cycle: no reason to look through all.
        Works that went on side by side count each other's, but never more than there is."""
        blocks = self._blocks()
        self._blocks_then = max(self._blocks_then, min(self._blocks_then + blocks - before, blocks))


_of_this_process: Final = ShortCollections()


@contextlib.contextmanager
def no_collections(freezes: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """For work that makes many objects that stay, with no cycles among them: they are in no collection, neither during
    the work nor later, if `freezes` says at its end that they are many enough."""
    gc.disable()
    before = sys.getallocatedblocks()
    try:
        yield
    finally:
        if freezes():
            gc.freeze()
            _of_this_process.made(before)
        gc.enable()
