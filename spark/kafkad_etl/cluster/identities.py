"""Learns the ids of topics that a run is the first to read, such as new ones of a pattern. Without its id, a topic that
is deleted and made again cannot be told from the one whose offsets the checkpoint has.

A thread with its own connection asks after the first batch that names a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkad_etl.cluster import topics
from kafkad_etl.cluster.queued import Queued
from kafkad_etl.errors import text_of
from kafkad_etl.facts import topics_text
from kafkad_etl.messages import Batch
from kctl.reach.session import Session


class Identities:
    """Asks for ids. `learned` and `warn` are called in its thread, and the session is its own."""

    def __init__(
        self,
        session: Session,
        known: Iterable[str],
        learned: Callable[[Mapping[str, str]], None],
        warn: Callable[[str], None],
    ) -> None:
        """`known`: the topics whose ids are on record."""
        self._session = session
        self._known = frozenset(known)
        self._learned = learned
        self._warn = warn
        self._warned = False
        self._queued = Queued(session, "ids of topics", self._learn)

    def offer(self, batch: Batch) -> None:
        """Queues the topics of a batch that are not known; never blocks."""
        if unknown := batch.end.keys() - self._known:
            self._queued.put(frozenset(unknown))

    def close(self) -> None:
        if not self._queued.close():
            self._warn("no broker responded in time to tell the ids of topics that this run was the first to read")

    def _learn(self, offered: frozenset[str]) -> None:
        names = sorted(offered - self._known)
        if not names:
            return
        try:
            found = topics.find(self._session, names)
            ids = {name: topic.id for name, topic in found.items() if topic}
            self._learned(ids)
            self._known |= ids.keys()
        except Exception as error:  # the next batch names them again
            if not self._warned:
                self._warned = True
                self._warn(f"the ids of {topics_text(names)} are not recorded yet: {text_of(error)}")
