"""What a cluster promises: looked at every few steps, with every write to the store, and when all faults are mended."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kafkad.errors import KafkaError
from kafkad.log.copied import copied_batches
from kafkad.meta.store import Create, NoNode, Operation, Set
from kafkad.meta.znodes import ControllerEpoch, Topic
from kafkad.meta.znodes import Partition as PartitionNode
from kafkad.model import PartitionState
from kafkad.replica.partition import Partition
from kafkad.wire.records import ATTRIBUTES, TRANSACTIONAL, crc_matches, iter_batches
from tests.sim.history import History, Place, Violation
from tests.sim.machines import Machine
from tests.sim.store import StoreServer
from tests.sim.workload import values_in

FEWEST = 3
"""So many replicas there are of everything: one may be hurt, and another be away."""


class Batch(NamedTuple):
    """A batch in a log; `data` has all of it."""

    base: int
    epoch: int
    data: bytes


class LogContent(NamedTuple):
    sound: list[Batch]
    damaged: frozenset[int]
    """Offsets of batches that fail their checksums."""


class Bank(Protocol):
    """Transactions of the load."""

    def unfinished(self) -> str | None: ...

    def check(self) -> None: ...


class Invariants:
    def __init__(self, history: History, store: StoreServer, machines: Sequence[Machine]) -> None:
        self._history = history
        self._store = store
        self._machines = machines
        self._leaders: dict[tuple[Place, int], int] = {}
        """Who led in a leader epoch, by what brokers do and by what the store says."""
        self._watermarks: dict[int, tuple[Any, int, int]] = {}
        """By replica object: itself, the leader epoch, and the high watermark last seen."""
        self._ends: dict[Place, int] = {}
        """Where consumers were told last that a partition ends."""
        self._states: dict[str, PartitionState] = {}
        self.wounded: dict[tuple[Place, int], None] = {}
        """Replicas whose logs may have lost something of what is promised, and which have not left the ISR since."""
        self.flipped: dict[tuple[Place, int], None] = {}
        """Replicas in whose logs a bit has changed: it may not have been noticed yet."""
        self.bank: Bank | None = None
        self._stable: dict[int, tuple[Any, int, int]] = {}
        """By replica object: itself, the leader epoch, and the last stable offset last seen."""
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
        if state.leader >= 0 and state.leader not in state.isr and not self._left_by_itself(state, before):
            raise Violation(f"{place}: the leader {state.leader} is not in the ISR {state.isr}")
        if state.leader >= 0:
            self._leads(place, state.leader_epoch, state.leader)
        if before is not None and state.partition_epoch:
            self._check_step(place, before, state)
        self._states[path] = state
        for broker in set(replicas).difference(state.isr):
            self.wounded.pop((place, broker), None)
        if place.topic_id not in self._history.gone:
            self._check_in_sync(place, state, dict(self.replicas()))

    def _check_step(self, place: Place, before: PartitionState, state: PartitionState) -> None:
        """From one state of a partition to the next."""
        if state.leader_epoch > before.leader_epoch and state.controller_epoch < self._controller_epoch():
            raise Violation(f"{place}: written by the controller of epoch {state.controller_epoch}, which is over")
        if state.leader_epoch < before.leader_epoch:
            raise Violation(f"{place}: the leader epoch went from {before.leader_epoch} to {state.leader_epoch}")
        unclean = state.recovering and self._history.is_loose(place.topic_id)
        if state.leader not in (-1, before.leader) and state.leader not in before.isr and not unclean:
            raise Violation(f"{place}: broker {state.leader} was elected, which was not in the ISR {before.isr}")

    def _controller_epoch(self) -> int:
        return ControllerEpoch.decode(self._store.store.get(ControllerEpoch.PATH).data)

    def _left_by_itself(self, state: PartitionState, before: PartitionState | None) -> bool:
        """True if a leader that begins anew without its tail took itself out of the ISR: nobody has deposed it yet."""
        if before is None or (before.leader, before.leader_epoch) != (state.leader, state.leader_epoch):
            return False
        return any(machine.broker == state.leader and machine.parts is None for machine in self._machines)

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
        replicas = dict(self.replicas())
        for (place, broker), partition in replicas.items():
            self._check_replica(place, broker, partition)
        states = self.states()
        for place, broker in list(self.wounded):
            if place not in states or self._is_intact(place, replicas.get((place, broker))):
                del self.wounded[place, broker]
        for place, state in states.items():
            self._check_in_sync(place, state, replicas)
            self._check_end(place, state, replicas.get((place, state.leader)))

    def wound(self, machine: Machine) -> None:
        """To be told before something happens to the disk of a machine."""
        for place, broker in dict(self.replicas()):
            if broker == machine.broker and not self._history.is_loose(place.topic_id):
                self.wounded[place, broker] = None

    def directories(self, broker: int) -> list[tuple[Place, str]]:
        """Of the data of a broker that is dead: its partitions, as far as the cluster has them still."""
        found = []
        names = {
            topic_id: name
            for topic_id, name in self._history.names.items()
            if not name.startswith("__") and not self._history.is_loose(topic_id)
        }
        machine = next(machine for machine in self._machines if machine.broker == broker)
        for place, assigned in sorted(self.assignments().items()):
            directory = os.path.join(machine.directory, f"{names.get(place.topic_id)}-{place.partition}")
            if broker in assigned and os.path.isdir(directory):
                found.append((place, directory))
        return found

    def _is_intact(self, place: Place, partition: Any) -> bool:
        if partition is None or partition.leader_epoch < 0:
            return False
        last = self._history.last_promised(place)
        return partition.log.end_offset > last and not partition.log.is_damaged

    def unwell(self) -> str | None:
        """What a fault that takes away one replica's records has to wait for; None when nothing."""
        states = self.states()
        for place, assigned in self.assignments().items():
            state = states.get(place)
            if state is None or state.leader < 0 or set(state.isr) != set(assigned) or len(assigned) < FEWEST:
                return f"{place} is {state}"
        for (place, broker), partition in self.replicas():
            if not all(_waits_for_a_start(segment, hole) for segment, hole in partition.log.damage):
                return f"the log of {place} at broker {broker} is not mended"
        return next((f"broker {machine} does not serve" for machine in self._machines if machine.parts is None), None)

    def _check_in_sync(self, place: Place, state: PartitionState, replicas: dict[tuple[Place, int], Any]) -> None:
        """Whoever may be elected has everything that was promised."""
        last = self._history.last_promised(place)
        for broker in state.isr:
            partition = replicas.get((place, broker))
            if (place, broker) in self.wounded:
                continue
            if partition is not None and partition.log.end_offset <= last:
                raise Violation(
                    f"{place}: offset {last} is promised, but the log of broker {broker}, which is in the ISR "
                    f"{state.isr} of leader epoch {state.leader_epoch}, ends at {partition.log.end_offset}"
                )

    def proposed(self, partition: Partition, isr: Iterable[int]) -> None:
        """A leader asks the controller for an ISR: each that joins has, as far as the leader knows, what was promised.
        Soon it may have more."""
        place = Place(partition.log.topic_id, partition.tp.partition)
        state, leading = self.states().get(place), partition.leading
        if state is None or leading is None:
            return
        if (state.leader, state.leader_epoch) != (partition.broker_id, partition.leader_epoch):
            return  # deposed, and will be refused
        last = self._history.last_promised(place)
        for broker in sorted(set(isr).difference(leading.isr)):
            known = leading.followers[broker].end_offset
            if known <= last and (place, broker) not in self.wounded:
                self._store.world.troubles.append(
                    f"{place}: offset {last} is promised, but leader {state.leader} lets broker {broker} join the ISR "
                    f"in leader epoch {state.leader_epoch}, of which it knows offsets below {known}"
                )

    def replicas(self) -> Iterable[tuple[tuple[Place, int], Any]]:
        for machine in self._machines:
            if machine.replicas is not None:
                for partition in machine.replicas:
                    if partition.log.topic_id is not None and partition.failure is None and not partition.stopped:
                        yield (Place(partition.log.topic_id, partition.tp.partition), machine.broker), partition

    def _check_replica(self, place: Place, broker: int, partition: Any) -> None:
        if partition.is_leader:
            self._leads(place, partition.leader_epoch, broker)
            if (place, broker) in self.wounded and not self._is_intact(place, partition):
                raise Violation(f"{place}: broker {broker} leads, though its log has lost what was promised")
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
        self._check_stable(place, broker, partition)

    def _check_stable(self, place: Place, broker: int, partition: Any) -> None:
        stable, known = partition.last_stable_offset, self._stable.get(id(partition))
        same = known is not None and known[0] is partition and known[1] == partition.leader_epoch
        if known is not None and same and partition.is_leader and stable < known[2]:
            raise Violation(f"{place}: the last stable offset of leader {broker} fell from {known[2]} to {stable}")
        self._stable[id(partition)] = partition, partition.leader_epoch, stable

    def _check_end(self, place: Place, state: PartitionState, leader: Partition | None) -> None:
        """What its leader would tell a consumer that asks where the partition ends is never less than before."""
        if leader is None or not leader.is_leader or leader.leader_epoch != state.leader_epoch:
            return
        if self._history.is_loose(place.topic_id):
            return
        try:
            leader.check_high_watermark()
        except KafkaError:
            return
        known, end = self._ends.get(place, 0), leader.visible(read_committed=False)[2]
        if end < known:
            raise Violation(
                f"{place}: leader {state.leader} says in leader epoch {state.leader_epoch} that it ends at {end}, and "
                f"consumers were told {known} before"
            )
        self._ends[place] = end

    # -- whole logs ----------------------------------------------------------------------------------------------------

    def check_logs(self) -> None:
        """Logs that have a batch of the same epoch at the same offset are the same up to there."""
        logs: dict[Place, dict[int, LogContent]] = defaultdict(dict)
        for (place, broker), partition in self.replicas():
            logs[place][broker] = self._log_of(place, broker, partition)
        for place, of_place in sorted(logs.items()):
            brokers = sorted(of_place)
            for at, one in enumerate(brokers):
                for other in brokers[at + 1 :]:
                    _agree(place, one, of_place[one], other, of_place[other])

    def _log_of(self, place: Place, broker: int, partition: Any) -> LogContent:
        content = log_of(partition)
        known = {offset for _, hole in partition.log.damage for offset in range(hole.first, hole.next)}
        if content.damaged - known and (place, broker) not in self.flipped:
            raise Violation(f"{place}: the log of broker {broker} is damaged at offset {min(content.damaged - known)}")
        return content

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
        replicas = dict(self.replicas())
        for place, assigned in sorted(self.assignments().items()):
            state = states.get(place)
            if state is None or state.leader < 0:
                return f"{place} has no leader: {state}"
            if sorted(state.isr) != sorted(assigned):
                return f"the ISR of {place} is {state.isr}, its replicas are {assigned}"
            wanting = _wanting(place, state.leader, [replicas.get((place, broker)) for broker in assigned])
            if wanting is not None:
                return wanting
        return None if self.bank is None else self.bank.unfinished()

    def unserved(self) -> str | None:
        """A partition that a producer with acks=all would have to wait for; None when there is none."""
        replicas = dict(self.replicas())
        for place, state in sorted(self.states().items()):
            led = replicas.get((place, state.leader))
            if led is None or not led.is_leader:
                return f"{place} is led by nobody: {state}"
            if not led.enough_in_sync or led.high_watermark < led.log.end_offset:
                return f"{place} stands at {led.high_watermark} of {led.log.end_offset}: {state}"
        return None

    def check_converged(self) -> None:
        """Everything that was promised is there, at every replica, and nothing of an idempotent producer twice."""
        self.check()
        self.check_logs()
        replicas = dict(self.replicas())
        for place, assigned in sorted(self.assignments().items()):
            for broker in assigned:
                self._check_content(place, broker, replicas[place, broker])
        if self.bank is not None:
            self.bank.check()

    def _check_content(self, place: Place, broker: int, partition: Any) -> None:
        content = self._log_of(place, broker, partition)
        values = values_of(content.sound)
        for offset, value in sorted(self._history.promised(place).items()):
            if values.get(offset) != value and offset not in content.damaged:
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
        if not all(_waits_for_a_start(segment, hole) for segment, hole in replica.log.damage):
            return f"the log of {place} at broker {replica.broker_id} is not mended"
        if replica.high_watermark != led.log.end_offset:
            return f"the watermark of {place} at broker {replica.broker_id} is not at the end"
    return None


