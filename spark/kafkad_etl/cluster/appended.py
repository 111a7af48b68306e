"""Measures how much a topic grew during a run; nothing else knows how many rows of a failed batch were written."""

from __future__ import annotations

from collections.abc import Mapping

from kafkad.names import TopicPartition
from kafkad_etl.cluster import topics
from kctl.errors import KctlError
from kctl.reach.offsets import LATEST, OffsetAt, offsets_at
from kctl.reach.session import Session

Ends = Mapping[TopicPartition, OffsetAt | KctlError]


class Appended:
    """The growth of one topic since this object was created. The session may be shared."""

    def __init__(self, session: Session, topic: str) -> None:
        self._session = session
        self.topic = topic
        self._begin = self._ends()

    def records(self) -> int:
        """Records appended, including those of other producers. Raises KctlError if no broker answers."""
        return grown(self._begin, self._ends())

    def _ends(self) -> Ends:
        found = topics.find(self._session, [self.topic], (topics.WRITE,))[self.topic]
        partitions = found.partitions if found else ()
        return offsets_at(self._session, {TopicPartition(self.topic, each): LATEST for each in partitions})


def grown(begin: Ends, end: Ends) -> int:
    """The number of records between two sets of end offsets. A partition added in between started at 0."""
    return sum(
        at.offset - (before.offset if isinstance(before := begin.get(where), OffsetAt) else 0)
        for where, at in end.items()
        if isinstance(at, OffsetAt) and not isinstance(begin.get(where), KctlError)
    )
