"""The same work for several things, all at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class AtOnce(Generic[R]):
    """Work in threads, in whatever order it comes to an end. They are daemons: Ctrl-C waits for none of them."""

    def __init__(self, work: Callable[[T], R], things: Sequence[T]) -> None:
        """`work` returns its failures: one that is raised would leave the one who waits for it alone."""
        self._finished: SimpleQueue[tuple[int, R]] = SimpleQueue()
        self._lock = Lock()
        self._unwanted: Callable[[R], None] | None = None

        def begin(at: int) -> None:
            result = work(things[at])
            with self._lock:
                if self._unwanted is None:
                    self._finished.put((at, result))
                else:
                    self._unwanted(result)

        for at in range(len(things)):
            Thread(target=begin, args=(at,), daemon=True).start()

    def next(self) -> tuple[int, R]:
        """A result, and the number of its thing."""
        return self._finished.get()

    def abandon(self, unwanted: Callable[[R], None]) -> None:
        """`unwanted` gets the results that are already there, and any that come later."""
        with self._lock:
            self._unwanted = unwanted
        while not self._finished.empty():
            unwanted(self._finished.get()[1])


def at_once(work: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """All results, in the order of the things."""
    pending = AtOnce(work, things)
    results = dict(pending.next() for _ in things)
    return [results[at] for at in range(len(things))]
