"""What a cluster promises: looked at every few steps, with every write to the store, and when all faults are mended."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kafkad.meta.store import Create, NoNode, Operation, Set
from kafkad.meta.znodes import Partition as PartitionNode
from kafkad.meta.znodes import Topic
from kafkad.model import PartitionState
from kafkad.wire.records import iter_batches
from tests.sim.history import History, Place, Violation
from tests.sim.machines import Machine
from tests.sim.store import StoreServer
from tests.sim.workload import values_in


class Batch(NamedTuple):
    """A batch in a log; `data` has all of it."""

    base: int
    epoch: int
    data: bytes


class Invariants:
    def __init__(self, history: History, store: StoreServer, machines: Sequence[Machine]) -> None:
        self._history = history
        self._store = store
        self._machines = machines
        self._leaders: dict[tuple[Place, int], int] = {}
        """Who led in a leader epoch, by what brokers do and by what the store says."""
        self._watermarks: dict[int, tuple[Any, int, int]] = {}
        """By replica object: itself, the leader epoch, and the high watermark last seen."""
        self._states: dict[str, PartitionState] = {}
        store.on_write.append(self._written)

    # -- the store -----------------------------------------------------------------------------------------------------

    def _written(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Create | Set) and operation.path.endswith("/state"):
                self._state_written(operation.path, operation.data)

    def _state_written(self, path: str, data: bytes) -> None:
        topic, partition = path.split("/")[3], int(path.split("/")[5])
        node = Topic.decode(self._store.store.get(Topic.path(topic)).data)
        state = PartitionNode.decode(data, self._store.store.get(path).stat.version)
        place = Place(node.topic_id, partition)
        replicas = node.partitions[partition].replicas
        self._store.world.note("state", place, state.leader, state.leader_epoch, state.isr, state.partition_epoch)
        before = self._states.get(path)
        if not set(state.isr) <= set(replicas):
            raise Violation(f"{place}: the ISR {state.isr} is not within the replicas {replicas}")
        if not state.isr or len(set(state.isr)) != len(state.isr):
            raise Violation(f"{place}: the ISR is {state.isr}")
        if state.leader >= 0 and state.leader not in state.isr:
            raise Violation(f"{place}: the leader {state.leader} is not in the ISR {state.isr}")
        if state.leader >= 0:
            self._leads(place, state.leader_epoch, state.leader)
        if before is not None and state.partition_epoch:
            if state.leader_epoch < before.leader_epoch:
                raise Violation(f"{place}: the leader epoch went from {before.leader_epoch} to {state.leader_epoch}")
            if state.leader not in (-1, before.leader) and state.leader not in before.isr:
                raise Violation(f"{place}: broker {state.leader} was elected, which was not in the ISR {before.isr}")
        self._states[path] = state
        if place.topic_id not in self._history.gone:
            self._check_in_sync(place, state, dict(self._replicas()))

    def _leads(self, place: Place, epoch: int, broker: int) -> None:
        known = self._leaders.setdefault((place, epoch), broker)
        if known != broker:
            raise Violation(f"{place}: brokers {known} and {broker} both lead in epoch {epoch}")

    def states(self) -> dict[Place, PartitionState]:
        """Of all partitions there are."""
        found = {}
        for name in self._children("/brokers/topics"):
            topic = Topic.decode(self._store.store.get(Topic.path(name)).data)
            for index in topic.partitions:
                path = PartitionNode.path(name, index)
                node = self._store.store.find(path)
                if node is not None:
                    found[Place(topic.topic_id, index)] = PartitionNode.decode(node.data, node.stat.version)
        return found

    def leader(self, place: Place) -> int:
        """As the store has it; -1 for none."""
        state = self.states().get(place)
        return -1 if state is None else state.leader

    def assignments(self) -> dict[Place, tuple[int, ...]]:
        found = {}
        for name in self._children("/brokers/topics"):
            topic = Topic.decode(self._store.store.get(Topic.path(name)).data)
            found |= {Place(topic.topic_id, index): entry.replicas for index, entry in topic.partitions.items()}
        return found

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._store.store.get(path).children or ())
        except NoNode:
            return []

    # -- while it runs -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Cheap enough to be called often."""
        troubles = self._store.world.troubles
        if troubles:
            raise Violation(troubles[0])
        replicas = dict(self._replicas())
        for (place, broker), partition in replicas.items():
            self._check_replica(place, broker, partition)
        for place, state in self.states().items():
            self._check_in_sync(place, state, replicas)

    def _check_in_sync(self, place: Place, state: PartitionState, replicas: dict[tuple[Place, int], Any]) -> None:
        """Whoever may be elected has everything that was promised."""
        last = max(self._history.promised(place), default=-1)
        for broker in state.isr:
            partition = replicas.get((place, broker))
            if partition is not None and partition.log.end_offset <= last:
                raise Violation(
                    f"{place}: offset {last} is promised, but the log of broker {broker}, which is in the ISR "
                    f"{state.isr} of leader epoch {state.leader_epoch}, ends at {partition.log.end_offset}"
                )

    def _replicas(self) -> Iterable[tuple[tuple[Place, int], Any]]:
        for machine in self._machines:
            if machine.replicas is not None:
                for partition in machine.replicas:
                    if partition.log.topic_id is not None and partition.failure is None and not partition.stopped:
                        yield (Place(partition.log.topic_id, partition.tp.partition), machine.broker), partition

    def _check_replica(self, place: Place, broker: int, partition: Any) -> None:
        if partition.is_leader:
            self._leads(place, partition.leader_epoch, broker)
        if partition.high_watermark > partition.log.end_offset:
            raise Violation(f"{place}: the watermark of broker {broker} is behind the end of its log")
        key = id(partition)
        known = self._watermarks.get(key)
        same = known is not None and known[0] is partition and known[1] == partition.leader_epoch
        if known is not None and same and partition.is_leader and partition.high_watermark < known[2]:
            raise Violation(
                f"{place}: the watermark of leader {broker} fell from {known[2]} to {partition.high_watermark}"
            )
        self._watermarks[key] = partition, partition.leader_epoch, partition.high_watermark

    # -- whole logs ----------------------------------------------------------------------------------------------------

    def check_logs(self) -> None:
        """Logs that have a batch of the same epoch at the same offset are the same up to there."""
        logs: dict[Place, dict[int, list[Batch]]] = defaultdict(dict)
        for (place, broker), partition in self._replicas():
            logs[place][broker] = log_of(partition)
        for place, of_place in sorted(logs.items()):
            brokers = sorted(of_place)
            for at, one in enumerate(brokers):
                for other in brokers[at + 1 :]:
                    _agree(place, one, of_place[one], other, of_place[other])

    # -- in the end ----------------------------------------------------------------------------------------------------

    def unconverged(self) -> str | None:
        """What is still to be done; None when the cluster is whole."""
        for machine in self._machines:
            if machine.parts is None:
                return f"broker {machine} does not serve"
        if "reassign_partitions" in self._children("/admin"):
            return "a reassignment is under way"
        if self._children("/admin/delete_topics"):
            return f"topics are still to be deleted: {self._children('/admin/delete_topics')}"
        states = self.states()
        replicas = dict(self._replicas())
        for place, assigned in sorted(self.assignments().items()):
            state = states.get(place)
            if state is None or state.leader < 0:
                return f"{place} has no leader: {state}"
            if sorted(state.isr) != sorted(assigned):
                return f"the ISR of {place} is {state.isr}, its replicas are {assigned}"
            wanting = _wanting(place, state.leader, [replicas.get((place, broker)) for broker in assigned])
            if wanting is not None:
                return wanting
        return None

    def check_converged(self) -> None:
        """Everything that was promised is there, at every replica, and nothing of an idempotent producer twice."""
        self.check()
        self.check_logs()
        replicas = dict(self._replicas())
        for place, assigned in sorted(self.assignments().items()):
            for broker in assigned:
                self._check_content(place, broker, replicas[place, broker])

    def _check_content(self, place: Place, broker: int, partition: Any) -> None:
        values = dict(values_of(partition))
        for offset, value in sorted(self._history.promised(place).items()):
            if values.get(offset) != value:
                raise Violation(
                    f"{place} offset {offset}: {value!r} promised, broker {broker} has {values.get(offset)!r}"
                )
        once: set[bytes] = set()
        for offset, value in values.items():
            if value in once and value in self._history.sent_once:
                raise Violation(f"{place} offset {offset}: {value!r} of an idempotent producer is there twice")
            once.add(value)


