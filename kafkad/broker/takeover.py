"""What the log directories hold and the metadata store does not know becomes ours, and what could not is said.

A stopped Kafka has left it, or has written it since; or an older copy of the store was put back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafkad.broker.identity import StartError, known_directories
from kafkad.broker.stored_topics import StoredTopics
from kafkad.cluster.metadata import MetadataCache
from kafkad.config import Config
from kafkad.controller.adoption import AdoptedTopic, adopt, has_topics, is_new, lead_no_earlier
from kafkad.controller.internal_topics import internal_topic
from kafkad.controller.producer_ids import pass_over_known
from kafkad.log.checkpoint import META_PROPERTIES, PARTITION_METADATA
from kafkad.log.damage import Damage
from kafkad.log.deletion import outlives_retention
from kafkad.log.directories import LogDirectory
from kafkad.log.log import Log
from kafkad.log.manager import LogManager, TopicOnDisk
from kafkad.meta.security_znodes import Acls
from kafkad.meta.store import MetaStore, Unreadable
from kafkad.meta.znodes import Partition, Topic, TopicDeletion
from kafkad.names import INTERNAL_TOPICS, NO_TOPIC_ID, TopicId, TopicPartition, id_text, is_another_topic, some

log = logging.getLogger(__name__)

_FEW_MISSING, _MOST_MISSING, _MOST_MISSING_FOR_EACH = 100, 3_000, 10
_KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}


async def refuse_partial_adoption(
    store: MetaStore, cluster_id: str, broker: int, directories: Sequence[LogDirectory], metadata_dir: str
) -> None:
    """StartError where partitions would be adopted while others of them may be out of sight, or with deleted ones.
    ForeignDirectoryError where a directory is another's.

    To be called before the directories are claimed, which would make new ones of those that are not mounted. A topic is
    not deleted while a directory of this broker is offline; of others nothing is known. An earlier kafkad has let any
    directory in: of those that it has left only the one with the store has been there all the time.
    """
    known = await known_directories(store, broker)
    sound = [each for each in directories if each.failure is None]
    for directory in sound:
        directory.refuse_foreign(cluster_id, broker)
    empty = [each for each in sound if each.meta is None and not any(each.partitions())]
    if not known.paths and (empty or len(sound) < len(directories)):
        unknown = await _unknown(store, [tp for each in sound for tp in each.current_partitions()])
        _refuse_offline(directories, unknown)
        if unknown:
            raise StartError(
                f"{_to_be_adopted(unknown)}, but {empty[0]} is empty, without {META_PROPERTIES}: is its disk not "
                "mounted? Mount it and start again. If the disk is a new one, leave it out of log.dirs at this start, "
                "and add it at the next one"
            )
    if known.are_guarded:
        there_before = known.paths
    elif known.paths or await has_topics(store):
        there_before = (os.path.abspath(metadata_dir),)
    else:
        there_before = tuple(each.path for each in directories)
    for directory in sound:
        if directory.path in there_before:
            continue
        unknown = await _unknown(store, directory.current_partitions())
        if unknown:
            raise StartError(
                f"{directory} has partitions that the metadata store does not know: {some(unknown)}. They may be of "
                "topics that were deleted while it was not one of log.dirs, such as an earlier kafkad has left alone: "
                "then move them away, and start again. If the store was made without this directory, put back a copy "
                "of the store from before; or move it away, with all settings, users, ACLs and quotas in it, and start "
                "with all of log.dirs"
            )


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
    _refuse_offline(logs.directories, adopting)
    _refuse_unopened(logs, adopting)
    if refused and await is_new(store):
        raise StartError("; ".join(refused))
    for reason in refused:
        log.error("%s", reason)
    if await _would_be_open(store, config, adopting):
        what = (
            f"{_to_be_adopted(adopting)}, without the ACLs of their cluster: with allow.everyone.if.no.acl.found=true"
        )
        if not stored:
            raise StartError(
                f"{what} everybody could do everything with them. Start once with --set "
                "allow.everyone.if.no.acl.found=false, when only super.users may do anything, and add the ACLs (kctl "
                "acls add) if there were any"
            )
        log.warning("%s everybody can do everything with them now", what)
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


async def _unknown(store: MetaStore, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of which the store knows nothing."""
    here = list(partitions)
    nodes = await store.get_many([Partition.path(*tp) for tp in here])
    return sorted(tp for tp, node in zip(here, nodes, strict=True) if node is None)


