"""Finding the partitions of the log directories at start, and opening their logs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.config import LogConfig
from kafkad.errors import KafkaError, StorageError
from kafkad.log import checkpoint, clean_stop, marks
from kafkad.log.batches import BadBatch
from kafkad.log.checkpoint import (
    CLEANED_OFFSETS,
    DAMAGED_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
)
from kafkad.log.directories import BrokenPartition, FoundPartition, LogDirectory
from kafkad.log.duplicates import Place, settle
from kafkad.log.files import Files, may_pass
from kafkad.log.log import Log
from kafkad.log.names import Kind, deleted_name
from kafkad.log.partition_files import is_of_kafka
from kafkad.names import NO_TOPIC_ID, TopicId, TopicPartition

ConfigFor = Callable[[str], LogConfig]
IdOf = Callable[[TopicPartition], TopicId]


class LoadingStopped(Exception):
    """The broker was told to stop while its logs were loaded. Raised by the caller's `progress`."""


class LoadingProgress(NamedTuple):
    """`recovered` counts the bytes checked after an unclean stop; `recovering` is the partition being checked."""

    directory: str
    done: int
    total: int
    recovered: int
    recovering: TopicPartition | None = None


class Loader:
    """Fills the LogDirectories; one that fails is handed to `on_failure` and the others go on.

    `progress` hears of every partition, and may end all of it by LoadingStopped.
    """

    def __init__(
        self,
        directories: Iterable[LogDirectory],
        files: Files,
        clock: Clock,
        *,
        producer_expiration_ms: int,
        on_failure: Callable[[LogDirectory, str], None],
        progress: Callable[[LoadingProgress], None] | None = None,
        id_of: IdOf,
    ) -> None:
        self._directories = directories
        self._files = files
        self._clock = clock
        self._producer_expiration_ms = producer_expiration_ms
        self._on_failure = on_failure
        self._progress = progress
        self._id_of = id_of
        self._last_marks: dict[TopicPartition, int] = {}
        """The highest of those by which replicas were replaced that go."""
        self._recovered = 0
        self._recovered_in: set[LogDirectory] = set()
        self.deleted: list[str] = []
        self.strays: list[str] = []
        self.foreign: list[str] = []
        """Directories with names of partitions, and none in them."""
        self.mended: list[str] = []

    def load(self, config_for: ConfigFor) -> None:
        """DuplicatePartitionError before anything was touched; LoadingStopped after the directories are left as they
        were found."""
        found = {}
        for directory in self._directories:
            with self._failing(directory):
                directory.read_checkpoints()
                found[directory] = list(directory.partitions())
        self._settle_duplicates(found)
        try:
            for directory, partitions in found.items():
                if directory.failure is not None:
                    continue
                with self._failing(directory):
                    directory.take_clean_marker()
                    self._open_all(directory, partitions, config_for)
                    self._vouch_for_names(directory)
        except LoadingStopped:
            self._give_back_clean_markers(found)
            raise
        for directory in found:
            directory.stopped = {}

    def _vouch_for_names(self, directory: LogDirectory) -> None:
        """One fsync for the names of all partitions, some of which a crash may have found in memory only."""
        if not directory.was_clean:
            directory.sync_names()
        for _, log in directory.all_logs():
            log.durability.placed = True

    def _give_back_clean_markers(self, directories: Iterable[LogDirectory]) -> None:
        """Loading has changed nothing in a clean directory, unless something in it had to be recovered after all."""
        for directory in directories:
            if directory.was_clean and directory.failure is None and directory not in self._recovered_in:
                with self._failing(directory):
                    directory.mark_clean()

    @contextlib.contextmanager
    def _failing(self, directory: LogDirectory) -> Iterator[None]:
        try:
            yield
        except (StorageError, checkpoint.CheckpointError) as error:
            self._on_failure(directory, str(error))

    def _settle_duplicates(self, found: dict[LogDirectory, list[FoundPartition]]) -> None:
        """What moves have replaced goes, and so does what is left over of copies. Somebody's own is left alone."""
        replaced, left_over = settle(found, self._files)
        for place in left_over:
            found[place.directory].remove(place.found)
            self._leave_out(place)
        for place in replaced:
            found[place.directory].remove(place.found)
            self._replace(place)

    def _leave_out(self, place: Place) -> None:
        """Put it away if it has no files but those of Kafka and kafkad, and the disk lets that be done."""
        tp, path = place.found.name.topic_partition, place.found.path
        if place.is_all_of_kafka:
            with contextlib.suppress(StorageError):
                self.deleted.append(put_away(place.directory, path, tp, self._files))
                return
        self.foreign.append(path)

    def _replace(self, old: Place) -> None:
        tp = old.found.name.topic_partition
        self._last_marks[tp] = int(old.order)  # those before it had lower ones
        with self._failing(old.directory):
            self.deleted.append(put_away(old.directory, old.found.path, tp, self._files))

    def _open_all(self, directory: LogDirectory, partitions: list[FoundPartition], config_for: ConfigFor) -> None:
        to_open = []
        for partition in partitions:
            if partition.name.kind is Kind.DELETED:
                self.deleted.append(partition.path)
            elif partition.name.kind is Kind.STRAY:
                self.strays.append(partition.path)
            else:
                to_open.append(partition)
        for done, partition in enumerate(to_open, start=1):
            self._open(directory, partition, config_for, done, len(to_open))

    def _open(
        self, directory: LogDirectory, partition: FoundPartition, config_for: ConfigFor, done: int, total: int
    ) -> None:
        topic_partition, kind = partition.name

        before = self._recovered

        def tell(checked: int, _of: int) -> None:
            self._recovered = before + checked
            self._recovered_in.add(directory)
            if self._progress is not None:
                self._progress(LoadingProgress(directory.path, done - 1, total, self._recovered, topic_partition))

        config = config_for(topic_partition.topic)
        try:
            log = self._reopen(directory, partition, config)
            if log is None and self._is_foreign(directory, partition):
                self.foreign.append(partition.path)
                return
            if log is None:
                log = open_log(
                    directory,
                    partition.path,
                    topic_partition,
                    self._topic_id(directory, partition),
                    config,
                    self._files,
                    self._clock,
                    self._producer_expiration_ms,
                    tell,
                )
        except StorageError as error:
            if not may_pass(error):
                raise
            last_mark = self._last_marks.get(topic_partition, 0)
            left = BrokenPartition(partition.path, str(error), may_pass=kind is Kind.CURRENT, last_mark=last_mark)
            directory.broken[topic_partition] = left
        except (KafkaError, ValueError, BadBatch) as error:
            directory.broken[topic_partition] = BrokenPartition(partition.path, str(error))
        else:
            log.last_mark = self._last_marks.get(topic_partition, 0)
            (directory.logs if kind is Kind.CURRENT else directory.futures)[topic_partition] = log
        if self._progress is not None:
            self._progress(LoadingProgress(directory.path, done, total, self._recovered))

    def _reopen(self, directory: LogDirectory, partition: FoundPartition, config: LogConfig) -> Log | None:
        """A log that is as a clean stop left it; None for any other."""
        tp = partition.name.topic_partition
        stopped = directory.stopped.get(tp) if partition.name.kind is Kind.CURRENT else None
        if (
            stopped is None
            or directory.checkpointed(DAMAGED_OFFSETS, tp) is not None
            or marks.was_moved(partition.path)
        ):
            return None
        loaded = clean_stop.restore(
            stopped,
            partition.path,
            config,
            self._files,
            self._clock.now_ms(),
            start_offset=directory.checkpointed(START_OFFSETS, tp) or 0,
            recovery_point=directory.checkpointed(RECOVERY_POINTS, tp) or 0,
            producer_expiration_ms=self._producer_expiration_ms,
        )
        if loaded is None:
            return None
        topic_id = checkpoint.topic_id_from_text(stopped.topic_id)
        log = Log(loaded, partition.path, config, self._files, self._clock, tp, topic_id)
        log.cleaned_until = directory.checkpointed(CLEANED_OFFSETS, tp)
        return log

    def _is_foreign(self, directory: LogDirectory, partition: FoundPartition) -> bool:
        """A crash may have left a partition that is known without any file, but not with somebody's own."""
        topic_partition, kind = partition.name
        if kind is not Kind.CURRENT or directory.holds_a_partition(partition):
            return False
        if self._id_of(topic_partition) == NO_TOPIC_ID:
            return True
        with directory.raising(f"listing {partition.path}"):
            return not all(map(is_of_kafka, self._files.listdir(partition.path)))

    def _topic_id(self, directory: LogDirectory, partition: FoundPartition) -> TopicId:
        """The topic id from `partition.metadata`, or else from the metadata store."""
        path = f"{partition.path}/{checkpoint.PARTITION_METADATA}"
        problem = None
        try:
            topic_id = checkpoint.read_topic_id(path, self._files)
        except checkpoint.CheckpointError as error:
            topic_id, problem = None, error
        except OSError as error:
            raise directory.storage_error(f"reading {path}", error) from error
        if topic_id is not None:
            return topic_id
        stored = self._id_of(partition.name.topic_partition)
        if stored != NO_TOPIC_ID:
            directory.write_id(partition.path, stored)
            self.mended.append(path)
        elif problem is not None:
            raise problem
        return stored


