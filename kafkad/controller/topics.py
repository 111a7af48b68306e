"""Creating topics and adding partitions: judged as Kafka does it, then written in one transaction each.

The order of the checks is Kafka's too, since it decides which error a client sees. Unlike Kafka 3.9 in ZooKeeper mode,
and like Kafka with KRaft, a manual assignment to a broker that is not there is refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from kafkad.controller.active import ActiveController, Answers
from kafkad.controller.election import first_leader
from kafkad.controller.placement import Layout, check_placement, fixed_layout, layout_for_more, place, random_layout
from kafkad.controller.requests import RequestBatch
from kafkad.controller.settings import TopicDefaults
from kafkad.controller.state import PartitionEntry, TopicEntry
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.refusals import storage_refused
from kafkad.meta.store import ConnectionLoss, Create, NodeExists, Operation, Refused, Set
from kafkad.meta.znodes import Config, Partition, Topic
from kafkad.model import PartitionAssignment, PartitionState
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition, name_problem
from kafkad.together import together
from kafkad.turns import Turns

CLUSTER_METADATA = "__cluster_metadata"
MAX_NEW_PARTITIONS = 10_000
"""The limit for one request, as in Kafka with KRaft: more would block the controller for seconds."""
_OPERATIONS_PER_WRITE = 2_000
_PARTITIONS_PER_TURN = 100
"""A request for a thousand topics must not keep the event loop from everybody else."""

Assignment = Mapping[int, tuple[int, ...]]


_NO_ASSIGNMENT: Assignment = {}
_NO_CONFIGS: Mapping[str, str | None] = {}

CheckConfig = Callable[[Mapping[str, str]], None]
"""Raises KafkaError when a topic may not have these overrides."""


class NewTopic(NamedTuple):
    """-1 partitions or replicas are the broker's defaults, or those of `assignment` if there is one. A topic that
    `repeats_a_partition` was asked for with two assignments of the same partition, and is refused."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: Assignment = _NO_ASSIGNMENT
    configs: Mapping[str, str | None] = _NO_CONFIGS
    repeats_a_partition: bool = False


