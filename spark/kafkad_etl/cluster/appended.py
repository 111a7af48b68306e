"""How much a topic has grown during a run: what a batch that failed has written of its rows, nobody else knows."""

from __future__ import annotations

from collections.abc import Mapping

from kafkad.names import TopicPartition
from kafkad_etl.cluster import topics
from kctl.errors import KctlError
from kctl.reach.offsets import LATEST, OffsetAt, offsets_at
from kctl.reach.session import Session

Ends = Mapping[TopicPartition, OffsetAt | KctlError]


class Appended:
    """Of one topic, from when it was made. The session may have other users."""

    def __init__(self, session: Session, topic: str) -> None:
        self._session = session
        self.topic = topic
        self._begin = self._ends()

    def records(self) -> int:
        """Those of other producers too. KctlError if no broker says it."""
        return grown(self._begin, self._ends())

    def _ends(self) -> Ends:
        found = topics.find(self._session, [self.topic])[self.topic]
        partitions = found.partitions if found else ()
        return offsets_at(self._session, {TopicPartition(self.topic, each): LATEST for each in partitions})


def grown(begin: Ends, end: Ends) -> int:
    """A partition that was added since began at 0."""
    return sum(
        at.offset - (before.offset if isinstance(before := begin.get(where), OffsetAt) else 0)
        for where, at in end.items()
        if isinstance(at, OffsetAt) and not isinstance(begin.get(where), KctlError)
    )
