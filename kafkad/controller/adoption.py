"""Adoption at a start: partitions that are on disk and not in the store are written into it, and so are topics of which
it has others of the same names.

So are the leader epochs that logs know, where those of the store are earlier.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from kafkad.controller.producer_ids import pass_over
from kafkad.controller.topics import new_partition
from kafkad.meta.readable import readable
from kafkad.meta.store import Create, Delete, MetaStore, Operation, Set, Stat, subtree
from kafkad.meta.znodes import TOPICS, Config, ControllerEpoch, Partition, Topic
from kafkad.model import PartitionAssignment, PartitionState
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition

_NO_CONFIGS: Mapping[str, str] = {}
_NOT_STORED: Mapping[int, PartitionAssignment] = {}


class AdoptedTopic(NamedTuple):
    """A topic to be written into the store. `latest_epochs` has its partitions on disk, with the latest leader epoch of
    each log (-1 for none); `stored` are those that are in the store already.

    A topic of Kafka below 2.8 has NO_TOPIC_ID and gets an id. `configs` are the settings that a new one shall have. One
    that `replaces` another topic of its name has the settings of that, and `configs` besides.
    """

    name: str
    topic_id: TopicId
    latest_epochs: Mapping[int, int]
    configs: Mapping[str, str] = _NO_CONFIGS
    stored: Mapping[int, PartitionAssignment] = _NOT_STORED
    replaces: bool = False

    @property
    def new(self) -> list[int]:
        """Its partitions that are to be stored."""
        return [p for p in range(max(self.latest_epochs) + 1) if p not in self.stored]

    @property
    def missing(self) -> list[int]:
        """Partitions that must have been elsewhere: they are made, empty."""
        return [p for p in self.new if p not in self.latest_epochs]


async def is_new(store: MetaStore) -> bool:
    """True before the first start with this store has got as far as a controller: until then nobody relies on it."""
    return await store.exists(ControllerEpoch.PATH) is None


async def has_topics(store: MetaStore) -> bool:
    return bool(await store.children(TOPICS))


async def adopt(store: MetaStore, broker: int, topics: Sequence[AdoptedTopic], now_ms: int) -> None:
    """Enters `topics` with `broker` as their only replica, all or none; before the controller starts.

    Which producer ids were given out is not known: they are passed over.

    Each partition goes on in the latest leader epoch of its log, as after a restart of its only broker. So will the
    Kafka that led it, should it come back: transactions that ended in a later epoch would fence its coordinators.
    """
    operations = await pass_over(store, broker, now_ms)
    for topic in topics:
        operations += await _operations(store, topic, broker)
    await store.multi(operations)


async def lead_no_earlier(
    store: MetaStore,
    states: Mapping[TopicPartition, tuple[bytes, Stat] | None],
    latest_epoch: Callable[[TopicPartition], int],
) -> list[TopicPartition]:
    """Has partitions go on in the latest leader epochs of their logs where the store knows only earlier ones; which.
    `states` are their nodes.

    Before the controller starts, and where nobody but this broker has replicas: a coordinator in an earlier epoch than
    one of before is fenced by the transactions that ended in that.
    """
    behind: dict[TopicPartition, Operation] = {}
    for tp, node in states.items():
        latest = latest_epoch(tp)
        if node is None or latest <= 0:
            continue
        path = Partition.path(*tp)
        state = readable(path, partial(Partition.decode, node[0], node[1].version))
        if state is not None and state.leader_epoch < latest:
            behind[tp] = Set(path, Partition.encode(replace(state, leader_epoch=latest)))
    if behind:
        await store.multi(list(behind.values()))
    return list(behind)


async def _operations(store: MetaStore, found: AdoptedTopic, broker: int) -> list[Operation]:
    topic_id = found.topic_id if found.topic_id != NO_TOPIC_ID else os.urandom(16)
    assignment = PartitionAssignment(replicas=(broker,))
    path = Topic.path(found.name)
    node = Topic(topic_id=topic_id, partitions={**found.stored, **dict.fromkeys(found.new, assignment)}).encode()
    operations: list[Operation] = []
    if found.stored:
        operations.append(Set(path, node))
    else:
        if found.replaces:
            operations += [Delete(each) for each in await subtree(store, path)]
        operations += await _settings(store, found)
        operations += [Create(path, node), Create(Topic.partitions_path(found.name))]
    for partition in found.new:
        epoch = max(found.latest_epochs.get(partition, 0), 0)
        state = PartitionState(leader=broker, leader_epoch=epoch, isr=(broker,), controller_epoch=0)
        operations += new_partition(found.name, partition, state)
    return operations


async def _settings(store: MetaStore, found: AdoptedTopic) -> list[Operation]:
    path = Config.path(Config.entity_path(Config.TOPICS, found.name))
    [node] = await store.get_many([path])
    configs = found.configs
    if found.replaces:
        if not configs:
            return []
        before = None if node is None else readable(path, partial(Config.decode, node[0]))
        configs = {**(before or {}), **configs}
    text = Config.encode(configs)
    return [Create(path, text) if node is None else Set(path, text)]
