"""Python's garbage collections, kept short: everything else stands still meanwhile.

They are for objects in a cycle, of which a broker makes few: the rest is freed at once, when nothing uses it any more.
A collection looks through all objects, and comes again and again while they become more. What has been looked through
once may be left out of all later ones (it is "frozen"): it is still freed when nothing uses it, unless it has got into
a cycle by then.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Any, Final

_LONG_S: Final = 0.005
_THRESHOLDS: Final = (700, 10, 1)
"""New objects until there is a collection of the newest, and collections of each generation until one of the next.
Python's last threshold is 10: so many new objects at a time that looking through them would take 50 ms."""


def keep_collections_short() -> None:
    """For the rest of the life of this process: what a long collection has looked through is in no later one."""
    gc.set_threshold(*_THRESHOLDS)
    gc.callbacks.append(FreezingAfterLong())


class FreezingAfterLong:
    """A callback of `gc`. Where collections are short there is nothing to gain, and cycles are still found.

    Time for which the processor did something else does not count.
    """

    def __init__(self, now: Callable[[], float] = thread_time) -> None:
        self._now = now
        self._begun = 0.0

    def __call__(self, phase: str, of: dict[str, Any]) -> None:
        if of["generation"] < 2:
            return
        if phase == "start":
            self._begun = self._now()
        elif self._now() - self._begun > _LONG_S:
            gc.freeze()


@contextlib.contextmanager
def no_collections(freezes: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """For work that makes many objects that stay, with no cycles among them: they are in no collection, neither during
    the work nor later, if `freezes` says at its end that they are many enough."""
    gc.disable()
    try:
        yield
    finally:
        if freezes():
            gc.freeze()
        gc.enable()
