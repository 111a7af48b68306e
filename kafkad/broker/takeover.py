"""What the log directories hold and the metadata store does not know becomes ours, and what could not is said.

A stopped Kafka has left it, or has written it since; or an older copy of the store was put back.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from kafkad.broker.adoption_guard import refuse_offline, refuse_unopened, refuse_without_acls
from kafkad.broker.identity import StartError
from kafkad.broker.stored_topics import StoredTopics
from kafkad.config import Config
from kafkad.controller.adoption import AdoptedTopic, adopt, is_new, lead_no_earlier
from kafkad.controller.internal_topics import internal_topic
from kafkad.controller.producer_ids import pass_over_known
from kafkad.log.deletion import outlives_retention
from kafkad.log.log import Log
from kafkad.log.manager import LogManager, TopicOnDisk
from kafkad.meta.store import MetaStore, Unreadable
from kafkad.meta.znodes import Partition, Topic, TopicDeletion
from kafkad.names import INTERNAL_TOPICS, NO_TOPIC_ID, TopicId, TopicPartition, id_text, is_another_topic, some

log = logging.getLogger(__name__)

_FEW_MISSING, _MOST_MISSING, _MOST_MISSING_FOR_EACH = 100, 3_000, 10
_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


async def take_over(
    store: MetaStore, stored: StoredTopics, broker: int, logs: LogManager, config: Config
) -> dict[str, str]:
    """Enters into the store what the log directories have and it does not: partitions, topics of which it has others of
    the same names, and later leader epochs. `stored` are the topics that it has.

    Returns topics that were not adopted, with a directory of each. StartError where there are partitions to be adopted,
    and a log directory is offline that may have more of them; and where a new store cannot get all of them.
    """
    here = [*logs.logs, *logs.broken]
    states = dict(zip(here, await store.get_many([Partition.path(*tp) for tp in here]), strict=True))
    found = logs.found_topics()
    deleting = await store.children(TopicDeletion.PARENT)
    made_again = {each.name for each in found if each.name not in deleting and _is_made_again(each, stored)}
    unknown = sorted(tp for tp, state in states.items() if state is None or tp.topic in made_again)
    names = {tp.topic for tp in unknown} - {*deleting}
    topics, refused = _to_adopt(logs, config, [each for each in found if each.name in names], stored, made_again)
    adopted = {topic.name for topic in topics}
    adopting = [tp for tp in unknown if tp.topic in adopted]
    refuse_offline(logs.directories, adopting)
    refuse_unopened(logs, adopting)
    if refused and await is_new(store):
        raise StartError("; ".join(refused))
    for reason in refused:
        log.error("%s", reason)
    await refuse_without_acls(store, config, adopting, knows_topics=bool(stored))
    if topics:
        await adopt(store, broker, topics, logs.clock.now_ms())
        _tell_of_adopted(topics)
    if all(directory.failure is None for directory in logs.directories):
        gone = {*deleting, *(topic.name for topic in topics if topic.replaces)}
        _tell_of_lost(sorted(_assigned(stored, gone, broker) - states.keys()))
    known = {tp: state for tp, state in states.items() if tp.topic not in made_again}
    behind = await lead_no_earlier(store, known, logs.latest_epoch)
    if behind:
        log.warning(
            "the metadata store is older than the logs of %d partitions, which go on in the leader epochs of these: %s",
            len(behind),
            some(behind),
        )
    return {tp.topic: logs.path_of(tp) for tp in unknown if tp.topic not in adopted}


def _is_made_again(found: TopicOnDisk, stored: Mapping[str, Topic | None]) -> bool:
    """True if all that is on disk is of one topic, and what the store knows is another one of that name."""
    known = stored.get(found.name)
    return known is not None and len(found.topic_ids) == 1 and is_another_topic(found.topic_ids[0], known.topic_id)


def _to_adopt(
    logs: LogManager,
    config: Config,
    found: Sequence[TopicOnDisk],
    stored: Mapping[str, Topic | None],
    made_again: Collection[str],
) -> tuple[list[AdoptedTopic], list[str]]:
    """Those of the topics with unknown partitions that can be told from others by their ids; and why others are not
    adopted.

    What their settings were is not known, and retention must not begin with records that they protected.
    """
    names: dict[TopicId, set[str]] = {}
    for name, topic_id in (
        *((name, topic.topic_id) for name, topic in stored.items() if topic is not None),
        *((topic.name, topic_id) for topic in found for topic_id in topic.topic_ids),
    ):
        names.setdefault(topic_id, set()).add(name)
    adopted, refused = [], []
    for topic in found:
        if topic.name in stored and stored[topic.name] is None:
            continue  # it cannot be read
        known = None if topic.name in made_again else stored.get(topic.name)
        topic_ids = {*topic.topic_ids, *([] if known is None else [known.topic_id])} - {NO_TOPIC_ID}
        others = sorted(set().union(*(names[topic_id] for topic_id in topic_ids)) - {topic.name})
        if len(topic_ids) > 1:
            refused.append(_of_several_topics(logs, topic, known))
        elif others:
            refused.append(_is_a_copy(logs, topic.name, others))
        elif _lacks_too_many(there := {*topic.partitions, *({} if known is None else known.partitions)}):
            path = logs.path_of(TopicPartition(topic.name, topic.partitions[-1]))
            refused.append(
                f"{topic.name} is not adopted: only {len(there)} of partitions 0 to {max(there)} are there. Move "
                f"{path} away, if that is none of them; or put the others there, and start again"
            )
        elif known is None or not known.partitions.keys() >= set(topic.partitions):
            adopted.append(_adopted(logs, topic, known, config, replaces=topic.name in made_again))
    return adopted, refused


def _lacks_too_many(there: Collection[int]) -> bool:
    """True if the numbers are hardly those of a topic's partitions: `orders-20241130` is named by its date."""
    missing = max(there) + 1 - len(there)
    return missing > _FEW_MISSING and missing > min(_MOST_MISSING, _MOST_MISSING_FOR_EACH * len(there))