def open_log(
    directory: LogDirectory,
    path: str,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
    files: Files,
    clock: Clock,
    producer_expiration_ms: int,
    progress: Callable[[int, int], None] | None = None,
) -> Log:
    """A log that is in `directory`, from where its checkpoints say.

    A clean stop does not close one that was replaced by its copy in another log directory. If that has not come back,
    the old one is the replica after all, and takes records from now on: should the copy come back, nothing is to say
    that it has them all.
    """
    cleaned_until = directory.checkpointed(CLEANED_OFFSETS, topic_partition)
    was_replaced = marks.was_moved(path)
    log = Log.open(
        path,
        config,
        files,
        clock,
        topic_partition=topic_partition,
        topic_id=topic_id,
        start_offset=directory.checkpointed(START_OFFSETS, topic_partition) or 0,
        recovery_point=directory.checkpointed(RECOVERY_POINTS, topic_partition) or 0,
        high_watermark=directory.checkpointed(HIGH_WATERMARKS, topic_partition) or 0,
        damaged_from=directory.checkpointed(DAMAGED_OFFSETS, topic_partition),
        clean=directory.was_clean and not was_replaced,
        was_compacted=cleaned_until is not None,
        progress=progress,
        producer_expiration_ms=producer_expiration_ms,
    )
    log.cleaned_until = cleaned_until
    log.let_go_of_files()
    if was_replaced:
        try:
            marks.unmark(path, files)
        except OSError as error:
            raise directory.storage_error(f"removing {marks.MOVED} from {path}", error) from error
    return log


def put_away(directory: LogDirectory, path: str, topic_partition: TopicPartition, files: Files) -> str:
    """Give a partition's directory the name under which it waits for its removal; that path."""
    away = os.path.join(directory.path, deleted_name(topic_partition))
    try:
        files.rename(path, away)
    except OSError as error:
        raise directory.storage_error(f"renaming {path}", error) from error
    directory.put_away.add(topic_partition)
    return away
