"""Prepared answers: to requests that a peer sends again and again, recognised by their bytes.

A prepared answer depends on what was checked when it was prepared: the roles of partitions, topics that exist, the
rights of its peer. None of that is checked again when it is given. Instead, Grounds is called on every change of one
of these, and the peers whose answers depend on it drop them before anything else is served. So an answer that is never
asked for again keeps nothing alive, either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from kafkad.net.connection import DeferredReply
from kafkad.net.reply import Pending, Reply

NO_REPLY: Final = b""
"""The answer to a request that the protocol answers with nothing."""
_MOST_PREPARED: Final = 50_000
"""Answers for all peers together. When there may be more all are forgotten, and prepared again as they are needed."""


class PreparedAnswers(Protocol):
    """For one API and one peer."""

    def answer(self, view: memoryview, at: int, end: int) -> Reply | DeferredReply | Pending | None:
        """HOT. The answer to the request in view[at:end], or PENDING; None for another request, and for one that has
        anything about it which is not quite ordinary, with nothing done."""


NOTHING_PREPARED: Final[Mapping[int, PreparedAnswers]] = MappingProxyType({})


class Resting:
    """What one peer has prepared since it last dropped everything, and the topics which that depends on."""

    __slots__ = ("forget", "prepared", "topics")

    def __init__(self, forget: Callable[[], None]) -> None:
        self.forget = forget
        """Has the peer drop it."""
        self.topics: set[str] = set()
        self.prepared = NOTHING_PREPARED
        """What was dropped, until it is cleared away."""


def _at_once(action: Callable[[], None]) -> None:
    action()


class Grounds:
    """The topics that prepared answers depend on, and the peers that must drop their answers when one changes.

    To drop them is a step for each peer, however many they are: there may be 50,000 in all. They are cleared away
    `later`.
    """

    def __init__(self, later: Callable[[Callable[[], None]], object] = _at_once) -> None:
        self._later = later
        self._resting: dict[str, set[Resting]] = {}
        self._all: set[Resting] = set()
        self._prepared = 0

    def rest(self, resting: Resting, topic: str) -> bool:
        """True if this peer may prepare another answer that depends on the topic; if not, all have been dropped."""
        self._prepared += 1
        if self._prepared > _MOST_PREPARED:
            self.everything_changed()
            return False
        self._all.add(resting)
        self._resting.setdefault(topic, set()).add(resting)
        resting.topics.add(topic)
        return True

    def dropped(self, resting: Resting) -> None:
        """Its peer has dropped it, and rests on what it prepares from now on alone."""
        self._all.discard(resting)
        self._later(partial(self._clear_away, resting))

    def _clear_away(self, resting: Resting) -> None:
        for topic in resting.topics:
            still = self._resting.get(topic)
            if still is not None:
                still.discard(resting)
                if not still:
                    del self._resting[topic]

    def topic_changed(self, topic: str) -> None:
        """A partition of it has another role here, is taken away or has lost its disk; or the topic is gone."""
        for resting in self._resting.pop(topic, ()):
            resting.forget()

    def everything_changed(self) -> None:
        """Permissions have changed: every peer drops its answers, without a look at whom the change concerns."""
        everybody = self._all
        self._prepared, self._resting, self._all = 0, {}, set()
        for resting in everybody:
            resting.forget()
