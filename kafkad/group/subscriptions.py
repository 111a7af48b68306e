"""The topics that the members of a generation consume (KIP-211), from what they send along with a join."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from kafkad.turns import Pieces
from kafkad.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from kafkad.wire.schema import MalformedError, decode_in_pieces

_VERSION = struct.Struct(">h")
_MOST_TOPICS: Final = 100_000
"""More in one subscription than any cluster has: it is taken as one that cannot be read."""


class Subscriptions:
    """The subscriptions of one generation. They are megabytes where consumers with a pattern are many, and hardly
    anybody asks for them: they are read only then, in pieces, and once."""

    __slots__ = ("_unread", "topics")

    def __init__(self, metadata: Iterable[bytes] | None) -> None:
        """`metadata` is what the members sent; None in a group that is not known to be one of consumers."""
        self._unread = None if metadata is None else tuple(metadata)
        self.topics: frozenset[str] | None = None
        """None when that cannot be known, and until they have been read."""

    @property
    def are_unread(self) -> bool:
        return self._unread is not None

    def read(self) -> Pieces[None]:
        """To be done before `topics` is asked for."""
        if self._unread is not None:
            self.topics = yield from _topics_of(self._unread)
            self._unread = None

    def include(self, topic: str) -> bool:
        """True if some member may consume it."""
        return self.topics is None or topic in self.topics


def _topics_of(subscriptions: Iterable[bytes]) -> Pieces[frozenset[str] | None]:
    """None when one of them cannot be read. All versions begin like version 0, so newer ones need not be known."""
    topics: set[str] = set()
    seen: set[bytes] = set()
    try:
        for subscription in subscriptions:
            if subscription not in seen:
                seen.add(subscription)
                (version,) = _VERSION.unpack_from(subscription)
                if version < 0:
                    return None
                body = memoryview(subscription)[_VERSION.size :]
                read = yield from decode_in_pieces(ConsumerProtocolSubscription, 0, body, _MOST_TOPICS)
                topics.update(read.topics)
            yield
    except (struct.error, MalformedError):
        return None
    return frozenset(topics)
