"""Moving partitions to other brokers.

The assignment in the topic's node holds old and new replicas until the new ones are all in sync; only the last step
writes the final list, so that a controller that takes over at any point goes on from the same place. A target that is
changed or called off is written first; new replicas that are not wanted any more go after that, if need be with the
next controller, which finds them in an ISR without an assignment.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from kafkad.controller.active import ActiveController, InDoubt
from kafkad.controller.deletion import Deletions
from kafkad.controller.elect_leaders import Outcomes
from kafkad.controller.election import reassigned
from kafkad.controller.state import PartitionEntry
from kafkad.errors import ErrorCode, Guard, KafkaError, unguarded
from kafkad.meta.readable import readable
from kafkad.meta.refusals import storage_refused
from kafkad.meta.store import ConnectionLoss, Delete, MetaError, NoNode, Refused, Set, Watch
from kafkad.meta.znodes import Partition, Topic
from kafkad.meta.znodes import Reassignments as ReassignmentsNode
from kafkad.model import NO_LEADER, PartitionAssignment, PartitionState
from kafkad.names import TopicPartition
from kafkad.turns import Turns

log = logging.getLogger(__name__)

Target = tuple[int, ...] | None
"""The brokers that shall hold a partition; None to call off what is under way."""


class Reassignments:
    """The part of a controller's term that moves partitions."""

    def __init__(self, active: ActiveController, deletions: Deletions) -> None:
        self._active = active
        self._state = active.state
        self._deletions = deletions
        self._asked_by_node: dict[TopicPartition, tuple[int, ...]] = {}
        """The content of `/admin/reassign_partitions`."""

    def end(self) -> None:
        self._asked_by_node = {}

    async def alter(self, targets: Mapping[TopicPartition, Target], guard: Guard = unguarded) -> Outcomes:
        outcomes = await self._alter(targets, guard)
        replaced = [tp for tp, error in outcomes.items() if error is None and tp in self._asked_by_node]
        await self._forget_asked(replaced)
        return outcomes

    async def _alter(self, targets: Mapping[TopicPartition, Target], guard: Guard = unguarded) -> Outcomes:
        outcomes: Outcomes = {}
        turns = Turns()
        for tp, target in targets.items():
            await turns.give_way()
            try:
                guard()
                await self._begin(tp, self._planned(tp, target))
                outcomes[tp] = None
            except KafkaError as e:
                if e.code == ErrorCode.NOT_CONTROLLER:
                    raise
                outcomes[tp] = e.with_traceback(None)
            except Refused as e:
                outcomes[tp] = storage_refused(e)
        return outcomes

    def under_way(self, partitions: Collection[TopicPartition] | None) -> dict[TopicPartition, PartitionAssignment]:
        """None for all."""
        wanted = self._state.reassigning if partitions is None else self._state.reassigning & set(partitions)
        return {tp: self._state.entry(tp).assignment for tp in wanted}

    async def take_over(self, watch: Watch) -> None:
        """Starts what a tool of before Kafka 2.4 wrote into the store.

        Partitions disappear from the node as they arrive, and the node with the last one: the tool waits for that.
        """
        if not await self._active.store.exists(ReassignmentsNode.PATH, watch):
            self._asked_by_node = {}
            return
        data, _ = await self._active.store.get(ReassignmentsNode.PATH)
        asked = readable(ReassignmentsNode.PATH, lambda: ReassignmentsNode.decode(data)) or {}
        before, self._asked_by_node = self._asked_by_node, asked
        await self._alter({tp: target for tp, target in asked.items() if before.get(tp) != target})
        over = [tp for tp in self._asked_by_node if tp not in self._state.reassigning]
        if over or not asked:
            await self._forget_asked(over)

    async def _forget_asked(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions and self._asked_by_node:
            return
        for tp in partitions:
            self._asked_by_node.pop(tp, None)
        text = ReassignmentsNode.encode(self._asked_by_node)
        with contextlib.suppress(NoNode):
            await self._active.write(
                [Set(ReassignmentsNode.PATH, text) if self._asked_by_node else Delete(ReassignmentsNode.PATH)]
            )

    async def go_on(self, brokers: Collection[int] | None = None) -> None:
        """Continues reassignments after an election, or because `brokers` came."""
        await self._drop_left_over()
        for tp in sorted(self._state.reassigning):
            assignment = self._state.entry(tp).assignment
            if brokers is None or not set(brokers).isdisjoint(target(assignment)):
                with _waiting_if_refused(tp):
                    await self._begin(tp, assignment)

    async def _drop_left_over(self) -> None:
        """Takes members that are no replicas out of the ISRs, where another one in sync is there to go on."""
        for tp in sorted(self._state.left_over):
            entry = self._state.entry(tp)
            isr = () if entry.state is None else entry.state.isr
            members = [member for member in isr if member not in entry.assignment.replicas]
            if members and not self._state.going(tp.topic) and self._state.electable(tp, set(isr) - set(members)):
                try:
                    await self._drop(tp, members)
                except Refused as e:
                    log.error("brokers %s stay in the ISR of %s, though they are no replicas: %s", members, tp, e)

    async def in_sync_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Completes what now has all its new replicas in sync."""
        for tp in partitions:
            if tp in self._state.reassigning and self._complete(self._state.entry(tp)):
                with _waiting_if_refused(tp):
                    await self._finish(tp)

    def _planned(self, tp: TopicPartition, target: Target) -> PartitionAssignment:
        topic = self._state.topics.get(tp.topic)
        entry = topic.partitions.get(tp.partition) if topic else None
        current = entry.assignment if entry else PartitionAssignment(replicas=())
        if target is not None:
            self._check(target, current)
        elif not (current.adding or current.removing):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        if entry is None or tp.topic in self._state.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        planned = towards(current, origin(current) if target is None else target)
        if entry.state is not None and set(entry.state.isr).isdisjoint(planned.replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Only brokers {list(entry.state.isr)} are in sync, and none of them would keep its replica",
            )
        return planned

    def _check(self, target: tuple[int, ...], current: PartitionAssignment) -> None:
        problem = None
        if not target:
            problem = "Empty replica list specified in partition reassignment."
        elif len(set(target)) != len(target):
            problem = f"Duplicate replica ids in partition reassignment replica list: {list(target)}"
        elif min(target) < 0:
            problem = f"There is no broker {min(target)}"
        else:
            dead = set(towards(current, target).adding) - self._state.live
            if dead:
                problem = f"Replica assignment has brokers that are not alive: {sorted(dead)}"
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)

    async def _begin(self, tp: TopicPartition, assignment: PartitionAssignment) -> None:
        entry = self._state.entry(tp)
        before = entry.assignment
        if assignment != before:
            await self._write(tp, assignment)
            unneeded = [r for r in before.replicas if r not in assignment.replicas]
            await self._drop(tp, unneeded)
        self._state.reassigning.add(tp)
        if self._complete(entry):
            await self._finish(tp)
            return
        changed = await self._active.change([tp], self._next_epoch)
        batch = await self._active.tell_changed(self._active.batch(), changed)
        batch.leader_and_isr(assignment.adding, tp, is_new=True)
        await self._active.send(batch)

    def _complete(self, entry: PartitionEntry) -> bool:
        """True if all replicas that shall stay are in sync, or none comes or goes: then nothing is waited for."""
        assignment = entry.assignment
        if not (assignment.adding or assignment.removing):
            return True
        return entry.state is not None and set(target(assignment)) <= set(entry.state.isr)

    async def _finish(self, tp: TopicPartition) -> None:
        entry = self._state.entry(tp)
        before = entry.assignment
        entry.assignment = PartitionAssignment(replicas=target(before))
        try:
            moved = await self._active.change([tp], self._led_by_target)
            await self._active.send(await self._active.tell_changed(self._active.batch(), moved))
            await self._drop(tp, before.removing)
            await self._write(tp, entry.assignment)
        except MetaError:
            entry.assignment = before
            raise
        self._state.reassigning.discard(tp)
        if tp in self._asked_by_node:
            await self._forget_asked([tp])
        batch = self._active.batch()
        batch.metadata([tp])
        await self._active.send(batch)
        await self._deletions.go_on()

    def _led_by_target(self, tp: TopicPartition, entry: PartitionEntry) -> PartitionState | None:
        state = entry.state
        if state is None:
            return None
        replicas = entry.assignment.replicas
        if state.leader in replicas and state.leader in state.isr and self._state.online(state.leader, tp):
            return self._next_epoch(tp, entry)
        elected = reassigned(replicas, state, self._state.electable(tp, replicas))
        return elected and elected.state(state, self._active.epoch)

    def _next_epoch(self, tp: TopicPartition, entry: PartitionEntry) -> PartitionState | None:
        """A new leader epoch, so that brokers take the new list of replicas.

        The leader stays, unless it has died or left the ISR without the controller having heard of it yet.
        """
        state = entry.state
        if state is None:
            return None
        same = replace(state, leader_epoch=state.leader_epoch + 1, controller_epoch=self._active.epoch)
        return self._active.repaired(tp, entry) or same

    async def _drop(self, tp: TopicPartition, replicas: Collection[int]) -> None:
        """Takes `replicas` out of the ISR and has their logs deleted. Another in sync leads where one of them did.

        Refused, and no log is deleted, where they stay in the ISR.
        """
        if not replicas:
            return

        def without(tp: TopicPartition, entry: PartitionEntry) -> PartitionState | None:
            state = entry.state
            if state is None or set(replicas).isdisjoint(state.isr):
                return None
            isr = tuple(r for r in state.isr if r not in replicas)
            leader = state.leader
            if leader in replicas:
                live = self._state.electable(tp, isr)
                leader = next((r for r in entry.assignment.replicas if r in live), NO_LEADER)
            return replace(
                state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=self._active.epoch
            )

        changed = await self._active.change([tp], without)
        if without(tp, self._state.entry(tp)) is not None:
            self._state.left_over.add(tp)
            raise Refused(Partition.path(*tp), f"the ISR of {tp} could not be written")
        batch = await self._active.tell_changed(self._active.batch(), changed)
        for replica in replicas:
            batch.stop(replica, tp, delete=True)
        await self._active.send(batch)
        self._state.left_over.discard(tp)

    async def _write(self, tp: TopicPartition, assignment: PartitionAssignment) -> None:
        topic = self._state.topics[tp.topic]
        partitions = {**topic.znode().partitions, tp.partition: assignment}
        path = Topic.path(tp.topic)
        try:
            await self._active.write([Set(path, Topic(topic_id=topic.topic_id, partitions=partitions).encode())])
        except ConnectionLoss as e:
            raise InDoubt(path, str(e)) from e
        topic.partitions[tp.partition].assignment = assignment


@contextlib.contextmanager
def _waiting_if_refused(tp: TopicPartition) -> Iterator[None]:
    """A partition whose move the store refuses stays where it is, and keeps no other back."""
    try:
        yield
    except Refused as e:
        log.error("the reassignment of %s waits, for the metadata store refuses it: %s", tp, e)


def target(assignment: PartitionAssignment) -> tuple[int, ...]:
    return tuple(r for r in assignment.replicas if r not in assignment.removing)


def origin(assignment: PartitionAssignment) -> tuple[int, ...]:
    return tuple(r for r in assignment.replicas if r not in assignment.adding)


def towards(current: PartitionAssignment, wanted: tuple[int, ...]) -> PartitionAssignment:
    """`wanted` first, then what is to go; from where the partition stood before any reassignment."""
    before = origin(current)
    return PartitionAssignment(
        replicas=(*wanted, *(r for r in before if r not in wanted)),
        adding=tuple(r for r in wanted if r not in before),
        removing=tuple(r for r in before if r not in wanted),
    )
