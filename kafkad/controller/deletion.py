"""Deleting topics: hidden from clients first, then from the disks of all replicas, and from the store last.

The wish is a node under `/admin/delete_topics`, so a controller that takes over goes on with it. A replica that cannot
confirm holds the topic in the store until its broker is back; one that is there (its disk hangs, or a log directory
failed) is asked again after some seconds. One that its broker would not let lead, since its log is damaged or has lost
its tail, can be deleted like any other.

Many topics go in groups: those of one share the writes' fsyncs and the requests to brokers, and between two of them
everybody else has a turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from kafkad.controller.active import ActiveController
from kafkad.controller.requests import RequestBatch
from kafkad.controller.state import Deletion, TopicEntry
from kafkad.errors import KafkaError
from kafkad.meta.refusals import storage_refused
from kafkad.meta.store import (
    Create,
    Delete,
    NodeExists,
    Refused,
    Watch,
    subtree,
)
from kafkad.meta.znodes import Config, Topic, TopicDeletion
from kafkad.names import TopicPartition
from kafkad.together import together
from kafkad.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

log = logging.getLogger(__name__)

ASKED_AGAIN_MS = 10_000
"""From an answer that a replica could not be deleted to the next question."""
_OPERATIONS_PER_WRITE = 2_000
_TOPICS_AT_ONCE = 100
_PARTITIONS_PER_TURN = 100


class Deletions:
    """The part of a controller's term that deletes topics."""

    def __init__(self, active: ActiveController, allowed: Callable[[], bool], go_on_later: Callable[[], None]) -> None:
        """`allowed` tells `delete.topic.enable`; `go_on_later` has `go_on` called once in `ASKED_AGAIN_MS`."""
        self._active = active
        self._allowed = allowed
        self._go_on_later = go_on_later
        self._state = active.state
        self._settled: dict[str, asyncio.Future[None]] = {}

    def settled(self, topic: str) -> asyncio.Future[None]:
        """Done when the topic, which is being deleted, is gone, or hidden from clients with nothing left to do but wait
        for brokers; cancelled when the term ends before that."""
        return self._settled.setdefault(topic, asyncio.get_running_loop().create_future())

    def _mark_settled(self, topic: str) -> None:
        settled = self.settled(topic)
        if not settled.done():
            settled.set_result(None)

    def end(self) -> None:
        for settled in self._settled.values():
            settled.cancel()
        self._settled = {}

    async def ask(self, topics: Sequence[str]) -> dict[str, KafkaError]:
        """Writes the wish to delete `topics`, which exist, and begins. Returns those that the store refused."""
        refused: dict[str, KafkaError] = {}
        await _in_groups(
            [topic for topic in topics if topic not in self._state.deleting], lambda topic: self._wish(topic, refused)
        )
        await self.go_on()
        return refused

    async def _wish(self, topic: str, refused: dict[str, KafkaError]) -> None:
        try:
            with contextlib.suppress(NodeExists):
                await self._active.write([Create(TopicDeletion.path(topic))])
        except Refused as e:
            refused[topic] = storage_refused(e)
        else:
            self._state.deleting[topic] = Deletion()

    async def mark(self, watch: Watch) -> None:
        """Reads which topics are to be deleted; drops the wish if there is no such topic, or none may be deleted."""
        wanted = await self._active.store.children(TopicDeletion.PARENT, watch)
        for topic in wanted:
            if topic not in self._state.topics or not (self._allowed() or topic in self._state.deleting):
                await self._active.write([Delete(TopicDeletion.path(topic))])
            elif topic not in self._state.deleting:
                self._state.deleting[topic] = Deletion()

    async def go_on(self) -> None:
        """Tries what could not be done before: a broker came back, a reassignment ended, or some seconds went by."""
        batch, partitions = self._active.batch(), 0
        for name, deletion in list(self._state.deleting.items()):
            topic = self._state.topics[name]
            partitions += len(topic.partitions)
            if partitions >= _PARTITIONS_PER_TURN:
                await self._active.send(batch)
                await asyncio.sleep(0)
                batch, partitions = self._active.batch(), 0
            if not deletion.begun:
                self._begin(topic, deletion, batch)
            elif deletion.stuck:
                replicas, deletion.stuck = deletion.stuck, set()
                self._ask_replicas(topic, deletion, replicas, batch)
        await self._active.send(batch)
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
            if broker in self._state.brokers:
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
        """Takes note of what a broker has deleted. What it could not delete it is asked for again later."""
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
                    self._go_on_later()
        await self._finish(touched)

    async def _finish(self, topics: Iterable[str]) -> None:
        deleting = self._state.deleting
        await _in_groups([name for name in topics if deleting[name].begun and not deleting[name].waiting], self._settle)

    async def _settle(self, topic: str) -> None:
        """A topic that the store does not let go stays hidden; that is tried again with the next deletion."""
        deletion = self._state.deleting[topic]
        if deletion.stuck:
            self._mark_settled(topic)
            return
        try:
            await self._remove(topic)
        except Refused as e:
            log.error("the metadata store does not remove the topic %s, which is deleted: %s", topic, e)
            self._mark_settled(topic)
        else:
            self._state.remove_topic(topic)
            self._mark_settled(topic)
            del self._settled[topic]

    async def _remove(self, topic: str) -> None:
        """All nodes of the topic; but for huge topics in one transaction, and the wish always last."""
        store = self._active.store
        paths = await subtree(store, Topic.path(topic))
        for path in (Config.path(Config.entity_path(Config.TOPICS, topic)), TopicDeletion.path(topic)):
            if await store.exists(path):
                paths.append(path)
        while len(paths) > _OPERATIONS_PER_WRITE:
            await self._active.write([Delete(path) for path in paths[:_OPERATIONS_PER_WRITE]])
            del paths[:_OPERATIONS_PER_WRITE]
        await self._active.write([Delete(path) for path in paths])


async def _in_groups(topics: Sequence[str], work: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    for begin in range(0, len(topics), _TOPICS_AT_ONCE):
        await together(map(work, topics[begin : begin + _TOPICS_AT_ONCE]))
