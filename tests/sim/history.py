"""The history of one run as its clients saw it, and the first thing in it that must not be."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple


class Place(NamedTuple):
    """A partition of a topic; topics made again under the same name are others."""

    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id.hex()[:4]}-{self.partition}"


LOOSE = "loose"
"""A topic that prefers any leader to none: what was acknowledged may be lost."""
BANK = "bank"
"""The topic of the accounts that transactions change."""


class Violation(AssertionError):
    """Something that a cluster has promised does not hold."""


class History:
    def __init__(self) -> None:
        self.names: dict[bytes, str] = {}
        self.gone: set[bytes] = set()
        """Topics whose deletion was asked for: nothing is promised of them any more."""
        self.acked: dict[Place, dict[int, bytes]] = defaultdict(dict)
        """Values by offset, as acknowledged with acks=all."""
        self.read: dict[Place, dict[int, bytes]] = defaultdict(dict)
        """Values by offset, as some consumer read them."""
        self._last: dict[Place, int] = {}
        self.sent_once: set[bytes] = set()
        """Values of idempotent producers: none of them may stand in a log twice."""
        self.committed = -1
        """The highest offset whose commit has been acknowledged."""

    def is_loose(self, topic_id: bytes) -> bool:
        return self.names.get(topic_id) == LOOSE

    def acknowledged(self, place: Place, base: int, values: list[bytes]) -> None:
        if self.is_loose(place.topic_id):
            return
        for offset, value in enumerate(values, base):
            self._agree(place, offset, value, "acknowledged")
            self.acked[place][offset] = value
            self._last[place] = max(self._last.get(place, -1), offset)

    def was_read(self, place: Place, offset: int, value: bytes) -> None:
        if self.is_loose(place.topic_id):
            return
        self._agree(place, offset, value, "read")
        self.read[place][offset] = value
        self._last[place] = max(self._last.get(place, -1), offset)

    def _agree(self, place: Place, offset: int, value: bytes, what: str) -> None:
        for before, records in (("acknowledged", self.acked), ("read", self.read)):
            known = records[place].get(offset)
            if known is not None and known != value:
                raise Violation(f"{place} offset {offset}: {value!r} {what}, but {known!r} was {before} there")

    def promised(self, place: Place) -> dict[int, bytes]:
        """What must be in every log that may lead."""
        if place.topic_id in self.gone:
            return {}
        return {**self.read[place], **self.acked[place]}

    def last_promised(self, place: Place) -> int:
        """The highest offset of it; -1 when there is none."""
        return -1 if place.topic_id in self.gone else self._last.get(place, -1)

    @property
    def places(self) -> list[Place]:
        return sorted({*self.acked, *self.read})
