"""Reads topics from the store: after the controller's election, and when somebody else writes them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Sequence
from functools import partial

from kafkad.controller.active import ActiveController
from kafkad.controller.election import first_leader
from kafkad.controller.settings import KnownTopic
from kafkad.controller.state import ClusterState, PartitionEntry, TopicEntry
from kafkad.controller.topics import new_partition
from kafkad.meta.readable import readable
from kafkad.meta.store import Create, NodeExists, Refused, Set, Stat, Watch
from kafkad.meta.znodes import Partition, Topic
from kafkad.model import PartitionState
from kafkad.names import NO_TOPIC_ID, TopicPartition
from kafkad.together import together
from kafkad.turns import Turns

log = logging.getLogger(__name__)

_STATES_AT_ONCE = 200

ReturnedMembers = dict[TopicPartition, frozenset[int]]
"""Members of ISRs that have registered since the ISR was written."""


async def load_topics(
    active: ActiveController,
    names: Sequence[str],
    watch: Watch | None = None,
    known: KnownTopic = lambda name, node: None,
) -> ReturnedMembers:
    """Adds `names` to the state, with ids for topics that have none yet and the states of all partitions. A topic that
    cannot be read, or whose id the store refuses, is left out.

    `watch` hears of each topic's next write.
    """
    nodes = await active.store.get_many([Topic.path(name) for name in names], watch)
    found = [
        await _topic(active, name, *node, known(name, node[0]))
        for name, node in zip(names, nodes, strict=True)
        if node is not None
    ]
    topics = [topic for topic in found if topic is not None]
    returned = await _load_states(
        active, [(TopicPartition(t.name, number), entry) for t in topics for number, entry in t.partitions.items()]
    )
    turns = Turns()
    for topic in topics:
        await turns.give_way()
        active.state.add_topic(topic)
        for partition, entry in topic.partitions.items():
            if entry.assignment.adding or entry.assignment.removing:
                active.state.reassigning.add(TopicPartition(topic.name, partition))
    return returned


async def _topic(
    active: ActiveController, name: str, data: bytes, stat: Stat, known: Topic | None
) -> TopicEntry | None:
    text = known or readable(Topic.path(name), lambda: Topic.decode(data))
    if text is None:
        active.state.unreadable.add(name)
        return None
    active.state.unreadable.discard(name)
    topic = TopicEntry(name, text.topic_id)
    topic.partitions = {p: PartitionEntry(assignment) for p, assignment in sorted(text.partitions.items())}
    if topic.topic_id == NO_TOPIC_ID:
        topic.topic_id = os.urandom(16)
        try:
            await active.write([Set(Topic.path(name), topic.znode().encode(), stat.version)])
        except Refused as e:
            log.error("%s is left out, for the metadata store refuses its id: %s", name, e)
            active.state.unreadable.add(name)
            return None
    return topic


async def load_more_partitions(active: ActiveController, name: str, watch: Watch) -> list[TopicPartition]:
    """Adds partitions that somebody wrote into the node of a known topic, with the states that they may have, and
    returns them; one that is being deleted gets none."""
    path, topic = Topic.path(name), active.state.topics[name]
    [node] = await active.store.get_many([path], watch)
    text = None if node is None else readable(path, partial(Topic.decode, node[0], topic.partitions))
    if node is None or text is None:
        return []
    added = {p: PartitionEntry(assignment) for p, assignment in sorted(text.partitions.items())}
    if added and name in active.state.deleting:
        await active.write([Set(path, topic.znode().encode(), node[1].version)])
        return []
    partitions = [(TopicPartition(name, number), entry) for number, entry in added.items()]
    await _load_states(active, partitions)
    topic.partitions |= added
    return [tp for tp, _ in partitions]


async def _load_states(
    active: ActiveController, partitions: Sequence[tuple[TopicPartition, PartitionEntry]]
) -> ReturnedMembers:
    paths = [Partition.path(*tp) for tp, _ in partitions]
    returned = {}
    turns = Turns()
    for path, (tp, entry), node in zip(paths, partitions, await active.store.get_many(paths), strict=True):
        await turns.give_way()
        if node is None:
            continue
        entry.state = readable(path, partial(Partition.decode, node[0], node[1].version))
        if entry.state is None:
            active.state.unreadable.add(tp.topic)
            continue
        isr = entry.state.isr
        if not set(isr).issubset(entry.assignment.replicas):
            active.state.left_over.add(tp)
        if len(isr) > 1 and (members := returned_members(isr, node[1].mzxid, active.state)):
            returned[tp] = members
    return returned


def returned_members(isr: Sequence[int], written: int, state: ClusterState) -> frozenset[int]:
    """The members that registered after the transaction in which the ISR was `written`.

    A controller sees a broker die and come back by a later broker epoch. One that has just been elected knows no
    earlier epoch, and goes by this.
    """
    brokers = state.brokers
    return frozenset(member for member in isr if member in brokers and brokers[member].epoch > written)


async def bring_online(active: ActiveController) -> list[TopicPartition]:
    """Gives a first state to partitions that have none: made by a tool, or by a controller that did not get further."""
    new = [
        (tp, entry)
        for tp, entry in active.state.partitions()
        if entry.state is None and not active.state.going(tp.topic)
    ]
    made: list[TopicPartition] = []
    for begin in range(0, len(new), _STATES_AT_ONCE):
        some = new[begin : begin + _STATES_AT_ONCE]
        online = await together(_bring_online(active, tp, entry) for tp, entry in some)
        made += [tp for (tp, _), done in zip(some, online, strict=True) if done]
    return made


async def _bring_online(active: ActiveController, tp: TopicPartition, entry: PartitionEntry) -> bool:
    elected = first_leader(entry.assignment.replicas, active.state.live)
    if elected is None:
        return False
    state = PartitionState(leader=elected.leader, leader_epoch=0, isr=elected.isr, controller_epoch=active.epoch)
    try:
        for path in (Topic.partitions_path(tp.topic), Partition.parent(tp.topic, tp.partition)):
            with contextlib.suppress(NodeExists):
                await active.write([Create(path)])
        await active.write(new_partition(tp.topic, tp.partition, state)[-1:])
    except NodeExists:
        return False  # it cannot be read, and may say that there are records elsewhere
    except Refused as e:
        log.error("%s gets no leader, for the metadata store refuses its state: %s", tp, e)
        return False
    entry.state = state
    return True
