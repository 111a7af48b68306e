"""Prepared answers: to requests that a peer sends again and again, recognised by their bytes.

A prepared answer depends on what was checked when it was prepared: the roles of partitions, topics that exist, the
rights of its peer. None of that is checked again when it is given. Instead, Grounds is called on every change of one
of these, and the peers whose answers depend on it drop them before anything else is served. So an answer that is never
asked for again keeps nothing alive, either.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class Resting(Protocol):
    """Has prepared answers."""

    def forget(self) -> None:
        """Forget them all."""


class Grounds:
    """The topics that prepared answers depend on, and the peers that must drop their answers when one changes."""

    def __init__(self) -> None:
        self._resting: dict[str, set[Resting]] = {}
        self._prepared = 0

    def rest(self, peer: Resting, topic: str) -> bool:
        """True if this peer may prepare another answer that depends on the topic; if not, all have been dropped."""
        self._prepared += 1
        if self._prepared > _MOST_PREPARED:
            self.everything_changed()
            return False
        self._resting.setdefault(topic, set()).add(peer)
        return True

    def leave(self, peer: Resting, topic: str) -> None:
        resting = self._resting.get(topic)
        if resting is not None:
            resting.discard(peer)
            if not resting:
                del self._resting[topic]

    def topic_changed(self, topic: str) -> None:
        """A partition of it has another role here, is taken away or has lost its disk; or the topic is gone."""
        for peer in self._resting.pop(topic, ()):
            peer.forget()

    def everything_changed(self) -> None:
        """Permissions have changed: every peer drops its answers, without a look at whom the change concerns."""
        self._prepared = 0
        while self._resting:
            for peer in self._resting.popitem()[1]:
                peer.forget()
