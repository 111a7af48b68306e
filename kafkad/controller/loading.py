"""Reads topics from the store: after the controller's election, and when another process created some."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from kafkad.controller.election import first_leader
from kafkad.controller.leadership import Leadership
from kafkad.controller.state import PartitionEntry, TopicEntry
from kafkad.controller.topics import new_partition
from kafkad.meta.store import Create, NodeExists, Set, Stat
from kafkad.meta.znodes import Partition, Topic
from kafkad.model import PartitionState
from kafkad.names import NO_TOPIC_ID, TopicPartition
from kafkad.turns import Turns


async def load_topics(lead: Leadership, names: Sequence[str]) -> None:
    """Adds `names` to the state, with ids for topics that have none yet and the states of all partitions."""
    nodes = await lead.store.get_many([Topic.path(name) for name in names])
    topics = [await _topic(lead, name, *node) for name, node in zip(names, nodes, strict=True) if node is not None]
    await _load_states(lead, topics)
    turns = Turns()
    for topic in topics:
        await turns.give_way()
        lead.state.add_topic(topic)
        for partition, entry in topic.partitions.items():
            if entry.assignment.adding or entry.assignment.removing:
                lead.state.reassigning.add(TopicPartition(topic.name, partition))


async def _topic(lead: Leadership, name: str, data: bytes, stat: Stat) -> TopicEntry:
    text = Topic.decode(data)
    topic = TopicEntry(name, text.topic_id)
    topic.partitions = {p: PartitionEntry(assignment) for p, assignment in sorted(text.partitions.items())}
    if topic.topic_id == NO_TOPIC_ID:
        topic.topic_id = os.urandom(16)
        await lead.write([Set(Topic.path(name), topic.znode().encode(), stat.version)])
    return topic


async def _load_states(lead: Leadership, topics: Sequence[TopicEntry]) -> None:
    paths, entries = [], []
    for topic in topics:
        for partition, entry in topic.partitions.items():
            paths.append(Partition.path(topic.name, partition))
            entries.append(entry)
    turns = Turns()
    for entry, node in zip(entries, await lead.store.get_many(paths), strict=True):
        await turns.give_way()
        if node is not None:
            entry.state = Partition.decode(node[0], node[1].version)


async def bring_online(lead: Leadership) -> list[TopicPartition]:
    """Gives a first state to partitions that have none: made by a tool, or by a controller that did not get further."""
    made = []
    for tp, entry in list(lead.state.partitions()):
        if entry.state is not None or lead.state.going(tp.topic):
            continue
        elected = first_leader(entry.assignment.replicas, lead.state.live)
        if elected is None:
            continue
        state = PartitionState(leader=elected.leader, leader_epoch=0, isr=elected.isr, controller_epoch=lead.epoch)
        await _create_parents(lead, tp)
        await lead.write(new_partition(tp.topic, tp.partition, state)[-1:])
        entry.state = state
        made.append(tp)
    return made


async def _create_parents(lead: Leadership, tp: TopicPartition) -> None:
    for path in (Topic.partitions_path(tp.topic), Partition.parent(tp.topic, tp.partition)):
        with contextlib.suppress(NodeExists):
            await lead.write([Create(path)])
