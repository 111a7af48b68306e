"""Which partitions are no more, by the metadata store. A broker has not heard yet of every partition that it does not
know: a controller tells of topics in parts, and of none whose node it cannot read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from kafkad.meta.readable import required
from kafkad.meta.store import MetaError, MetaStore
from kafkad.meta.znodes import Topic, TopicDeletion
from kafkad.names import TopicPartition

OnGone = Callable[[Collection[TopicPartition]], None]


class GonePartitions:
    def __init__(self, store: MetaStore) -> None:
        self._store = store
        self._reading: dict[str, asyncio.Task[Collection[int] | None]] = {}
        """Of topics, however many ask at the same time."""
        self._finding: set[asyncio.Task[None]] = set()

    def find(self, partitions: Sequence[TopicPartition], done: OnGone) -> None:
        """`done` is told which of these are gone, or are being deleted; of what the store cannot say none is."""
        finding = asyncio.ensure_future(self._find(partitions, done))
        self._finding.add(finding)
        finding.add_done_callback(self._finding.discard)

    def close(self) -> None:
        """Who still waits is not told."""
        for task in (*self._finding, *self._reading.values()):
            task.cancel()

    async def _find(self, partitions: Sequence[TopicPartition], done: OnGone) -> None:
        reading = {topic: self._partitions(topic) for topic in {tp.topic for tp in partitions}}
        there = {topic: await read for topic, read in reading.items()}
        done([tp for tp in partitions if (known := there[tp.topic]) is not None and tp.partition not in known])

    def _partitions(self, topic: str) -> asyncio.Task[Collection[int] | None]:
        reading = self._reading.get(topic)
        if reading is None:
            reading = self._reading[topic] = asyncio.ensure_future(self._read(topic))
            reading.add_done_callback(lambda _: self._reading.pop(topic))
        return reading

    async def _read(self, topic: str) -> Collection[int] | None:
        """None if that cannot be known now."""
        path = Topic.path(topic)
        try:
            there, deletion = await self._store.get_many([path, TopicDeletion.path(topic)])
            if there is None or deletion is not None:
                return ()
            return required(path, lambda: Topic.decode(there[0])).partitions
        except MetaError:
            return None
