"""Watches whether the topics of a continuous job still exist and may be seen; Spark's Kafka client would wait for a
minute or more, or go on without them.

A thread with its own connection polls. A broker that has just started may not know its topics yet, so a topic is
considered gone only if every poll for a while says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from threading import Event, Thread

from kafkad_etl.cluster import topics
from kafkad_etl.cluster.topics import Absence
from kctl.reach.session import Session

LOOK_SECONDS = 3.0
GONE_SECONDS = 15.0


class Absences:
    """Tracks how long topics have been missing. Pure."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._since: dict[str, float] = {}

    def after(self, missing: Set[str], now: float) -> list[str]:
        """Topics that were missing in every poll for the whole patience."""
        self._since = {name: self._since.get(name, now) for name in missing}
        return sorted(name for name, since in self._since.items() if now - since >= self._patience)


class Presence:
    """Watches topics. `gone` is called in its thread, once, and the session is its own."""

    def __init__(self, session: Session, ids: Mapping[str, str], gone: Callable[[Mapping[str, Absence]], None]) -> None:
        self._session = session
        self._ids = ids
        self._gone = gone
        self._absences = Absences(GONE_SECONDS)
        self._closing = Event()
        self._thread = Thread(target=self._work, name="presence of topics", daemon=True)
        self._thread.start()

    def watch(self, ids: Mapping[str, str]) -> None:
        """Watches these topics too, which the run is the first to read."""
        self._ids = {**self._ids, **ids}

    def close(self) -> None:
        self._closing.set()

    def _work(self) -> None:
        try:
            while not self._closing.wait(LOOK_SECONDS):
                absent = self._absent()
                if names := self._absences.after(absent.keys(), time.monotonic()):
                    self._gone({name: absent[name] for name in names})
                    return
        finally:
            self._session.close()

    def _absent(self) -> dict[str, Absence]:
        try:
            return topics.absent(self._session, self._ids)
        except Exception:
            return {}  # who cannot be asked has not said so
