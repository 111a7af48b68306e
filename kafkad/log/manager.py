"""All logs of a broker, in one or several log directories.

Life: `lock` → `claim` → `load` → … → `close`. Owned by the event loop, except for what says that it may run in a
thread. A log directory whose disk fails goes offline with its logs, and the rest goes on; `on_failure` hears of it.
A partition that cannot be opened is left as it is, reported in `broken`, and cannot be made anew.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter

from kafkad.clock import Clock
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.checkpoint import (
    HIGH_WATERMARKS,
    META_PROPERTIES,
    PARTITION_METADATA,
    CheckpointError,
    read_topic_id,
)
from kafkad.log.damage import Damage, Damages
from kafkad.log.deletion import delete_old_segments
from kafkad.log.directories import BrokenPartition, CheckpointWrite, LogDirectory, NameTakenError
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files, as_far_as_there_is_room, may_pass
from kafkad.log.loading import ConfigFor, IdOf, Loader, LoadingProgress, open_log, put_away
from kafkad.log.log import Log
from kafkad.log.names import current_name, parse_name
from kafkad.log.producers import DEFAULT_EXPIRATION_MS
from kafkad.log.removal import DueRemoval, OnKept, Removal
from kafkad.log.retention import MOST_AT_ONCE, Deletion
from kafkad.log.settling import Writes
from kafkad.model import NO_EPOCH
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition, id_text, is_another_topic
from kafkad.turns import Pieces, at_once

MOST_DELETED = 10_000
_FLUSH_THREADS = 4
_MOST_PREFERRED = 10_000
"""Partitions that may never come: the wish that is oldest is forgotten first."""

OnFailure = Callable[[LogDirectory, list[TopicPartition]], None]
OnDamage = Callable[[TopicPartition, Damage], None]
OnDeleted = Callable[[TopicPartition, Deletion], None]


class NoLogDirectoryError(Exception):
    """Not one log directory can be used: there is nothing left that a broker could do."""


class LogManager:
    def __init__(
        self,
        paths: Sequence[str],
        files: Files,
        clock: Clock,
        *,
        on_failure: OnFailure = lambda directory, lost: None,
        on_damage: OnDamage = lambda tp, damage: None,
        on_deleted: OnDeleted = lambda tp, deletion: None,
        on_kept: OnKept = lambda path, names: None,
        producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
    ) -> None:
        """`paths` is `log.dirs`; a path that is there twice counts once."""
        self.directories = [LogDirectory(path, files) for path in dict.fromkeys(map(os.path.abspath, paths))]
        self.logs: dict[TopicPartition, Log] = {}
        self.removal = Removal(files, on_kept)
        self.strays: list[str] = []
        self.foreign: list[str] = []
        self.mended: list[str] = []
        self.on_failure = on_failure
        self.on_damage = on_damage
        self._on_deleted = on_deleted
        self.damages = Damages()
        self.in_pieces: Callable[[Pieces[None]], object] = at_once
        """Called with work of a log that may go on in later turns; it may raise StorageError."""
        self._producer_expiration_ms = producer_expiration_ms
        self.cut: dict[Log, None] = {}
        """Logs that were cut back, of which the disk may still have what was cut off, or a checkpoint say so."""
        self.files = files
        self.clock = clock
        self._directory_of: dict[TopicPartition, LogDirectory] = {}
        self._deleted: set[TopicPartition] = set()
        self._deleted_many = False
        """More than are remembered: any new partition may have had a predecessor of its name."""
        self._preferred: dict[TopicPartition, str] = {}

    # --- start

    def lock(self) -> None:
        """Take possession of every directory. DirectoryLockedError; ForeignDirectoryError for one of a Kafka in KRaft
        mode; NoLogDirectoryError if none can be used."""
        for directory in self.directories:
            try:
                directory.acquire()
            except (StorageError, CheckpointError) as error:
                self._take_offline(directory, str(error))
        self._need_one()

    def identity(self) -> tuple[str | None, int | None]:
        """The cluster id and broker id that the directories were used with; None where they do not say."""
        metas = [directory.meta for directory in self.live if directory.meta is not None]
        broker_ids = (meta.broker_id for meta in metas if meta.broker_id is not None)
        cluster_id, _ = self._cluster_id_and_directory()
        return cluster_id, next(broker_ids, None)

    def file_with_cluster_id(self) -> str:
        """The one that `identity` has the cluster id from."""
        _, directory = self._cluster_id_and_directory()
        return os.path.join(directory, META_PROPERTIES)

    def _cluster_id_and_directory(self) -> tuple[str | None, str]:
        for directory in self.live:
            if directory.meta is not None and directory.meta.cluster_id is not None:
                return directory.meta.cluster_id, directory.path
        return None, ""

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """Write into directories whose they are, where they do not say it. ForeignDirectoryError for those of another
        cluster or broker."""
        for directory in self.live:
            try:
                directory.claim(cluster_id, broker_id, self.clock.now_ms())
            except StorageError as error:
                self._take_offline(directory, str(error))
        self._need_one()

    def unused(self) -> list[LogDirectory]:
        """The log directories that are new."""
        found = []
        for directory in self.live:
            with self.guarded():
                if directory.is_unused:
                    found.append(directory)
        return found

    def take_into_use(self, directories: Iterable[LogDirectory]) -> None:
        """They are `unused` no more."""
        for directory in directories:
            with self.guarded():
                directory.take_into_use()

    def refuse_unmounted(self, known: Collection[str], cluster_id: str, broker_id: int) -> None:
        """Take offline those of `known`, the directories of before, that are empty now: what was in them is elsewhere.

        To be called before `claim`, which would make new ones of them. For a disk that is new, the reason has the
        command that makes it the broker's.
        """
        lines = ("version=0", f"broker.id={broker_id}", f"cluster.id={cluster_id}")
        echoes = "; ".join(f"echo {shlex.quote(line)}" for line in lines)
        for directory in self.live:
            if directory.meta is None and directory.path in known and not any(directory.partitions()):
                meta = shlex.quote(os.path.join(directory.path, META_PROPERTIES))
                self._take_offline(
                    directory,
                    f"log directory {directory.path} was this broker's, and is empty now, without "
                    f"{META_PROPERTIES}: is its disk not mounted? Mount it and start again. If the disk is a new one, "
                    f"its partitions begin empty after: ({echoes}) > {meta}",
                )
        self._need_one()

    def load(
        self,
        config_for: ConfigFor,
        progress: Callable[[LoadingProgress], None] | None = None,
        id_of: IdOf = lambda topic_partition: NO_TOPIC_ID,
    ) -> None:
        """Open every log. DuplicatePartitionError; NoLogDirectoryError if no directory is left; LoadingStopped from
        `progress`.

        `id_of` a partition is its topic's by the metadata store, or NO_TOPIC_ID for a partition that this does not
        have: where a crash left no `partition.metadata`, or half of one, it is mended with that (`mended` says where).
        """
        loader = Loader(
            self.live,
            self.files,
            self.clock,
            producer_expiration_ms=self._producer_expiration_ms,
            on_failure=self._take_offline,
            progress=progress,
            id_of=id_of,
        )
        loader.load(config_for)
        self.strays = loader.strays
        self.foreign = loader.foreign
        self.mended = loader.mended
        for path in loader.deleted:
            self._remove_later(path, config_for)
        for directory in self.live:
            for topic_partition, log in directory.logs.items():
                self.adopt(topic_partition, log, directory)
            for log in directory.futures.values():
                self.watch_future(log)
        for topic_partition in [tp for directory in self.live for tp in directory.futures]:
            place = self._directory_of.get(topic_partition)
            if place is not None:
                with self.guarded():
                    self._give_up_copies(topic_partition, place, self.logs[topic_partition].topic_id)
        self._need_one()

    def _remove_later(self, path: str, config_for: ConfigFor) -> None:
        """Directories deleted before the start are removed when due, too: their deletion renamed them."""
        name = parse_name(os.path.basename(path))
        assert name is not None
        now_ms = self.clock.now_ms()
        deleted_ms = now_ms
        with contextlib.suppress(OSError):
            deleted_ms = min(self.files.changed_ms(path), now_ms)
        self.removal.add(path, deleted_ms + config_for(name.topic_partition.topic).file_delete_delay_ms)

    def adopt(self, topic_partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Take in an open log of `directory` as the one of its partition."""
        log.producers.expiration_ms = self._producer_expiration_ms
        log.on_damage = self._damaged
        log.on_deleted = self._on_deleted
        log.in_pieces = self._work_in_pieces
        self._watch_cuts(log)
        log.on_cut = self._cut_back
        for damage in log.found:
            self._damaged(topic_partition, damage)
        directory.logs[topic_partition] = log
        self.logs[topic_partition] = log
        self._directory_of[topic_partition] = directory
        self._preferred.pop(topic_partition, None)

    def _damaged(self, topic_partition: TopicPartition, damage: Damage) -> None:
        """Tell of a place once."""
        if self.damages.add(topic_partition, damage):
            self.on_damage(topic_partition, damage)

    def _work_in_pieces(self, work: Pieces[None]) -> None:
        self.in_pieces(work)

    def watch_future(self, future: Log) -> None:
        """A copy that is being made in another directory is cut back with its replica."""
        future.producers.expiration_ms = self._producer_expiration_ms
        future.in_pieces = self._work_in_pieces
        self._watch_cuts(future)
        future.on_cut = lambda log, offset: self._note_cut(log)

    def _watch_cuts(self, log: Log) -> None:
        log.before_settling = self._before_settling
        log.on_settled = self._settled
        self._note_cut(log)

    def _cut_back(self, log: Log, offset: int) -> None:
        self.damages.cut_off(log.topic_partition, offset)
        self._note_cut(log)

    def _note_cut(self, log: Log) -> None:
        if log.cut_may_return:
            self.cut[log] = None

    def found_topics(self) -> list[TopicOnDisk]:
        """The topics in the log directories."""
        partitions: dict[str, list[int]] = {}
        ids: dict[str, set[bytes]] = {}
        for topic_partition in (*self.logs, *self.broken):
            partitions.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        for topic_partition in (*self.logs, *self.broken):
            topic_id = self.topic_id(topic_partition)
            if topic_id != NO_TOPIC_ID:
                ids.setdefault(topic_partition.topic, set()).add(topic_id)
        return [
            TopicOnDisk(name=topic, topic_ids=tuple(ids.get(topic, ())), partitions=tuple(sorted(numbers)))
            for topic, numbers in sorted(partitions.items())
        ]

    def topic_id(self, topic_partition: TopicPartition) -> TopicId:
        """That of a partition's directory, also of one that cannot be opened; NO_TOPIC_ID where it cannot be told."""
        log = self.logs.get(topic_partition)
        if log is not None:
            return log.topic_id
        for directory in self.directories:
            found = directory.broken.get(topic_partition)
            if found is not None:
                with contextlib.suppress(CheckpointError, OSError):
                    return read_topic_id(os.path.join(found.path, PARTITION_METADATA), self.files) or NO_TOPIC_ID
        return NO_TOPIC_ID

    def path_of(self, topic_partition: TopicPartition) -> str:
        """The directory of a partition that is here, also of one that cannot be opened."""
        log = self.logs.get(topic_partition)
        return self.broken[topic_partition].path if log is None else log.directory

    def latest_epoch(self, topic_partition: TopicPartition) -> int:
        """The latest leader epoch of a partition that is here, also of one that cannot be opened; NO_EPOCH for none."""
        log = self.logs.get(topic_partition)
        epochs = LeaderEpochs(self.broken[topic_partition].path, self.files) if log is None else log.epochs
        if log is None:
            with contextlib.suppress(OSError):
                epochs.load()
        return NO_EPOCH if epochs.latest is None else epochs.latest

    # --- directories

    @property
    def live(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def broken(self) -> dict[TopicPartition, BrokenPartition]:
        return {tp: found for directory in self.directories for tp, found in directory.broken.items()}

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        return self._directory_of.get(topic_partition)

    def target_of(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """The log directory that a replica is being moved to."""
        return next((directory for directory in self.live if topic_partition in directory.futures), None)

    def future(self, topic_partition: TopicPartition) -> Log | None:
        """The copy of a replica that grows there."""
        target = self.target_of(topic_partition)
        return None if target is None else target.futures[topic_partition]

    def fail(self, error: StorageError) -> None:
        """A disk said no: its directory goes offline unless it `may_pass`. NoLogDirectoryError when it was the last
        and was not offline yet."""
        if may_pass(error):
            return
        for directory in self.live:
            if directory.path == error.directory:
                try:
                    self._take_offline(directory, str(error))
                finally:
                    self._need_one()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Do something with logs; what a disk refuses costs its directory, and is not raised."""
        try:
            yield
        except StorageError as error:
            self.fail(error)

    def _take_offline(self, directory: LogDirectory, reason: str) -> None:
        directory.failure = reason
        self._preferred = {tp: path for tp, path in self._preferred.items() if path != directory.path}
        lost = list(directory.logs)
        for topic_partition in lost:
            self.logs.pop(topic_partition, None)  # while loading it is not there yet
            self._directory_of.pop(topic_partition, None)
        for log in (*directory.logs.values(), *directory.futures.values()):
            log.close(clean=False)
        directory.logs.clear()
        directory.futures.clear()
        directory.replaced.clear()
        directory.release()
        self.on_failure(directory, lost)

    def _need_one(self) -> None:
        if not self.live:
            reasons = "; ".join(directory.failure or "" for directory in self.directories)
            raise NoLogDirectoryError(f"no log directory can be used: {reasons}")

    # --- partitions

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        *,
        directory: str | None = None,
        is_new: bool = True,
    ) -> Log:
        """The log of a partition, made where there is none: in `directory`, or the one that is preferred, and no other;
        else in the one with the fewest logs, or in the next one if that is full, or its checkpoints still have a
        predecessor. Where its name is taken, it is made there once that is gone, and nowhere else meanwhile: a start
        could take that for the partition.

        Where it may exist already (not `is_new`) and a directory is offline, it may be in there: StorageError. If it is
        nowhere, it was lost, and begins empty under producers that go on counting where they were.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            self._agree_on_id(log, topic_id)
            return log
        for place in self.live:
            left = place.broken.get(topic_partition)
            if left is not None and left.may_pass:
                return self._open_after_all(place, left, topic_partition, topic_id, config)
        *others, last = self._places_for(topic_partition, directory, is_new)
        for place in others:
            try:
                return self._make(place, topic_partition, topic_id, config, is_new)
            except StorageError as error:
                if not may_pass(error):
                    raise
        return self._make(last, topic_partition, topic_id, config, is_new)

    def _make(
        self, place: LogDirectory, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, is_new: bool
    ) -> Log:
        self._give_up_copies(topic_partition, place, topic_id)
        path = os.path.join(place.path, current_name(topic_partition))
        try:
            with place.making(path, topic_partition, topic_id):
                log = open_log(
                    place, path, topic_partition, topic_id, config, self.files, self.clock, self._producer_expiration_ms
                )
        except NameTakenError:
            self.prefer(topic_partition, place.path)
            raise
        had_predecessor = self._deleted_many or topic_partition in self._deleted
        if had_predecessor or not is_new:
            log.producers.forget_past()  # those of the topic of this name, or of what was lost, go on counting
        self.adopt(topic_partition, log, place)
        return log

    def _open_after_all(
        self,
        place: LogDirectory,
        left: BrokenPartition,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
    ) -> Log:
        """One that was there at the start, when the disk was too full to open it. StorageError if it still is."""
        path, known = left.path, None
        with contextlib.suppress(CheckpointError), place.raising(f"reading {path}"):
            known = read_topic_id(os.path.join(path, PARTITION_METADATA), self.files)
        known = known or NO_TOPIC_ID
        log = open_log(
            place, path, topic_partition, known, config, self.files, self.clock, self._producer_expiration_ms
        )
        log.last_mark = left.last_mark
        self._give_up_copies(topic_partition, place, topic_id)
        del place.broken[topic_partition]
        self.adopt(topic_partition, log, place)
        self._agree_on_id(log, topic_id)
        return log

    def _give_up_copies(self, topic_partition: TopicPartition, place: LogDirectory, topic_id: bytes) -> None:
        """Put away what a move has left that the replica in `place` can do nothing with: a copy in that directory, and
        one of an earlier topic of its name. StorageError."""
        for directory in self.live:
            future = directory.futures.get(topic_partition)
            if future is None:
                continue
            if directory is place or is_another_topic(future.topic_id, topic_id):
                self.put_away(directory, future)
                del directory.futures[topic_partition]

    def forget_predecessors(
        self, partitions: Iterable[TopicPartition]
    ) -> list[tuple[LogDirectory, Callable[[], None]]]:
        """Before partitions are created: what is to be done in threads first, for each log directory that has
        checkpoints of predecessors of their names. Until then `create` makes none of these there."""
        broken = self.broken
        new = {tp for tp in partitions if tp not in self.logs and tp not in broken}
        return [(directory, forget) for directory in self.live if (forget := directory.forgetting(new)) is not None]

    def _places_for(self, topic_partition: TopicPartition, wanted: str | None, is_new: bool) -> list[LogDirectory]:
        """The log directories for a partition: at least one, the best first. KafkaError, StorageError."""
        broken = self.broken.get(topic_partition)
        if broken is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{broken.path} cannot be opened: {broken.reason}")
        if not is_new:
            self._need_all(topic_partition)
        wanted = wanted or self.preferred(topic_partition)
        if wanted is not None:
            return [self.live_directory(wanted)]
        if not self.live:
            raise StorageError(self.directories[0].path, f"no log directory is left for {topic_partition}")
        return sorted(self.live, key=lambda directory: len(directory.logs) + len(directory.futures))

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Remember the directory in which the partition is to be created, if it ever is."""
        wanted = self.live_directory(path).path
        self._preferred.pop(topic_partition, None)
        if len(self._preferred) >= _MOST_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic_partition] = wanted

    def preferred(self, topic_partition: TopicPartition) -> str | None:
        """The directory in which alone it is to be created."""
        return self._preferred.get(topic_partition)

    def has_room(self, path: str) -> bool:
        """True if one of `log.dirs` is not offline and has some space."""
        return any(directory.path == path and directory.has_room() for directory in self.live)

    def live_directory(self, path: str) -> LogDirectory:
        """KafkaError when it is none of `log.dirs`, or offline."""
        for directory in self.directories:
            if directory.path == os.path.abspath(path):
                if directory.failure is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline: {directory.failure}")
                return directory
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not one of this broker's log directories")

    def _agree_on_id(self, log: Log, topic_id: bytes) -> None:
        """A log from before topic ids gets one; one of another topic of the same name is refused."""
        if topic_id in (log.topic_id, NO_TOPIC_ID):
            return
        if log.topic_id != NO_TOPIC_ID:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{log.directory} is of the topic with id {id_text(log.topic_id)}, not {id_text(topic_id)}",
            )
        self._directory_of[log.topic_partition].write_id(log.directory, topic_id)
        log.topic_id = topic_id

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a partition out of the broker; its files go after `file.delete.delay.ms`.

        StorageError, also if it is not here, but may be in a directory that is offline. What a disk did not let be
        renamed is still here then, and not forgotten.
        """
        log = self.logs.get(topic_partition)
        found = log is not None
        for directory in self.directories:
            self.put_away_replaced(directory, topic_partition)
            future = directory.futures.get(topic_partition)
            if future is not None:
                self.put_away(directory, future)
                del directory.futures[topic_partition]
            broken = directory.broken.get(topic_partition)
            if broken is not None:
                found = True
                due_ms = self.clock.now_ms() + LogConfig().file_delete_delay_ms
                self.removal.add(put_away(directory, broken.path, topic_partition, self.files), due_ms)
                del directory.broken[topic_partition]
        if not found:
            self._need_all(topic_partition)
        if log is not None:
            directory = self._directory_of[topic_partition]
            self.put_away(directory, log)
            del self.logs[topic_partition], self._directory_of[topic_partition], directory.logs[topic_partition]
            self._note_deleted(topic_partition)
        self.damages.forget(topic_partition)

    def _need_all(self, topic_partition: TopicPartition) -> None:
        """StorageError if there is a directory that cannot be looked into for a partition."""
        offline = [directory for directory in self.directories if directory.failure is not None]
        if offline:
            raise StorageError(offline[0].path, f"{topic_partition} may be in {offline[0].path}, which is offline")

    def _note_deleted(self, topic_partition: TopicPartition) -> None:
        self._deleted.add(topic_partition)
        if len(self._deleted) > MOST_DELETED:
            self._deleted.clear()
            self._deleted_many = True

    def put_away(self, directory: LogDirectory, log: Log) -> None:
        """Close a log that is no longer anybody's and have its files removed later. After a StorageError all is as it
        was."""
        path = put_away(directory, log.directory, log.topic_partition, self.files)
        log.retired = True
        log.close(clean=False)
        self.removal.add(path, self.clock.now_ms() + log.config.file_delete_delay_ms)

    def put_away_replaced(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Put away the replica there that a move has replaced, if it is still there. StorageError."""
        log = directory.replaced.get(topic_partition)
        if log is not None:
            self.put_away(directory, log)
            del directory.replaced[topic_partition]

    # --- passes: each step does one log, so that the caller can do other things in between

    def retention_pass(
        self, high_watermark: Callable[[TopicPartition], int], on_refusal: Callable[[StorageError], None]
    ) -> Iterator[int]:
        """Delete what retention no longer keeps of the logs that are not being compacted, and the same of their copies,
        some segments at a time; yields how many. What a disk refuses goes to `on_refusal`, and the other logs are done
        all the same."""
        for topic_partition in list(self.logs):
            yield from _until_few_are_deleted(partial(self._retain, high_watermark, topic_partition), on_refusal)
            yield from _until_few_are_deleted(partial(self._retain_in_copy, topic_partition), on_refusal)

    def _retain(self, high_watermark: Callable[[TopicPartition], int], topic_partition: TopicPartition) -> int | None:
        log = self.logs.get(topic_partition)
        if log is None or log.compacting:
            return None
        return delete_old_segments(log, self.clock.now_ms(), high_watermark(topic_partition))

    def _retain_in_copy(self, topic_partition: TopicPartition) -> int | None:
        """A slow move must not need room for what its replica has not had for long."""
        log, future = self.logs.get(topic_partition), self.future(topic_partition)
        if log is None or future is None:
            return None
        future.increment_start_offset(min(log.start_offset, future.end_offset))
        return delete_old_segments(future, self.clock.now_ms(), future.start_offset)

    def _all_logs(self) -> list[Log]:
        """With the copies of those that are being moved."""
        return [log for directory in self.live for _, log in directory.all_logs()]

    def producer_expiry_pass(self) -> Iterator[int | None]:
        """Forget producers that have been silent for `producer.id.expiration.ms`; yields how many of each log, and None
        between two parts of one with very many."""
        for log in self._all_logs():
            yield (yield from log.producers.expire(self.clock.now_ms()))

    def expire_producers_after(self, producer_expiration_ms: int) -> None:
        """`producer.id.expiration.ms` was changed."""
        self._producer_expiration_ms = producer_expiration_ms
        for log in self._all_logs():
            log.producers.expiration_ms = producer_expiration_ms

    def flush_pass(self, directory: LogDirectory) -> Iterator[Log | None]:
        """Yields those that `flush.messages`, `flush.ms` or a rolled segment want on the disk (see `Log.start_flush`),
        and None for each of the others."""
        for log in [log for _, log in directory.all_logs()]:
            yield log if directory.holds(log) and log.needs_flush(self.clock.now_ms()) else None

    def due_removals(self, directory: LogDirectory) -> list[DueRemoval]:
        """Files and directories whose time has come; `removal.remove` each, in a thread."""
        now_ms = self.clock.now_ms()
        due = self.removal.due_in(directory.path, now_ms)
        for _, log in directory.all_logs():
            due += log.doomed.due(now_ms)
        return due

    # --- checkpoints: collected on the loop, written in a thread

    def collect_recovery_points(self) -> Iterator[CheckpointWrite]:
        """Of one directory after the other, each as it is when its turn comes."""
        for directory in self.live:
            yield from directory.collect_recovery_points()

    def _before_settling(self, log: Log) -> Writes | None:
        """Those of the recovery points, if they say that more of the log is on the disk than was left of it."""
        directory = next((directory for directory in self.live if directory.holds(log)), None)
        if directory is None:
            return None
        if not directory.says_too_much_of(log):
            return ()
        return [write.write for write in directory.collect_recovery_points()]

    def _settled(self, log: Log) -> None:
        self.cut.pop(log, None)

    def collect_start_offsets(self) -> Iterator[CheckpointWrite]:
        for directory in self.live:
            yield directory.collect_start_offsets()

    def collect_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> list[CheckpointWrite]:
        return [directory.collect_high_watermarks(offsets) for directory in self.live]

    def collect_cleaned_offsets(self) -> list[CheckpointWrite]:
        return [directory.collect_cleaned_offsets() for directory in self.live]

    def lost_tails(self) -> dict[TopicPartition, TopicId]:
        """Logs that do not have everything up to `promised`, with the ids of their topics."""
        return {tp: log.topic_id for tp, log in self.logs.items() if log.whole_until < self.promised(tp, log)}

    def missing(self, held: Mapping[TopicPartition, TopicId]) -> dict[TopicPartition, TopicId]:
        """Those of `held` that are in no directory; none while one is offline, for all may be in there."""
        if len(self.live) < len(self.directories):
            return {}
        here = {*self.logs, *self.broken}
        return {tp: topic_id for tp, topic_id in held.items() if tp not in here}

    def promised(self, topic_partition: TopicPartition, log: Log) -> int:
        """The end of what this log is known to have had: by its own offsets, and by the last checkpoints of what was
        committed and of what was on the disk."""
        return max(self.checkpointed_high_watermark(topic_partition), log.lost_until, log.end_offset)

    def checkpointed_high_watermark(self, topic_partition: TopicPartition) -> int:
        """The high watermark in the last checkpoint; 0 when there is none."""
        directory = self._directory_of.get(topic_partition)
        return 0 if directory is None else directory.checkpointed(HIGH_WATERMARKS, topic_partition) or 0

    # --- stop

    def finish_work_in_pieces(self) -> None:
        """Before `close`, which may run in a thread: the event loop is not to go on with it beside that."""
        for log in self._all_logs():
            with contextlib.suppress(NoLogDirectoryError), self.guarded(), as_far_as_there_is_room():
                log.producers.finish_snapshot()

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Leave every directory as Kafka leaves it after a clean stop. Waits for the disks."""
        if high_watermarks is not None:
            self._write(self.collect_high_watermarks(high_watermarks))
        self.files.close_none()
        closed = set()
        for directory in self.live:
            with contextlib.suppress(NoLogDirectoryError), self.guarded():
                _close_all([log for _, log in directory.all_logs()])
                closed.add(directory)
        self._write(self.collect_start_offsets())
        self._write(self.collect_cleaned_offsets())
        self._write(self.collect_recovery_points())
        for directory in self.live:
            if directory in closed and not directory.broken and not any(log.damage for log in directory.logs.values()):
                with contextlib.suppress(NoLogDirectoryError), self.guarded():
                    directory.describe_stopped()
                    directory.mark_clean()
        self.logs.clear()
        for directory in self.directories:
            directory.release()

    def _write(self, writes: Iterable[CheckpointWrite]) -> None:
        """Those of one directory one after the other: none behind one that its disk refuses."""
        for _, of_one in groupby(writes, attrgetter("directory")):
            with contextlib.suppress(NoLogDirectoryError), self.guarded():
                for write in of_one:
                    write.write()


@dataclass(frozen=True, kw_only=True)
class TopicOnDisk:
    """A topic found in the log directories. Several ids are a contradiction; none means it is older than topic ids."""

    name: str
    topic_ids: tuple[bytes, ...]
    partitions: tuple[int, ...]

    @property
    def partition_count(self) -> int:
        return self.partitions[-1] + 1

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(sorted(set(range(self.partition_count)).difference(self.partitions)))


def _close_all(logs: Sequence[Log]) -> None:
    """Some side by side, for each waits for its disk."""
    from concurrent.futures import ThreadPoolExecutor  # the start does not need it

    try:
        with ThreadPoolExecutor(_FLUSH_THREADS) as threads:
            list(threads.map(Log.close, logs))
    except RuntimeError:  # there is no thread to be had: what is closed already has nothing left to do
        for log in logs:
            log.close()


def _until_few_are_deleted(
    delete: Callable[[], int | None], on_refusal: Callable[[StorageError], None]
) -> Iterator[int]:
    """`delete` returns how many segments it has, or None where there is nothing to look at."""
    deleted: int | None = MOST_AT_ONCE
    while deleted == MOST_AT_ONCE:
        try:
            deleted = delete()
        except StorageError as error:
            on_refusal(error)
            deleted = 0
        if deleted is not None:
            yield deleted
