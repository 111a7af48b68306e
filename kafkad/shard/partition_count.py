"""How many partitions a coordinator's topic has, which says where each key belongs."""

from __future__ import annotations

import asyncio
import logging

from kafkad.cluster.metadata import MetadataCache
from kafkad.meta.readable import required
from kafkad.meta.store import MetaError, MetaStore, NoNode
from kafkad.meta.znodes import Topic
from kafkad.names import NO_TOPIC_ID, TopicId

log = logging.getLogger(__name__)


class PartitionCount:
    """The number that the topic had when this broker first saw it: partitions that are added would take keys from
    others.

    By the topic's assignment in the metadata store, as in Kafka. The controller tells nobody of a partition whose state
    it cannot read, and what it tells may come in parts. Controllers below Kafka 2.8 tell no ids.
    """

    def __init__(self, topic: str, metadata: MetadataCache, store: MetaStore) -> None:
        self._topic = topic
        self._metadata = metadata
        self._store = store
        self._counted: tuple[TopicId, int] | None = None
        self._reading: asyncio.Future[None] | None = None
        self._complaint = ""
        """Why it could not be read, as the log has it."""
        metadata.on_topic_new.append(self._told)

    def known(self) -> int | None:
        """None while the topic is not in the metadata, or has not been counted."""
        topic = self._metadata.topics.get(self._topic)
        if topic is None or self._counted is None:
            return None
        topic_id, count = self._counted
        return count if topic_id == topic.id or NO_TOPIC_ID in (topic_id, topic.id) else None

    def read(self) -> asyncio.Future[None]:
        """However many ask at the same time. Done when the number is known, or cannot be known now."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._read())
        return asyncio.shield(self._reading)

    def stop(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def _told(self, topic: str) -> None:
        if topic != self._topic:
            return
        if self._metadata.topics[topic].id == NO_TOPIC_ID:
            self._counted = None  # nothing tells it from an earlier one
        if self.known() is None:
            self.read()

    async def _read(self) -> None:
        path = Topic.path(self._topic)
        try:
            data, _ = await self._store.get(path)
            topic = required(path, lambda: Topic.decode(data))
            if self._counted is None or self._counted[0] != topic.topic_id:
                self._counted = topic.topic_id, len(topic.partitions)
        except NoNode:
            pass
        except MetaError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                log.warning("it is not known how many partitions %s has: %s", self._topic, error)
        finally:
            self._reading = None
