"""Replicas that have lost records: their logs end below the high watermark that was in the checkpoint, or below what
had been flushed, or have lost the end of a file before the last one (`Log.whole_until`).

An unclean stop does that when the disk had not taken all of a log, or when the last bytes are damaged and were cut off
at the start. The ISR in the metadata store still has such a replica, so a controller may choose it as leader; its
followers would cut their logs to its own, and the records would be gone from all of them.

So it refuses to lead by answering KAFKA_STORAGE_ERROR to the LeaderAndIsr, as if its log directory had failed. Every
controller knows that answer, Kafka's too: it takes the replica out of the ISR, unless it is the last one, and elects
another. When that one leads, a note as after a failed log directory makes the controller ask again; now the replica
follows and catches up.

It leads after it has what it had lost, or a leader has taken it into the ISR again; when it has been elected as one
that may lack records; when there is no other replica; and when it is the last one in sync and
`unclean.leader.election.enable` allows any leader.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kafkad.cluster.metadata import MetadataCache
from kafkad.names import TopicPartition
from kafkad.replica.partition import Partition
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LostTail:
    promised: int
    left_isr: bool = False
    """The controller has said since that the replica is not in sync."""


class LostTails:
    """`refused` are those that were to lead last and refused."""

    def __init__(self, broker: int) -> None:
        self.refused: set[TopicPartition] = set()
        self._broker = broker
        self._lost: dict[TopicPartition, LostTail] = {}

    def note(self, tp: TopicPartition, whole_until: int, promised: int) -> None:
        """A log was opened that is whole up to an offset, and is known to have been up to `promised`."""
        if whole_until < promised:
            self._lost[tp] = LostTail(promised)

    def forget(self, tp: TopicPartition) -> None:
        self._lost.pop(tp, None)
        self.refused.discard(tp)

    def raise_to_promised(self, high_watermarks: dict[TopicPartition, int]) -> None:
        for tp in self._lost.keys() & high_watermarks.keys():
            high_watermarks[tp] = max(self._lost[tp].promised, high_watermarks[tp])

    def may_take(self, partition: Partition, state: LeaderAndIsrPartitionState) -> bool:
        """False if the controller wants the replica to lead and it must not."""
        tp = partition.tp
        lost = self._lost.get(tp)
        if lost is None:
            return True
        if partition.log.whole_until >= lost.promised or (lost.left_isr and self._broker in state.isr):
            self.forget(tp)
            return True
        lost.left_isr = lost.left_isr or self._broker not in state.isr
        if state.leader != self._broker:
            return True
        end = partition.log.whole_until
        if self._must_lead(partition, state):
            log.error("%s has lost its records from %d to %d, and leads without them", tp, end, lost.promised)
            self.forget(tp)
            return True
        self.refused.add(tp)
        log.error(
            "%s does not lead here: the log is whole up to %d, and had everything below %d before an unclean stop. "
            "It waits for another in-sync replica, or for an unclean election",
            tp,
            end,
            lost.promised,
        )
        return False

    def _must_lead(self, partition: Partition, state: LeaderAndIsrPartitionState) -> bool:
        alone = list(state.replicas) == [self._broker]
        last = list(state.isr) == [self._broker] and partition.log.config.unclean_leader_election
        return alone or last or state.leader_recovery_state != 0

    def led_elsewhere(self, metadata: MetadataCache) -> bool:
        """True if a partition that was refused has another leader by now."""
        led = set()
        for tp in self.refused:
            topic = metadata.topics.get(tp.topic)
            state = topic.partitions.get(tp.partition) if topic is not None else None
            if state is not None and state.leader >= 0 and state.leader != self._broker:
                led.add(tp)
        self.refused -= led
        return bool(led)