def _waits_for_a_start(segment: Any, hole: Any) -> bool:
    """What is mended with transactions in it is served after the broker's next start only."""
    found = memoryview(Path(segment.path(".log")).read_bytes())[hole.start : hole.end]
    try:
        batches = list(copied_batches(found, hole.first, None))
    except ValueError:
        return False
    return any(batch.header[ATTRIBUTES] & TRANSACTIONAL for batch in batches)


def log_of(partition: Any) -> LogContent:
    sound: list[Batch] = []
    mended = {place for place in partition.log.damage if _waits_for_a_start(*place)}
    holes = [place[1] for place in partition.log.damage if place not in mended]
    damaged = {offset for hole in holes for offset in range(hole.first, hole.next)}
    for segment in partition.log.segments:
        with open(segment.path(".log"), "rb") as file:
            data = file.read()
        again = [(hole.start, hole.end) for of, hole in mended if of is segment]
        for start, end in sorted([*segment.sound_stretches(), *again]):
            view = memoryview(data)[start:end]
            for at, header in iter_batches(view):
                if crc_matches(view, at, header):
                    sound.append(Batch(header.base_offset, header.leader_epoch, bytes(view[at : at + header.size])))
                else:
                    first, last = header.base_offset, header.last_offset  # flipped bits may be in them
                    damaged |= set(range(max(first, segment.base), min(last + 1, partition.log.end_offset)))
    return LogContent(sound, frozenset(damaged))


def values_of(log: list[Batch]) -> dict[int, bytes]:
    return dict(pair for batch in log for pair in values_in(memoryview(batch.data)))


def _agree(place: Place, one: int, log: LogContent, other: int, other_log: LogContent) -> None:
    there = {batch.base: batch for batch in other_log.sound}
    shared = [at for at, batch in enumerate(log.sound) if (same := there.get(batch.base)) and same.epoch == batch.epoch]
    if not shared:
        return
    for batch in log.sound[: shared[-1] + 1]:
        same = there.get(batch.base)
        if batch.base not in other_log.damaged and same != batch:
            raise Violation(
                f"{place}: brokers {one} and {other} agree on the epoch at offset {log.sound[shared[-1]].base}, but "
                f"not on the batch at offset {batch.base}"
            )
