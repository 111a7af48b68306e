"""Brokers and leaders as a client can reach them, by the listener it came through."""

from __future__ import annotations

from kafkad.cluster.metadata import MetadataCache
from kafkad.errors import ErrorCode
from kafkad.model import NO_LEADER
from kafkad.wire.messages.update_metadata import UpdateMetadataPartitionState


class ReachableBrokers:
    """The live brokers that have the listener `listener`, and their addresses there."""

    __slots__ = ("_live", "brokers", "ids")

    def __init__(self, metadata: MetadataCache, listener: str) -> None:
        self._live = metadata.brokers
        found = [(broker, broker.endpoint(listener)) for broker in metadata.brokers.values()]
        self.brokers = [(broker, endpoint) for broker, endpoint in found if endpoint is not None]
        self.ids = frozenset(broker.id for broker, _ in self.brokers)

    def leader(self, state: UpdateMetadataPartitionState) -> tuple[int, int]:
        """The leader of a partition, and the error if there is none that this client can reach."""
        leader = state.leader
        if leader in self.ids:
            return leader, 0
        return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND if leader in self._live else ErrorCode.LEADER_NOT_AVAILABLE
