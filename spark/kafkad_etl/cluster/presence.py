"""Whether the topics that a job reads for ever are still there: Spark's Kafka client waits for a minute and more.

A thread looks now and then, with a connection of its own. A broker that has just started may not know its topics yet,
so one is gone only if every look for a while says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from threading import Event, Thread

from kafkad_etl.cluster import topics
from kctl.errors import KctlError
from kctl.reach.session import Session

LOOK_SECONDS = 3.0
GONE_SECONDS = 15.0


class Absences:
    """Pure."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[str, float] = {}

    def after(self, missing: Set[str], now: float) -> list[str]:
        """Topics that were missing in every look for so long."""
        self._since = {name: self._since.get(name, now) for name in missing}
        return sorted(name for name, since in self._since.items() if now - since >= self._patience)


class Presence:
    """`gone` is called in the thread, once. The session is its own."""

    def __init__(self, session: Session, ids: Mapping[str, str], gone: Callable[[list[str]], None]) -> None:
        self._session = session
        self._ids = ids
        self._gone = gone
        self._absences = Absences(GONE_SECONDS)
        self._closing = Event()
        self._thread = Thread(target=self._work, name="presence of topics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()

    def _work(self) -> None:
        try:
            while not self._closing.wait(LOOK_SECONDS):
                if names := self._absences.after(self._missing(), time.monotonic()):
                    self._gone(names)
                    return
        finally:
            self._session.close()

    def _missing(self) -> set[str]:
        try:
            return topics.gone(self._session, self._ids)
        except KctlError:
            return set()  # who cannot be asked has not said so
