"""The topics in the metadata store as a start reads them: once, for all that want to know of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from kafkad.meta.readable import readable
from kafkad.meta.store import MetaStore, Stat
from kafkad.meta.znodes import TOPICS, Topic
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition
from kafkad.turns import Turns


class StoredTopics(Mapping[str, Topic | None]):
    """Each is decoded when it is asked for; None for one that cannot be read."""

    def __init__(self, nodes: dict[str, tuple[bytes, Stat]]) -> None:
        self._nodes = nodes
        self._decoded: dict[str, Topic | None] = {}

    @classmethod
    async def read(cls, store: MetaStore) -> StoredTopics:
        names = await store.children(TOPICS)
        nodes = zip(names, await store.get_many([Topic.path(name) for name in names]), strict=True)
        return cls({name: node for name, node in nodes if node is not None})

    def __getitem__(self, name: str) -> Topic | None:
        if name not in self._decoded:
            self._decoded[name] = readable(Topic.path(name), partial(Topic.decode, self._nodes[name][0]))
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def id_of(self, topic_partition: TopicPartition) -> TopicId:
        """That of its topic; NO_TOPIC_ID for a partition that the store does not have."""
        topic = self.get(topic_partition.topic)
        return NO_TOPIC_ID if topic is None or topic_partition.partition not in topic.partitions else topic.topic_id

    def take(self, name: str, node: bytes) -> Topic | None:
        """Forget the topic, and return it if it has been decoded, of this node."""
        topic, known = self._decoded.pop(name, None), self._nodes.pop(name, None)
        return topic if known is not None and known[0] == node else None

    async def held_before(self, transaction: int, broker: int) -> dict[TopicPartition, TopicId]:
        """What is assigned to `broker` of topics that were made before; with their ids."""
        turns = Turns()
        held = {}
        for name in [name for name, (_, stat) in self._nodes.items() if stat.czxid < transaction]:
            await turns.give_way()
            if (topic := self[name]) is None:
                continue
            for number, assignment in topic.partitions.items():
                if broker in assignment.replicas:
                    held[TopicPartition(name, number)] = topic.topic_id
        return held