def _refuse_offline(directories: Iterable[LogDirectory], unknown: Sequence[TopicPartition]) -> None:
    """StartError if there is something to be adopted, and a directory that cannot be looked into."""
    failure = next((each.failure for each in directories if each.failure is not None), None)
    if unknown and failure is not None:
        raise StartError(
            f"{_to_be_adopted(unknown)}, but a log directory cannot be used, where more of them may be: {failure}. "
            "Mend that and start again. To go on without what is in there, leave it out of log.dirs"
        )


def _refuse_unopened(logs: LogManager, unknown: Sequence[TopicPartition]) -> None:
    """StartError if one that is to be adopted could not be opened for now: its topic's id may not have been read."""
    broken = logs.broken
    for tp in unknown:
        if tp in broken and broken[tp].may_pass:
            raise StartError(
                f"{_to_be_adopted(unknown)}, but {broken[tp].path} cannot be opened now: {broken[tp].reason}. "
                "Make room, or allow more open files, and start again"
            )


async def _would_be_open(store: MetaStore, config: Config, unknown: Sequence[TopicPartition]) -> bool:
    """True if everybody could do everything with what is adopted, since the ACLs about it are left behind."""
    if not unknown or not config.str("authorizer.class.name"):
        return False
    if config.str("allow.everyone.if.no.acl.found").lower() != "true":
        return False
    parents = [f"{parent}/{kind}" for parent in Acls.PARENTS for kind in Acls.RESOURCE_TYPES]
    return not any([await store.children(parent) for parent in parents])


def _to_be_adopted(unknown: Sequence[TopicPartition]) -> str:
    return f"the metadata store does not know these partitions, which are to be adopted: {some(unknown)}"


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


def tell_of_mended(logs: LogManager) -> None:
    if logs.mended:
        log.warning(
            "a crash had left %d partitions without a topic id; it was taken from the metadata store and written to %s",
            len(logs.mended),
            some(logs.mended),
        )


def tell_of_foreign(logs: LogManager) -> None:
    if logs.foreign:
        log.warning(
            "these directories have names as of partitions, and hold none: they have neither %s nor a segment, or no "
            "topic can be named so. They are left alone; move them out of the log directories: %s",
            PARTITION_METADATA,
            some(logs.foreign),
        )


def tell_of_kraft(logs: LogManager) -> None:
    left = [path for directory in logs.live if (path := directory.kraft_metadata) is not None]
    if left:
        log.warning(
            "a migration to KRaft that was rolled back has left these, for %s is of a Kafka with ZooKeeper. They are "
            "left alone; move them out of the log directories: %s",
            META_PROPERTIES,
            some(left),
        )


def tell_of_offline(directory: LogDirectory, lost: list[TopicPartition]) -> None:
    """Logs a directory that cannot be used at the start; the replica manager logs later failures."""
    log.error("%s; %s is offline until the broker restarts", directory.failure, directory.path)


def tell_of_damage(tp: TopicPartition, damage: Damage) -> None:
    log.log(logging.WARNING if damage.was_cut else logging.ERROR, "%s", damage.text(tp))


def tell_of_kept(path: str, names: Sequence[str]) -> None:
    log.warning(
        "%s stays, for it holds what is of no partition: %s. Move that away, or the directory; a start removes what is "
        "left of it",
        path,
        some(names),
    )


def tell_of_strays(logs: LogManager, metadata: MetadataCache, broker: int) -> None:
    """Names partitions on disk that are not this broker's in the cluster. They are left alone: they may be the only
    copy."""
    strays = sorted(
        log.directory for tp, log in logs.logs.items() if not metadata.has_replica(tp, broker, log.topic_id)
    )
    if strays:
        log.warning("the cluster has no replica here for %s; these directories are left alone", some(strays))


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
