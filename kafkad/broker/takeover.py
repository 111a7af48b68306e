"""A first start on directories that a stopped Kafka left: its topics become ours, and what could not is said."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence

from kafkad.cluster.metadata import MetadataCache
from kafkad.config import Config
from kafkad.controller.adoption import AdoptedTopic, adopt, has_topics
from kafkad.controller.internal_topics import internal_topic
from kafkad.controller.producer_ids import pass_over_known
from kafkad.log.damage import Damage
from kafkad.log.deletion import outlives_retention
from kafkad.log.directories import LogDirectory
from kafkad.log.loading import IdOf
from kafkad.log.log import Log
from kafkad.log.manager import LogManager, TopicOnDisk
from kafkad.meta.readable import readable
from kafkad.meta.store import MetaStore
from kafkad.meta.znodes import TOPICS, Topic
from kafkad.model import NO_EPOCH
from kafkad.names import INTERNAL_TOPICS, NO_TOPIC_ID, TopicId, TopicPartition, id_text

log = logging.getLogger(__name__)

_NAMED = 5
_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


async def take_over(store: MetaStore, broker: int, logs: LogManager, config: Config) -> None:
    """Only with an empty store: from then on the store says what there is.

    What the topics' settings were is not known, and retention must not begin with records that they protected.
    """
    if await has_topics(store):
        return
    topics = [topic for found in logs.found_topics() if (topic := _found(logs, found, config)) is not None]
    if not topics:
        return
    await adopt(store, broker, topics, logs.clock.now_ms())
    partitions = sum(len(topic.latest_epochs) for topic in topics)
    log.info("adopted %d topics with %d partitions found in the log directories", len(topics), partitions)
    log.warning(
        "the log directories do not hold the settings of adopted topics: they have the defaults until they are set"
    )
    protected = [topic.name for topic in topics if topic.configs == _KEEP_ALL]
    if protected:
        log.warning(
            "these were compacted, or have records older than log.retention allows; they keep all (retention.ms=-1) "
            "until their cleanup.policy and retention.ms are set: %s",
            ", ".join(protected),
        )
    for topic in topics:
        if topic.missing:
            log.warning("%s: partitions %s were not on disk; they are created empty", topic.name, _some(topic.missing))


async def pass_over_known_producers(store: MetaStore, broker: int, logs: LogManager) -> None:
    """An older copy of the metadata store may have been put back."""

    def known(first: int, last: int) -> bool:
        return any(log.producers.knows_any(first, last) for log in logs.logs.values())

    if await pass_over_known(store, broker, logs.clock.now_ms(), known):
        log.warning(
            "the log directories know producer ids that the metadata store was to give out: they are passed over"
        )


async def stored_ids(store: MetaStore) -> IdOf:
    """Gives a topic's id as the store has it, to where the log directories lost it."""
    names = await store.children(TOPICS)
    nodes = dict(zip(names, await store.get_many([Topic.path(name) for name in names]), strict=True))

    @functools.cache
    def id_of(topic: str) -> TopicId:
        node = nodes.get(topic)
        found = None if node is None else readable(Topic.path(topic), functools.partial(Topic.decode, node[0]))
        return NO_TOPIC_ID if found is None else found.topic_id

    return id_of


def tell_of_mended(logs: LogManager) -> None:
    if logs.mended:
        log.warning(
            "a crash had left %d partitions without a topic id; it was taken from the metadata store and written to %s",
            len(logs.mended),
            _some(logs.mended),
        )


def tell_of_offline(directory: LogDirectory, lost: list[TopicPartition]) -> None:
    """Logs a directory that cannot be used at the start; the replica manager logs later failures."""
    log.error("%s; %s is offline until the broker restarts", directory.failure, directory.path)


def tell_of_damage(tp: TopicPartition, damage: Damage) -> None:
    log.log(logging.WARNING if damage.was_cut else logging.ERROR, "%s", damage.text(tp))


def tell_of_strays(logs: LogManager, metadata: MetadataCache, broker: int) -> None:
    """Names partitions on disk that are not this broker's in the cluster. They are left alone: they may be the only
    copy."""
    strays = sorted(
        log.directory for tp, log in logs.logs.items() if not metadata.has_replica(tp, broker, log.topic_id)
    )
    if strays:
        log.warning("the cluster has no replica here for %s; these directories are left alone", _some(strays))


def _found(logs: LogManager, found: TopicOnDisk, config: Config) -> AdoptedTopic | None:
    name = found.name
    if len(found.topic_ids) > 1:
        ids = ", ".join(id_text(topic_id) for topic_id in found.topic_ids)
        log.error("%s is not adopted: its partitions are of several topics of that name, with ids %s", name, ids)
        return None
    held = {partition: logs.get(TopicPartition(name, partition)) for partition in found.partitions}
    latest = {partition: log.epochs.latest if log is not None else None for partition, log in held.items()}
    return AdoptedTopic(
        name=name,
        topic_id=found.topic_ids[0] if found.topic_ids else NO_TOPIC_ID,
        latest_epochs={partition: NO_EPOCH if epoch is None else epoch for partition, epoch in latest.items()},
        configs=_configs(name, [log for log in held.values() if log is not None], config, logs.clock.now_ms()),
    )


def _configs(name: str, held: list[Log], config: Config, now_ms: int) -> Mapping[str, str]:
    if name in INTERNAL_TOPICS:
        configs = internal_topic(name, config, brokers=1).configs
        return {setting: value for setting, value in configs.items() if value is not None}
    compacted = any(log.cleaned_until is not None and not log.config.compacted for log in held)
    if compacted or any(outlives_retention(log, now_ms) for log in held):
        return _KEEP_ALL
    return {}


def _some(things: Sequence[object]) -> str:
    named = ", ".join(map(str, things[:_NAMED]))
    return named if len(things) <= _NAMED else f"{named} and {len(things) - _NAMED} more"