def _of_several_topics(logs: LogManager, found: TopicOnDisk, known: Topic | None) -> str:
    partitions = [TopicPartition(found.name, number) for number in found.partitions]
    first = {logs.topic_id(tp): logs.path_of(tp) for tp in reversed(partitions)}
    places = ", ".join(sorted(f"{first[topic_id]} with id {id_text(topic_id)}" for topic_id in found.topic_ids))
    stored = "" if known is None else f"; that of the metadata store has {id_text(known.topic_id)}"
    return (
        f"{found.name} is not adopted: its partitions are of several topics of that name: {places}{stored}. Move those "
        "away that you do not need, and start again"
    )


def _is_a_copy(logs: LogManager, name: str, others: Sequence[str]) -> str:
    """`others` are topics with the same id: `orders-0-2024`, a copy of `orders-0`, would be one named `orders-0`."""
    first = {tp.topic: tp for tp in sorted((*logs.logs, *logs.broken), reverse=True)}
    places = [logs.path_of(first[each]) if each in first else f"topic {each} in the metadata store" for each in others]
    return (
        f"{name} is not adopted: {logs.path_of(first[name])} has the same topic id as {some(places)}. Move away the "
        "one that is the copy, and start again"
    )


def _tell_of_adopted(topics: Sequence[AdoptedTopic]) -> None:
    partitions = sum(len(topic.latest_epochs) for topic in topics)
    log.info(
        "adopted %d topics with %d partitions found in the log directories; Kafka's ZooKeeper does not hear of topics "
        "that are made from now on: docs/migrate.md has the way back",
        len(topics),
        partitions,
    )
    made_again = [topic.name for topic in topics if topic.replaces]
    if made_again:
        log.warning(
            "these were deleted and made again while kafkad did not run: the topics in the log directories take the "
            "place of those that the metadata store knew, with their settings and what groups have committed: %s",
            some(made_again),
        )
    if any(not topic.stored and not topic.replaces for topic in topics):
        log.warning(
            "the log directories do not hold the settings of adopted topics, which have the defaults until they are "
            "set; nor ACLs, SCRAM users, quotas, dynamic settings of brokers and delegation tokens"
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
            log.warning("%s: partitions %s were not on disk; they are created empty", topic.name, some(topic.missing))


def _assigned(stored: Mapping[str, Topic | None], gone: Collection[str], broker: int) -> set[TopicPartition]:
    """The partitions that `broker` has by the store, but for those of topics that are `gone`."""
    return {
        TopicPartition(name, number)
        for name, topic in stored.items()
        if topic is not None and name not in gone
        for number, assignment in topic.partitions.items()
        if broker in assignment.replicas
    }


def _tell_of_lost(lost: Sequence[TopicPartition]) -> None:
    """A lost directory must not delete a topic; but a Kafka may have deleted it, whose metadata kafkad does not see."""
    if lost:
        log.warning(
            "%d partitions that the metadata store knows are in none of the log directories, and are created empty; "
            "topics that were deleted while kafkad did not run have to be deleted here, too: %s",
            len(lost),
            some(lost),
        )


async def pass_over_known_producers(store: MetaStore, broker: int, logs: LogManager) -> None:
    """An older copy of the metadata store may have been put back."""

    def known(first: int, last: int) -> bool:
        return any(log.producers.knows_any(first, last) for log in logs.logs.values())

    try:
        are_passed_over = await pass_over_known(store, broker, logs.clock.now_ms(), known)
    except Unreadable as error:
        log.error("no producer ids are given out until %s is mended: it %s", error.path, error)
        return
    if are_passed_over:
        log.warning(
            "the log directories know producer ids that the metadata store was to give out: they are passed over"
        )


def _adopted(
    logs: LogManager, found: TopicOnDisk, stored: Topic | None, config: Config, *, replaces: bool
) -> AdoptedTopic:
    known = {} if stored is None else stored.partitions
    new = [TopicPartition(found.name, partition) for partition in found.partitions if partition not in known]
    held = [each for tp in new if (each := logs.get(tp)) is not None]
    topic_ids = found.topic_ids if stored is None else (stored.topic_id,)
    return AdoptedTopic(
        name=found.name,
        topic_id=topic_ids[0] if topic_ids else NO_TOPIC_ID,
        latest_epochs={tp.partition: logs.latest_epoch(tp) for tp in new},
        configs=_configs(found.name, held, config, logs.clock.now_ms(), replaces=replaces) if stored is None else {},
        stored=known,
        replaces=replaces,
    )


def _configs(name: str, held: list[Log], config: Config, now_ms: int, *, replaces: bool) -> Mapping[str, str]:
    if name in INTERNAL_TOPICS:
        if replaces:
            return {}
        configs = internal_topic(name, config, brokers=1).configs
        return {setting: value for setting, value in configs.items() if value is not None}
    compacted = any(log.cleaned_until is not None and not log.config.compacted for log in held)
    if compacted or any(outlives_retention(log, now_ms) for log in held):
        return _KEEP_ALL
    return {}
