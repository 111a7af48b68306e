"""What people are told of the log directories: what is damaged, lost, mended, deleted, or of no use to this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import chain, islice

from kafkad.cluster.metadata import MetadataCache
from kafkad.log.checkpoint import META_PROPERTIES, PARTITION_METADATA
from kafkad.log.damage import Damage
from kafkad.log.directories import LogDirectory
from kafkad.log.manager import LogManager
from kafkad.log.retention import Deletion
from kafkad.loggers import Later
from kafkad.names import TopicPartition, some

log = logging.getLogger(__name__)

_TOGETHER_MS = 1_000
_NAMED = 20


class Deletions:
    """Tells of segments that are no longer kept. Of all that go within a second there is a line for each partition,
    twenty at most, and one that counts the others: thousands may lose some in one pass of retention."""

    def __init__(self, monotonic_ms: Callable[[], float], later: Later) -> None:
        self._monotonic_ms = monotonic_ms
        self._later = later
        self._untold: dict[TopicPartition, Deletion] = {}

    def note(self, tp: TopicPartition, deletion: Deletion) -> None:
        if not self._untold:
            self._later(self._monotonic_ms() + _TOGETHER_MS, self.tell)
        before = self._untold.get(tp)
        self._untold[tp] = deletion if before is None else before.followed_by(deletion)

    def tell(self) -> None:
        """Of what is known by now; a broker that stops does not wait for more."""
        untold, self._untold = self._untold, {}
        for tp, one in islice(untold.items(), _NAMED):
            log.info(
                "%s: deleted offsets %d to %d, %d segments with %d bytes, by %s",
                *(tp, one.first, one.end - 1, one.segments, one.size, some(one.reasons)),
            )
        others = list(untold.values())[_NAMED:]
        if others:
            reasons = dict.fromkeys(chain.from_iterable(other.reasons for other in others))
            log.info(
                "deleted %d segments of %d more partitions, with %d bytes, by %s",
                *(sum(other.segments for other in others), len(others)),
                *(sum(other.size for other in others), some(list(reasons))),
            )


def tell_of_mended(logs: LogManager) -> None:
    if logs.mended:
        log.warning(
            "%d partitions had no topic id that can be read, as Kafkas before 2.8, crashes and copies by hand may "
            "leave them; it was taken from the metadata store and written to %s",
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
