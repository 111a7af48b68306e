"""What ends a start that would adopt partitions which the metadata store does not know: others of them may be out of
sight, they may be of topics that were deleted, or everybody could do everything with them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence

from kafkad.broker.identity import StartError, known_directories
from kafkad.config import Config
from kafkad.controller.adoption import has_topics
from kafkad.log.checkpoint import META_PROPERTIES
from kafkad.log.directories import LogDirectory
from kafkad.log.manager import LogManager
from kafkad.meta.security_znodes import Acls
from kafkad.meta.store import MetaStore
from kafkad.meta.znodes import Partition
from kafkad.names import TopicPartition, some

log = logging.getLogger(__name__)


async def refuse_partial_adoption(
    store: MetaStore, cluster_id: str, broker: int, directories: Sequence[LogDirectory], metadata_dir: str
) -> None:
    """StartError where partitions would be adopted while others of them may be out of sight, or with deleted ones.
    ForeignDirectoryError where a directory is another's.

    To be called before the directories are claimed, which would make new ones of those that are not mounted. A topic is
    not deleted while a directory of this broker is offline; of others nothing is known. An earlier kafkad has let any
    directory in: of those that it has left only the one with the store has been there all the time.
    """
    known, _ = await known_directories(store, broker)
    sound = [each for each in directories if each.failure is None]
    for directory in sound:
        directory.refuse_foreign(cluster_id, broker)
    empty = [each for each in sound if each.meta is None and not any(each.partitions())]
    if not known.paths and (empty or len(sound) < len(directories)):
        unknown = await _unknown(store, [tp for each in sound for tp in each.current_partitions()])
        refuse_offline(directories, unknown)
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


def refuse_offline(directories: Iterable[LogDirectory], unknown: Sequence[TopicPartition]) -> None:
    """StartError if there is something to be adopted, and a directory that cannot be looked into."""
    failure = next((each.failure for each in directories if each.failure is not None), None)
    if unknown and failure is not None:
        raise StartError(
            f"{_to_be_adopted(unknown)}, but a log directory cannot be used, where more of them may be: {failure}. "
            "Mend that and start again. To go on without what is in there, leave it out of log.dirs"
        )


def refuse_unopened(logs: LogManager, unknown: Sequence[TopicPartition]) -> None:
    """StartError if one that is to be adopted could not be opened for now: its topic's id may not have been read."""
    broken = logs.broken
    for tp in unknown:
        if tp in broken and broken[tp].may_pass:
            raise StartError(
                f"{_to_be_adopted(unknown)}, but {broken[tp].path} cannot be opened now: {broken[tp].reason}. "
                "Make room, or allow more open files, and start again"
            )


async def refuse_without_acls(
    store: MetaStore, config: Config, adopting: Sequence[TopicPartition], *, knows_topics: bool
) -> None:
    """StartError where everybody could do everything with what is adopted; a warning if the store `knows_topics`, and
    has been in use without ACLs."""
    if not await _would_be_open(store, config, adopting):
        return
    what = f"{_to_be_adopted(adopting)}, without the ACLs of their cluster: with allow.everyone.if.no.acl.found=true"
    if not knows_topics:
        raise StartError(
            f"{what} everybody could do everything with them. Start once with --set "
            "allow.everyone.if.no.acl.found=false, when only super.users may do anything, and add the ACLs (kctl "
            "acls add) if there were any"
        )
    log.warning("%s everybody can do everything with them now", what)


async def _unknown(store: MetaStore, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of which the store knows nothing."""
    here = list(partitions)
    nodes = await store.get_many([Partition.path(*tp) for tp in here])
    return sorted(tp for tp, node in zip(here, nodes, strict=True) if node is None)


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