def _wanting(place: Place, leader: int, replicas: list[Any]) -> str | None:
    """What the replicas of a partition still lack."""
    led = next((replica for replica in replicas if replica is not None and replica.broker_id == leader), None)
    if led is None or not led.is_leader:
        return f"broker {leader} does not lead {place} yet"
    for replica in replicas:
        if replica is None or replica.log.end_offset != led.log.end_offset:
            return f"a replica of {place} lacks records"
        if replica.high_watermark != led.log.end_offset:
            return f"the watermark of {place} at broker {replica.broker_id} is not at the end"
    return None


def log_of(partition: Any) -> list[Batch]:
    found = []
    for data in _segments(partition):
        view = memoryview(data)
        for at, header in iter_batches(view):
            found.append(Batch(header.base_offset, header.leader_epoch, bytes(view[at : at + header.size])))
    return found


def values_of(partition: Any) -> list[tuple[int, bytes]]:
    return [pair for data in _segments(partition) for pair in values_in(memoryview(data))]


def _segments(partition: Any) -> list[bytes]:
    directory = partition.log.directory
    names = sorted(name for name in os.listdir(directory) if name.endswith(".log"))
    datas = []
    for name in names:
        with open(os.path.join(directory, name), "rb") as file:
            datas.append(file.read())
    return datas


def _agree(place: Place, one: int, log: list[Batch], other: int, other_log: list[Batch]) -> None:
    there = {batch.base: batch for batch in other_log}
    shared = [at for at, batch in enumerate(log) if (same := there.get(batch.base)) and same.epoch == batch.epoch]
    if not shared:
        return
    for batch in log[: shared[-1] + 1]:
        same = there.get(batch.base)
        if same is None or same != batch:
            raise Violation(
                f"{place}: brokers {one} and {other} agree on the epoch at offset {log[shared[-1]].base}, but not on "
                f"the batch at offset {batch.base}"
            )
