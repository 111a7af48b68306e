"""A first start on directories that a stopped Kafka left: its topics become ours, and what could not is said."""

from __future__ import annotations

import logging

from kafkad.controller.adoption import FoundTopic, adopt, has_topics
from kafkad.log.manager import FoundTopic as OnDisk
from kafkad.log.manager import LogManager
from kafkad.meta.store import MetaStore
from kafkad.model import NO_EPOCH
from kafkad.names import NO_TOPIC_ID, TopicPartition, id_text

log = logging.getLogger(__name__)

_NAMED = 5


async def take_over(store: MetaStore, broker: int, logs: LogManager) -> None:
    """Only with an empty store: from then on the store says what there is."""
    if await has_topics(store):
        return
    topics = [topic for found in logs.found_topics() if (topic := _found(logs, found)) is not None]
    if not topics:
        return
    await adopt(store, broker, topics)
    partitions = sum(len(topic.latest_epochs) for topic in topics)
    log.info("adopted %d topics with %d partitions found in the log directories", len(topics), partitions)
    log.warning("settings of adopted topics were not in these directories: they have the defaults until they are set")
    for topic in topics:
        if topic.missing:
            log.warning("%s: partitions %s were not here; they begin empty", topic.name, _some(topic.missing))


def _found(logs: LogManager, found: OnDisk) -> FoundTopic | None:
    name = found.name
    if len(found.topic_ids) > 1:
        ids = ", ".join(id_text(topic_id) for topic_id in found.topic_ids)
        log.error("%s is not adopted: its partitions are of several topics of that name, with ids %s", name, ids)
        return None
    epochs = {}
    for partition in found.partitions:
        held = logs.get(TopicPartition(name, partition))
        latest = held.epochs.latest if held is not None else None
        epochs[partition] = NO_EPOCH if latest is None else latest
    topic_id = found.topic_ids[0] if found.topic_ids else NO_TOPIC_ID
    return FoundTopic(name=name, topic_id=topic_id, latest_epochs=epochs)


def _some(partitions: list[int]) -> str:
    named = ", ".join(map(str, partitions[:_NAMED]))
    return named if len(partitions) <= _NAMED else f"{named} and {len(partitions) - _NAMED} more"
