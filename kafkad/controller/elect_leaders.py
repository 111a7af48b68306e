"""Elections on request (ElectLeaders), and the regular move of leaderships to preferred replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from enum import IntEnum

from kafkad.controller.active import ActiveController, Answers
from kafkad.controller.election import after_failure, preferred
from kafkad.controller.state import PartitionEntry
from kafkad.errors import ErrorCode, Guard, KafkaError, unguarded
from kafkad.model import NO_LEADER, PartitionState
from kafkad.names import TopicPartition
from kafkad.turns import Turns

Outcomes = dict[TopicPartition, KafkaError | None]


class ElectionKind(IntEnum):
    """As ElectLeaders numbers them."""

    PREFERRED = 0
    UNCLEAN = 1


class Elections:
    """The part of a controller's term that elects leaders without a failure."""

    def __init__(self, active: ActiveController) -> None:
        self._active = active
        self._state = active.state

    async def elect(
        self, kind: ElectionKind, partitions: Sequence[TopicPartition] | None, guard: Guard = unguarded
    ) -> tuple[Outcomes, Answers]:
        """None for all partitions: then those that need no election are not in the outcome, as in Kafka."""
        asked = [tp for tp, _ in self._state.partitions()] if partitions is None else partitions
        outcomes: Outcomes = {}
        turns = Turns()
        for tp in asked:
            await turns.give_way()
            outcomes[tp] = self._objection(kind, tp)
        wanted = [tp for tp, error in outcomes.items() if error is None]
        decide = self._preferred if kind is ElectionKind.PREFERRED else self._any
        guard()
        if kind is ElectionKind.UNCLEAN:
            for tp in wanted:
                self._state.refused.begin_anew(tp)
        changed = await self._active.change(wanted, decide)
        for tp, state in changed.items():
            if state is None:
                outcomes[tp] = _nobody(kind, tp)
        answers = await self._active.send(await self._active.tell_changed(self._active.batch(), changed))
        if partitions is None:
            needless = ErrorCode.ELECTION_NOT_NEEDED
            outcomes = {tp: e for tp, e in outcomes.items() if e is None or e.code != needless}
        return outcomes, answers

    def _objection(self, kind: ElectionKind, tp: TopicPartition) -> KafkaError | None:
        try:
            entry = self._state.entry(tp)
        except KafkaError as e:
            return e
        if tp.topic in self._state.deleting:
            return KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic {tp.topic!r} is being deleted")
        leader = NO_LEADER if entry.state is None else entry.state.leader
        if kind is ElectionKind.PREFERRED:
            needless = leader == entry.assignment.replicas[0]
        else:
            needless = leader != NO_LEADER and leader in self._state.brokers
        if needless:
            return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        return None

    def _preferred(self, tp: TopicPartition, entry: PartitionEntry) -> PartitionState | None:
        if entry.state is None:
            return None
        replicas = entry.assignment.replicas
        elected = preferred(replicas, entry.state, self._state.electable(tp, replicas))
        return elected and elected.state(entry.state, self._active.epoch)

    def _any(self, tp: TopicPartition, entry: PartitionEntry) -> PartitionState | None:
        if entry.state is None:
            return None
        replicas, refused = entry.assignment.replicas, self._state.refusals(tp)
        electable = self._state.electable(tp, replicas)
        leaving = self._state.leaving_and_unasked(tp, replicas)
        elected = after_failure(replicas, entry.state, electable, unclean=True, refused=refused, leaving=leaving)
        return elected and elected.state(entry.state, self._active.epoch)

    async def balance(self, percentage: int) -> None:
        """Moves leaders home, for brokers that do not lead more than `percentage` of the partitions they should. A
        replica that has refused to lead is not asked each time."""
        homes: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp, entry in self._state.partitions():
            if tp.topic not in self._state.deleting:
                homes[entry.assignment.replicas[0]].append(tp)
        away: list[TopicPartition] = []
        for broker, partitions in homes.items():
            if broker in self._state.brokers:
                elsewhere = [tp for tp in partitions if self._state.leader(tp) != broker]
                if len(elsewhere) * 100 > percentage * len(partitions):
                    away += [tp for tp in elsewhere if self._movable(broker, tp)]
        self._state.refused.round_ended()
        if away:
            await self.elect(ElectionKind.PREFERRED, away)

    def _movable(self, broker: int, tp: TopicPartition) -> bool:
        state = self._state.entry(tp).state
        return (
            state is not None
            and broker in state.isr
            and broker not in self._state.leaving
            and tp not in self._state.reassigning
            and not self._state.refused.passed_over(broker, tp)
        )


def _nobody(kind: ElectionKind, tp: TopicPartition) -> KafkaError:
    """In Kafka's words, which its tools print: the preferred replica is not in sync and live, or no replica is live."""
    if kind is ElectionKind.PREFERRED:
        code, strategy = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "PreferredReplicaPartitionLeaderElectionStrategy"
    else:
        code, strategy = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "OfflinePartitionLeaderElectionStrategy(true)"
    return KafkaError(code, f"Failed to elect leader for partition {tp} under strategy {strategy}")
