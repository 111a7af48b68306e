"""The opaque bytes in which members of a classic group put their subscriptions and assignments. Pure.

A newer protocol only adds fields at the end, and librdkafka leaves bytes behind them: what is there to read is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafkad.names import TopicPartition
from kafkad.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafkad.wire.schema import MalformedError, read

CONSUMER = "consumer"
"""The protocol type of groups whose members read topics; others (Connect's workers) have bytes of their own."""
_NEWEST = 3


def subscribed_topics(data: bytes) -> tuple[str, ...]:
    """None where the bytes make no sense, as below."""
    return next((tuple(found.topics) for found in _readings(ConsumerProtocolSubscription, data)), ())


def subscription_format(data: bytes) -> int | None:
    """None where nothing was said, as in a rebalance."""
    return int.from_bytes(data[:2], "big", signed=True) if len(data) >= 2 else None


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    for found in _readings(ConsumerProtocolAssignment, data):
        return tuple(
            TopicPartition(share.topic, partition)
            for share in found.assigned_partitions
            for partition in share.partitions
        )
    return ()


def _readings(cls: Any, data: bytes) -> Iterator[Any]:
    """In the version that the bytes begin with; then in the first one, the fields of which all versions begin with."""
    if len(data) < 2:
        return
    version = int.from_bytes(data[:2], "big", signed=True)
    for tried in dict.fromkeys((min(max(version, 0), _NEWEST), 0)):
        try:
            yield read(cls, tried, data, 2)[0]
        except MalformedError:
            continue
