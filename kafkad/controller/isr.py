"""AlterPartition: a leader asks for another ISR (KIP-497, KIP-841). The checks and their order are Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kafkad.controller.active import ActiveController
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import NO_EPOCH, PartitionState, WantedIsr
from kafkad.names import TopicPartition
from kafkad.turns import Turns

IsrResult = PartitionState | KafkaError


class Isr:
    """The part of a controller's term that changes ISRs for leaders."""

    def __init__(self, active: ActiveController, hears: Callable[[int], bool]) -> None:
        """`hears`: whether this controller is not cut off, and not from this leader."""
        self._active = active
        self._state = active.state
        self._hears = hears

    async def alter(
        self, broker: int, broker_epoch: int, wanted: Mapping[TopicPartition, WantedIsr]
    ) -> dict[TopicPartition, IsrResult]:
        """The state of each partition as it is now, or why it was not changed. Raises what concerns all of them."""
        known = self._state.brokers.get(broker)
        if known is None or known.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"Epoch {broker_epoch} is not that of broker {broker} now")
        outcomes: dict[TopicPartition, IsrResult] = {}
        to_write = []
        turns = Turns()
        for tp, isr in wanted.items():
            await turns.give_way()
            settled = self._judge(broker, tp, isr)
            if settled is None:
                to_write.append(tp)
            else:
                outcomes[tp] = settled
        changed = await self._active.change(to_write, lambda tp, entry: self._changed(broker, tp, wanted[tp]))
        for tp, state in changed.items():
            await turns.give_way()
            settled = state or self._judge(broker, tp, wanted[tp])
            outcomes[tp] = settled or KafkaError(
                ErrorCode.OPERATION_NOT_ATTEMPTED, f"The metadata store does not take the state of {tp}"
            )
        written = [tp for tp, state in changed.items() if state is not None]
        if written:
            batch = self._active.batch()
            batch.metadata(written)
            await self._active.send(batch)
        return outcomes

    def _judge(self, leader: int, tp: TopicPartition, wanted: WantedIsr) -> IsrResult | None:
        """The present state if it is as wanted already, an error if it may not be changed, None if it may."""
        try:
            return self._present(leader, tp, wanted)
        except KafkaError as e:
            return e

    def _present(self, leader: int, tp: TopicPartition, wanted: WantedIsr) -> PartitionState | None:
        state = self._state.entry(tp).state
        if state is None or self._state.going(tp.topic):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {tp}")
        if wanted.leader_epoch > state.leader_epoch or wanted.partition_epoch > state.partition_epoch:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"This controller is behind the epochs of {tp}")
        if wanted.leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"The leader epoch of {tp} is {state.leader_epoch}")
        if state.leader != leader:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {leader} does not lead {tp}")
        if tuple(wanted.members) == state.isr and wanted.recovering == state.recovering:
            return state
        if wanted.partition_epoch < state.partition_epoch:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION, f"The partition epoch of {tp} is {state.partition_epoch}"
            )
        self._check_recovery(tp, wanted, state)
        self._check_members(tp, wanted, state)
        self._check_is_heard(tp, wanted, state)
        return None

    def _check_recovery(self, tp: TopicPartition, wanted: WantedIsr, state: PartitionState) -> None:
        if wanted.recovering and (len(wanted.members) > 1 or not state.recovering):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{tp} can be recovering only with its leader alone in sync")

    def _check_members(self, tp: TopicPartition, wanted: WantedIsr, state: PartitionState) -> None:
        if state.leader not in wanted.members:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The leader of {tp}, {state.leader}, is in sync with itself")
        assigned = self._state.entry(tp).assignment.replicas
        for member, epoch in wanted.members.items():
            broker = self._state.brokers.get(member)
            if (
                broker is None
                or not self._state.online(member, tp)
                or member in self._state.leaving
                or member not in assigned
                or epoch not in (NO_EPOCH, broker.epoch)
            ):
                raise KafkaError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {member} cannot be in sync for {tp} now")

    def _check_is_heard(self, tp: TopicPartition, wanted: WantedIsr, state: PartitionState) -> None:
        """Of who takes others out. Kafka has no such check, and gives up no leader that is registered."""
        if not wanted.members.keys() >= set(state.isr) and not self._hears(state.leader):
            raise KafkaError(
                ErrorCode.OPERATION_NOT_ATTEMPTED,
                f"Broker {state.leader} or this controller may be cut off from those that would leave the ISR of {tp}",
            )

    def _changed(self, leader: int, tp: TopicPartition, wanted: WantedIsr) -> PartitionState | None:
        """Judged again: the state that was known when it was judged first may be an older one than the store's."""
        if self._judge(leader, tp, wanted) is not None:
            return None
        state = self._state.entry(tp).state
        return state and replace(
            state, isr=tuple(wanted.members), recovering=wanted.recovering, controller_epoch=self._active.epoch
        )
