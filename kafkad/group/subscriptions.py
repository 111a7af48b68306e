"""The topics that consumers say they want, from what they send along with a join."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafkad.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from kafkad.wire.schema import MalformedError, read

_VERSION = struct.Struct(">h")


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """None when one of them cannot be read. All versions begin like version 0, so newer ones need not be known."""
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            (version,) = _VERSION.unpack_from(subscription)
            if version < 0:
                return None
            topics.update(read(ConsumerProtocolSubscription, 0, subscription, _VERSION.size)[0].topics)
    except (struct.error, MalformedError):
        return None
    return frozenset(topics)
