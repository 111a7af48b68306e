"""Deleting topics: hidden from clients first, then from the disks of all replicas, and from the store last.

The wish is a node under `/admin/delete_topics`, so a controller that takes over goes on with it. A replica that cannot
confirm (its broker is down, its log directory failed) holds the topic in the store until that broker is back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from kafkad.controller.leadership import Leadership
from kafkad.controller.requests import RequestBatch
from kafkad.controller.state import Deletion, TopicEntry
from kafkad.meta.store import Create, Delete, NodeExists, Watch, subtree
from kafkad.meta.znodes import Config, Topic, TopicDeletion
from kafkad.model import TopicPartition
from kafkad.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

_OPERATIONS_PER_WRITE = 2_000


class Deletions:
    """The part of a controller's term that deletes topics."""

    def __init__(self, lead: Leadership) -> None:
        self._lead = lead
        self._state = lead.state

    async def ask(self, topics: Sequence[str]) -> None:
        """Writes the wish to delete `topics`, which exist, and begins."""
        for topic in topics:
            if topic not in self._state.deleting:
                with contextlib.suppress(NodeExists):
                    await self._lead.write([Create(TopicDeletion.path(topic))])
                self._state.deleting[topic] = Deletion()
        await self.go_on()

    async def mark(self, watch: Watch) -> None:
        """Reads which topics are to be deleted; drops the wish if there is no such topic."""
        wanted = await self._lead.store.children(TopicDeletion.PARENT, watch)
        for topic in wanted:
            if topic not in self._state.topics:
                await self._lead.write([Delete(TopicDeletion.path(topic))])
            elif topic not in self._state.deleting:
                self._state.deleting[topic] = Deletion()

    async def go_on(self) -> None:
        """Tries what could not be done before: after a broker came back, or a reassignment ended."""
        batch = self._lead.batch()
        for name, deletion in list(self._state.deleting.items()):
            topic = self._state.topics[name]
            if not deletion.begun:
                self._begin(topic, deletion, batch)
            elif deletion.stuck:
                replicas, deletion.stuck = deletion.stuck, set()
                self._ask_replicas(topic, deletion, replicas, batch)
        self._lead.send(batch)
        await self._finish(list(self._state.deleting))

    def _begin(self, topic: TopicEntry, deletion: Deletion, batch: RequestBatch) -> None:
        partitions = [TopicPartition(topic.name, p) for p in topic.partitions]
        if self._state.moving(topic.name):
            return
        deletion.begun = True
        batch.metadata(partitions)
        replicas = {(r, p) for p, entry in topic.partitions.items() for r in entry.assignment.replicas}
        self._ask_replicas(topic, deletion, replicas, batch)

    def _ask_replicas(
        self, topic: TopicEntry, deletion: Deletion, replicas: Iterable[tuple[int, int]], batch: RequestBatch
    ) -> None:
        for broker, partition in replicas:
            tp = TopicPartition(topic.name, partition)
            if self._state.online(broker, tp):
                deletion.waiting.add((broker, partition))
                batch.stop(broker, tp, delete=True)
            else:
                deletion.stuck.add((broker, partition))

    async def broker_lost(self, broker: int) -> None:
        for deletion in self._state.deleting.values():
            lost = {replica for replica in deletion.waiting if replica[0] == broker}
            deletion.waiting -= lost
            deletion.stuck |= lost
        await self._finish(list(self._state.deleting))

    async def answered(self, broker: int, request: StopReplicaRequest, response: StopReplicaResponse) -> None:
        """Takes note of what a broker has deleted. What it could not delete waits for its next start."""
        failed = {(e.topic_name, e.partition_index) for e in response.partition_errors if e.error_code}
        touched = []
        for topic in request.topic_states:
            deletion = self._state.deleting.get(topic.topic_name)
            if deletion is None:
                continue
            touched.append(topic.topic_name)
            for partition in topic.partition_states:
                replica = (broker, partition.partition_index)
                if replica not in deletion.waiting:
                    continue
                deletion.waiting.discard(replica)
                if response.error_code or (topic.topic_name, partition.partition_index) in failed:
                    deletion.stuck.add(replica)
        await self._finish(touched)

    async def _finish(self, topics: Iterable[str]) -> None:
        for name in topics:
            deletion = self._state.deleting[name]
            if not deletion.begun or deletion.waiting:
                continue
            if not deletion.stuck:
                await self._remove(name)
                self._state.remove_topic(name)
            deletion.settled.set()

    async def _remove(self, topic: str) -> None:
        """All nodes of the topic; but for huge topics in one transaction, and the wish always last."""
        store = self._lead.store
        paths = await subtree(store, Topic.path(topic))
        for path in (Config.path(Config.entity_path(Config.TOPICS, topic)), TopicDeletion.path(topic)):
            if await store.exists(path):
                paths.append(path)
        while len(paths) > _OPERATIONS_PER_WRITE:
            await self._lead.write([Delete(path) for path in paths[:_OPERATIONS_PER_WRITE]])
            del paths[:_OPERATIONS_PER_WRITE]
        await self._lead.write([Delete(path) for path in paths])
