"""A thread that asks a cluster, over a connection of its own, about one thing after another."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

from kctl.reach.session import Session

CLOSE_SECONDS = 3.0

Asked = TypeVar("Asked")


class Queued(Generic[Asked]):
    """Calls `ask` in its thread with each of what is `put`, in order, and closes the session behind the last."""

    def __init__(self, session: Session, name: str, ask: Callable[[Asked], None]) -> None:
        self._session = session
        self._ask = ask
        self._queue: SimpleQueue[Asked | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def put(self, asked: Asked) -> None:
        """Never blocks."""
        self._queue.put(asked)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Waits for what was put. False if that took too long."""
        self._queue.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while (asked := self._queue.get()) is not None:
                self._ask(asked)
        finally:
            self._session.close()