class Collision(KafkaError):
    """Topics whose names differ in dots and underscores only would be one metric. Who asks for one may not know of the
    other, so that only `naming_it` does, in Kafka's words."""

    def __init__(self, name: str, other: str) -> None:
        super().__init__(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with an existing topic")
        self.other = other
        self.naming_it = KafkaError(self.code, f"Topic '{name}' collides with existing topics: {other}")


Admit = Callable[[str, int], None]
"""Called with a topic and a number of its partitions, right before they are created or deleted; raises KafkaError if
they may not."""


def admit_all(topic: str, partitions: int) -> None:
    """Refuses nothing."""


class TopicResult(NamedTuple):
    """The result for one topic in a request. With `error`, nothing else is set."""

    name: str
    topic_id: TopicId = NO_TOPIC_ID
    partitions: int = -1
    replication_factor: int = -1
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MorePartitions:
    """`count` is the new total; `assignment` has the replicas of each added partition, or is None."""

    name: str
    count: int
    assignment: Sequence[tuple[int, ...]] | None = None


class Topics:
    """The part of a controller's term that makes topics and partitions."""

    def __init__(
        self,
        active: ActiveController,
        check_config: CheckConfig,
        defaults: Callable[[], TopicDefaults],
        random: Random,
        left_alone: Mapping[str, str],
    ) -> None:
        """`left_alone` are topics that may not be made, with log directories that stand in the way."""
        self._active = active
        self._left_alone = left_alone
        self._state = active.state
        self._check_config = check_config
        self._defaults = defaults
        self._random = random

    async def create(
        self, topics: Sequence[NewTopic], *, validate_only: bool, admit: Admit = admit_all
    ) -> tuple[list[TopicResult], Answers]:
        """The results in the order of `topics`, and the answers that make the new topics visible."""
        times = Counter(topic.name for topic in topics)
        planned = _Planned(self._state.topics)
        wanted = planned.assignments
        results: list[TopicResult] = []
        turns = Turns()
        for topic in topics:
            await turns.give_way()
            try:
                if times[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Found multiple entries for this topic.")
                assignment = self._validated(topic, planned)
                planned.add(topic.name, assignment)
            except KafkaError as e:
                results.append(_refused(topic.name, e))
                continue
            results.append(
                TopicResult(name=topic.name, partitions=len(assignment), replication_factor=len(assignment[0]))
            )
        if validate_only:
            return results, await self._active.send(self._active.batch())
        configs = {topic.name: topic.configs for topic in topics}
        made: list[TopicResult] = []
        answers = Answers()
        for group in _in_groups(results):
            batch = self._active.batch()
            made += await together(
                self._create(r, wanted.get(r.name, {}), configs[r.name], batch, admit) for r in group
            )
            answers += await self._active.send(batch)
        return made, answers

    async def _create(
        self,
        planned: TopicResult,
        assignment: Assignment,
        configs: Mapping[str, str | None],
        batch: RequestBatch,
        admit: Admit,
    ) -> TopicResult:
        if planned.error is not None:
            return planned
        name = planned.name
        try:
            admit(name, len(assignment))
        except KafkaError as e:
            return _refused(name, e)
        topic = TopicEntry(name, os.urandom(16))
        topic.partitions = await self._entries(assignment)
        text = Config.encode({n: v for n, v in configs.items() if v is not None})
        path = Config.path(Config.entity_path(Config.TOPICS, name))
        try:
            config = Set(path, text) if await self._active.store.exists(path) else Create(path, text)
            nodes = [config, Create(Topic.path(name), topic.znode().encode()), Create(Topic.partitions_path(name))]
            await self._write(nodes, name, topic.partitions)
        except NodeExists:
            return TopicResult(name=name, error=_exists(name))
        except (Refused, ConnectionLoss) as e:
            return TopicResult(name=name, error=storage_refused(e))
        self._state.add_topic(topic)
        await _tell_new(batch, name, topic.partitions)
        return TopicResult(
            name=name,
            topic_id=topic.topic_id,
            partitions=planned.partitions,
            replication_factor=planned.replication_factor,
        )

    async def _entries(self, assignment: Assignment) -> dict[int, PartitionEntry]:
        """The entries of new partitions, with a first state for each of which any replica is there."""
        entries: dict[int, PartitionEntry] = {}
        live, epoch = self._state.live, self._active.epoch
        turns = Turns()
        for partition, replicas in sorted(assignment.items()):
            await turns.give_way()
            elected = first_leader(replicas, live)
            state = elected and PartitionState(
                leader=elected.leader, leader_epoch=0, isr=elected.isr, controller_epoch=epoch
            )
            entries[partition] = PartitionEntry(PartitionAssignment(replicas=replicas), state)
        return entries

    async def _write(
        self, operations: Sequence[Operation], topic: str, partitions: Mapping[int, PartitionEntry]
    ) -> None:
        """Writes in one transaction where ZooKeeper would take it. The next election completes it after a crash."""
        pending = list(operations)
        turns = Turns()
        for partition, entry in partitions.items():
            await turns.give_way()
            if entry.state is not None:
                pending += new_partition(topic, partition, entry.state)
            if len(pending) >= _OPERATIONS_PER_WRITE:
                await self._active.write(pending)
                pending = []
        if pending:
            await self._active.write(pending)

    async def add_partitions(
        self, requests: Sequence[MorePartitions], *, validate_only: bool, admit: Admit = admit_all
    ) -> tuple[list[TopicResult], Answers]:
        times = Counter(request.name for request in requests)
        batch = self._active.batch()
        results = []
        others = 0
        turns = Turns()
        for request in requests:
            await turns.give_way()
            try:
                if times[request.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
                added = self._validated_more(request, others)
                others += len(added)
                if not validate_only:
                    admit(request.name, len(added))
                    await self._add(request.name, added, batch)
                results.append(TopicResult(name=request.name, partitions=request.count))
            except (Refused, ConnectionLoss) as e:
                results.append(TopicResult(name=request.name, error=storage_refused(e)))
            except KafkaError as e:
                if e.code == ErrorCode.NOT_CONTROLLER:
                    raise
                results.append(_refused(request.name, e))
        return results, await self._active.send(batch)

    async def _add(self, name: str, added: Assignment, batch: RequestBatch) -> None:
        topic = self._state.topics[name]
        entries = await self._entries(added)
        whole = TopicEntry(name, topic.topic_id)
        whole.partitions = topic.partitions | entries
        await self._write([Set(Topic.path(name), whole.znode().encode())], name, entries)
        topic.partitions = whole.partitions
        await _tell_new(batch, name, entries)

    # Judging.

    def _validated(self, topic: NewTopic, others: _Planned) -> Assignment:
        """The assignment of a topic that may be created along with `others`."""
        if topic.name == CLUSTER_METADATA:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA} is prohibited.")
        if topic.name in self._state.topics and topic.name not in self._state.deleting:
            raise _exists(topic.name)
        empty = [name for name, value in topic.configs.items() if value is None]
        if empty:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"A topic setting needs a value: {', '.join(empty)} has none")
        defaults = self._defaults()
        partitions = defaults.partitions if topic.partitions == -1 else topic.partitions
        factor = defaults.replication_factor if topic.replication_factor == -1 else topic.replication_factor
        if topic.assignment and (topic.partitions != -1 or topic.replication_factor != -1):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time.",
            )
        candidates = self._state.candidates
        if not topic.assignment:
            _check_count(partitions + others.partitions)
            check_placement(candidates, partitions, factor)
        check_name(topic.name)
        if topic.name in self._state.deleting:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"The topic {topic.name!r} is still being deleted")
        _check_collision(topic.name, others)
        if topic.name in self._left_alone:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{self._left_alone[topic.name]} is of another topic that was named {topic.name!r}: move it away and "
                "restart the broker",
            )
        if topic.repeats_a_partition:
            raise _bad_assignment("the assignment has a partition twice")
        if topic.assignment:
            self._check_assignment(topic.assignment)
        self._check_config({name: value for name, value in topic.configs.items() if value is not None})
        return topic.assignment or place(candidates, partitions, factor, self._layout(len(candidates)))

    def _layout(self, brokers: int) -> Layout:
        start = self._defaults().placement_start
        return random_layout(brokers, self._random) if start is None else fixed_layout(start)

    def _check_assignment(self, assignment: Assignment) -> None:
        sizes = {len(replicas) for replicas in assignment.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise _bad_assignment("All partitions must have the same number of replicas, 1 or more")
        for partition, replicas in assignment.items():
            _check_distinct(partition, replicas)
        if sorted(assignment) != list(range(len(assignment))):
            raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
        self._check_brokers(assignment.values())
        _check_count(len(assignment))

    def _check_brokers(self, assigned: Iterable[tuple[int, ...]]) -> None:
        unknown = {replica for replicas in assigned for replica in replicas} - self._state.brokers.keys()
        if unknown:
            raise _bad_assignment(f"Unknown broker(s) in replica assignment: {', '.join(map(str, sorted(unknown)))}.")

    def _validated_more(self, request: MorePartitions, others: int) -> Assignment:
        """The replicas of the partitions to add, beside `others` of the same request."""
        topic = self._state.topics.get(request.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{request.name}' does not exist.")
        if request.name in self._state.deleting:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"The topic {request.name!r} is being deleted")
        if self._state.moving(request.name):
            under_way = f"A partition reassignment is in progress for the topic '{request.name}'."
            raise KafkaError(ErrorCode.REASSIGNMENT_IN_PROGRESS, under_way)
        existing = len(topic.partitions)
        increment = request.count - existing
        if increment <= 0:
            found = (
                f"Topic already has {existing} partitions."
                if not increment
                else f"Topic currently has {existing} partitions, which is higher than the requested {request.count}."
            )
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, found)
        _check_count(increment + others)
        first = topic.partitions[min(topic.partitions)].assignment.replicas
        if request.assignment is None:
            candidates = self._state.candidates
            fixed = self._defaults().placement_start
            layout = layout_for_more(candidates, first[0]) if fixed is None else fixed_layout(fixed)
            return place(candidates, increment, len(first), layout, first_partition=existing)
        return self._given(request.assignment, increment, existing, len(first))

    def _given(self, assignment: Sequence[tuple[int, ...]], increment: int, existing: int, factor: int) -> Assignment:
        self._check_brokers(assignment)
        if len(assignment) != increment:
            raise _bad_assignment(
                f"Increasing the number of partitions by {increment} but {len(assignment)} assignments provided."
            )
        given = {existing + index: replicas for index, replicas in enumerate(assignment)}
        for partition, replicas in given.items():
            if not replicas:
                raise _bad_assignment(f"Cannot have replication factor of 0 for partition id {partition}.")
            _check_distinct(partition, replicas)
            if len(replicas) != factor:
                raise _bad_assignment(
                    f"Partition {partition} has {len(replicas)} replicas, those of the topic have {factor}"
                )
        return given


