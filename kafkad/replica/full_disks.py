"""Replicas on a disk that has no room: they leave their ISRs until there is some, so that the others can go on.

An append that a full disk refuses is an error for its producer and nothing more, if no other replica is in sync. Where
others are, all replicas of that log directory that are in sync stop leading and following, and the controller is made
to ask about them, as after a failed log directory. They answer KAFKA_STORAGE_ERROR, which every controller knows: it
elects others and takes them out of the ISRs. When there is room again it is made to ask once more, and they follow.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import replace

from kafkad.cluster.metadata import MetadataCache
from kafkad.names import TopicPartition
from kafkad.replica.partition import Partition

log = logging.getLogger(__name__)

_NOBODY = -1
_LOOK_MS = 1_000
"""Refused appends come in thousands; what leaves is looked for once in this time."""
_QUIET_MS = 60_000
"""Without a refusal for so long, a disk that has room takes what comes: some room may be too little for a batch, or for
compaction, which tries again every 15 s."""


class FullDisks:
    def __init__(self, broker: int, metadata: MetadataCache) -> None:
        self._broker = broker
        self._metadata = metadata
        self._left: dict[TopicPartition, Partition] = {}
        """What has left its ISR."""
        self._asked: set[TopicPartition] = set()
        """Those of which the controller knows."""
        self._next_look_ms: dict[str, float] = {}
        self._refused_ms: dict[str, float] = {}
        """When log directories last refused something for want of room, until they take records again."""

    def refused(self, directory: str, now_ms: float) -> None:
        self._refused_ms[directory] = now_ms

    def recovered(self, has_room: Callable[[str], bool], now_ms: float) -> list[str]:
        """The log directories that take records again, each once."""
        quiet = [directory for directory, at_ms in self._refused_ms.items() if now_ms - at_ms >= _QUIET_MS]
        recovered = [directory for directory in quiet if has_room(directory)]
        for directory in recovered:
            del self._refused_ms[directory]
        return recovered

    def is_to_look(self, directory: str, now_ms: float) -> bool:
        """False if this log directory has refused another append just now."""
        if now_ms < self._next_look_ms.get(directory, now_ms):
            return False
        self._next_look_ms[directory] = now_ms + _LOOK_MS
        return True

    def leave(self, directory: str, partition: Partition) -> bool:
        """True if the replica leaves its ISR since this log directory has refused an append: it has no leader here from
        now on. One that has been deleted or lost since somebody began to look has nothing to leave."""
        if (
            partition.stopped
            or partition.failure is not None
            or _place(partition) != directory
            or partition.tp in self._left
            or not self._is_in_sync_with_others(partition)
        ):
            return False
        self._left[partition.tp] = partition
        partition.become(replace(partition.role, leader=_NOBODY))
        return True

    def _is_in_sync_with_others(self, partition: Partition) -> bool:
        """A leader knows its ISR; a follower is told of it with the metadata."""
        isr: Collection[int] = partition.role.isr
        if not partition.is_leader:
            state = self._metadata.state_of(partition.tp)
            isr = state.isr if state is not None else ()
        return self._broker in isr and len(isr) > 1

    def refuses(self, tp: TopicPartition) -> bool:
        """The answer to a controller that gives the replica a role."""
        if tp not in self._left:
            return False
        self._asked.add(tp)
        return True

    def forget(self, tp: TopicPartition) -> None:
        self._left.pop(tp, None)
        self._asked.discard(tp)

    def come_back(self, has_room: Callable[[str], bool]) -> bool:
        """True if the controller has to ask again about replicas whose log directories have room by now."""
        places = {tp: _place(self._left[tp]) for tp in self._asked}
        with_room = {directory for directory in set(places.values()) if has_room(directory)}
        back = [tp for tp, directory in places.items() if directory in with_room]
        for tp in back:
            self.forget(tp)
        if back:
            log.info("there is room in %s again: %d partitions follow", ", ".join(sorted(with_room)), len(back))
        return bool(back)


def _place(partition: Partition) -> str:
    """Its log directory, which may be another one by now than the one that was full: replicas are moved."""
    return os.path.dirname(partition.log.directory)
