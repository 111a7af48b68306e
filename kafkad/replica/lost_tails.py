"""Replicas that have lost records: their logs end below the high watermark that was in the checkpoint, or below what
had been flushed, or have lost the end of a file before the last one (`Log.whole_until`); or they are gone with a log
directory (`broker/leave_isr`).

An unclean stop does that when the disk had not taken all of a log, or when the last bytes are damaged and were cut off
at the start. The ISR in the metadata store still has such a replica, so a controller may choose it as leader; its
followers would cut their logs to its own, and the records would be gone from all of them.

So it refuses to lead by answering KAFKA_STORAGE_ERROR to the LeaderAndIsr, as if its log directory had failed. Every
controller knows that answer, Kafka's too: it takes the replica out of the ISR, unless it is the last one, and elects
another. When that one leads, a note as after a failed log directory makes the controller ask again; now the replica
follows and catches up.

It leads after it has what it had lost, or a leader has taken it into the ISR again; when it is asked by an unclean
election; when there is no other replica; and when it is the last one in sync and
`unclean.leader.election.enable` allows any leader.

Of a replica that is gone nothing is left, so that any other one may have more: by an unclean election it leads only if
the controller says that no other does (`Asked`), and first one that has copied a part again; or, where that does not
say how it asks, as Kafka's, if no other is online. It is not made before it leads, or has a leader to follow and is out
of the ISR, so that it cannot be elected with a part of the log: while it is not there, a restart finds that it is gone.
A controller that still has it in the ISR of another leader gets the same answer, and takes it out.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kafkad.cluster.metadata import MetadataCache
from kafkad.errors import ErrorCode
from kafkad.model import NO_LEADER, Asked
from kafkad.names import TopicId, TopicPartition, is_another_topic
from kafkad.replica.partition import Partition
from kafkad.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

log = logging.getLogger(__name__)


@dataclass(slots=True)
class LostTail:
    promised: int | None
    """None if nobody knows: the whole replica was gone."""
    left_isr: bool = False
    """The controller has said since that the replica is not in sync."""

    @property
    def was_gone(self) -> bool:
        return self.promised is None


class LostTails:
    """`refused` are those that were refused last, and may be taken when another leads without them in sync; `gone` are
    replicas that went with a log directory, with the ids of their topics, while they are not made again."""

    def __init__(self, broker: int, metadata: MetadataCache) -> None:
        self.refused: set[TopicPartition] = set()
        self.gone: dict[TopicPartition, TopicId] = {}
        self._broker = broker
        self._metadata = metadata
        self._lost: dict[TopicPartition, LostTail] = {}

    def note(self, tp: TopicPartition, whole_until: int, promised: int) -> None:
        """A log was opened that is whole up to an offset, and is known to have been up to `promised`."""
        if self.gone.pop(tp, None) is not None:
            self._lost[tp] = LostTail(None)
        elif whole_until < promised:
            self._lost[tp] = LostTail(promised)

    def forget(self, tp: TopicPartition) -> None:
        self.gone.pop(tp, None)
        self._lost.pop(tp, None)
        self.refused.discard(tp)

    def raise_to_promised(self, high_watermarks: dict[TopicPartition, int]) -> None:
        for tp in self._lost.keys() & high_watermarks.keys():
            high_watermarks[tp] = max(self._lost[tp].promised or 0, high_watermarks[tp])

    def answer_instead_of_making(
        self, tp: TopicPartition, topic_id: TopicId, state: LeaderAndIsrPartitionState, *, unclean: bool
    ) -> ErrorCode | None:
        """What a controller is told of a replica that is gone, where it is not made: NONE while it has no leader to
        follow; KAFKA_STORAGE_ERROR while it is in sync with one, or is to lead and must not. None where it is to be
        made. `unclean` says whether the topic allows any leader."""
        if state.is_new or is_another_topic(self.gone[tp], topic_id):
            self.forget(tp)
            return None
        if state.leader == NO_LEADER:
            return ErrorCode.NONE
        if state.leader == self._broker and not self._must_lead(tp, state, unclean=unclean, gone=True):
            self._refuse(tp, "it is gone with its log directory")
            return ErrorCode.KAFKA_STORAGE_ERROR
        if state.leader != self._broker and self._broker in state.isr:
            self.refused.add(tp)
            log.error("%s is gone with its log directory: it is made again once it is out of the ISR", tp)
            return ErrorCode.KAFKA_STORAGE_ERROR
        self.refused.discard(tp)
        return None

    def may_be_made(self, tp: TopicPartition) -> bool:
        """False for one that is gone while it has no leader to follow, or is in the ISR."""
        if tp not in self.gone:
            return True
        known = self._metadata.state_of(tp)
        if known is None:
            return False
        is_led_elsewhere = known.leader not in (NO_LEADER, self._broker) and self._broker not in known.isr
        return is_led_elsewhere or list(known.replicas) == [self._broker]

    def may_take(self, partition: Partition, state: LeaderAndIsrPartitionState) -> bool:
        """False if the controller wants the replica to lead and it must not."""
        tp = partition.tp
        lost = self._lost.get(tp)
        if lost is None:
            return True
        end = partition.log.whole_until
        has_all = lost.promised is not None and end >= lost.promised
        taken_in = lost.left_isr and self._broker in state.isr and state.leader_recovery_state == 0
        if has_all or taken_in:
            self.forget(tp)
            return True
        lost.left_isr = lost.left_isr or self._broker not in state.isr
        if state.leader != self._broker:
            return True
        unclean = partition.log.config.unclean_leader_election
        has_a_part = end > partition.log.start_offset
        if self._must_lead(tp, state, unclean=unclean, gone=lost.was_gone, has_a_part=has_a_part):
            last = "on, with its log directory" if lost.was_gone else f"to {lost.promised}"
            log.error("%s has lost its records from %d %s, and leads without them", tp, end, last)
            partition.log.producers.forget_past()  # they may have named producers
            self.forget(tp)
            return True
        before = (
            "was gone with its log directory"
            if lost.was_gone
            else f"had everything below {lost.promised} before an unclean stop"
        )
        self._refuse(tp, f"the log is whole up to {end}, and {before}")
        return False

    def _refuse(self, tp: TopicPartition, why: str) -> None:
        self.refused.add(tp)
        log.error(
            "%s does not lead here: %s. It waits for another in-sync replica, or for an unclean election", tp, why
        )

    def _must_lead(
        self,
        tp: TopicPartition,
        state: LeaderAndIsrPartitionState,
        *,
        unclean: bool,
        gone: bool,
        has_a_part: bool = False,
    ) -> bool:
        if list(state.replicas) == [self._broker]:
            return True
        if gone and state.asked != Asked.NOT_SAID:
            return state.asked >= (Asked.WITH_A_PART if has_a_part else Asked.AS_THE_LAST)
        is_last = list(state.isr) == [self._broker] and unclean
        may_lack = is_last or state.leader_recovery_state != 0
        return may_lack and not (gone and self._another_is_online(tp, state))

    def _another_is_online(self, tp: TopicPartition, state: LeaderAndIsrPartitionState) -> bool:
        known = self._metadata.state_of(tp)
        offline = known.offline_replicas if known is not None else ()
        return bool(self._metadata.live({*state.replicas} - {self._broker, *offline}))

    def led_elsewhere(self) -> bool:
        """True if a partition that was refused has another leader by now, and this replica is out of its ISR."""
        led = set()
        for tp in self.refused:
            state = self._metadata.state_of(tp)
            if state is not None and state.leader >= 0 and self._broker not in (state.leader, *state.isr):
                led.add(tp)
        self.refused -= led
        return bool(led)