def _refused(name: str, error: KafkaError) -> TopicResult:
    """Without the traceback, which would hold what its frames held until the request is answered."""
    return TopicResult(name=name, error=error.with_traceback(None))


def check_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    problem = name_problem(name)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def new_partition(topic: str, partition: int, state: PartitionState) -> list[Operation]:
    return [
        Create(Partition.parent(topic, partition)),
        Create(Partition.path(topic, partition), Partition.encode(state)),
    ]


class _Planned:
    """The other topics at a creation: those that exist, and those created by the same request."""

    def __init__(self, there: Collection[str]) -> None:
        self.assignments: dict[str, Assignment] = {}
        self.partitions = 0
        self._there = there
        self._metrics: dict[str, str] | None = None

    def add(self, name: str, assignment: Assignment) -> None:
        self.assignments[name] = assignment
        self.partitions += len(assignment)
        if self._metrics is not None:
            self._metrics.setdefault(_metric(name), name)

    def of_one_metric(self, name: str) -> str:
        """A topic with the same name but for dots and underscores; `name` itself when there is no other."""
        if self._metrics is None:
            self._metrics = {}
            for other in (*self._there, *self.assignments):
                self._metrics.setdefault(_metric(other), other)
        return self._metrics.get(_metric(name), name)


def _metric(name: str) -> str:
    return name.replace(".", "_")


def _check_collision(name: str, others: _Planned) -> None:
    if "." not in name and "_" not in name:
        return
    other = others.of_one_metric(name)
    if other != name:
        raise Collision(name, other)


def _in_groups(results: Sequence[TopicResult]) -> Iterator[list[TopicResult]]:
    """The results in groups of few partitions each, in the same order."""
    group: list[TopicResult] = []
    partitions = 0
    for result in results:
        group.append(result)
        partitions += max(result.partitions, 1)
        if partitions >= _PARTITIONS_PER_TURN:
            yield group
            group, partitions = [], 0
    if group:
        yield group


async def _tell_new(batch: RequestBatch, name: str, partitions: Mapping[int, PartitionEntry]) -> None:
    turns = Turns()
    for partition, entry in partitions.items():
        await turns.give_way()
        if entry.state is not None:
            batch.leader_and_isr(entry.assignment.replicas, TopicPartition(name, partition), is_new=True)


def _check_count(partitions: int) -> None:
    if partitions > MAX_NEW_PARTITIONS:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"One request may create {MAX_NEW_PARTITIONS} partitions at most")


def _check_distinct(partition: int, replicas: tuple[int, ...]) -> None:
    if len(set(replicas)) != len(replicas):
        named = ", ".join(map(str, replicas))
        raise _bad_assignment(
            f"Duplicate brokers not allowed in replica assignment: {named} for partition id {partition}."
        )


def _bad_assignment(text: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
