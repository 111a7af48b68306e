"""Moving a replica to another log directory of the same broker (KIP-113).

A copy grows in a `-future` directory there, step by step, while the replica goes on working. Once it has caught up it
takes the replica's place, by a renaming and without waiting for a disk: the old one is kept, marked as replaced, until
the disk has the new one. A move that a restart interrupts goes on from where it was: the copy is found at load.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.copied import some_at_a_time
from kafkad.log.deletion import delete_below_start
from kafkad.log.directories import CheckpointWrite, LogDirectory
from kafkad.log.files import disk_errors
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.log.marks import Mark, last_number
from kafkad.log.names import LONGEST_NAME, current_name, future_name
from kafkad.log.truncation import Ahead, read_ahead, truncate_to
from kafkad.names import TopicPartition
from kafkad.turns import Pieces

STEP_BYTES = 1 << 20


class Step(NamedTuple):
    copied: int
    caught_up: bool


class Moved(NamedTuple):
    """A copy that has taken its replica's place."""

    log: Log
    put_away: Callable[[], list[CheckpointWrite]]
    """The end of the replica that was replaced, for when the copy and its name are on the disk, or those of a later one
    in its place: StorageError if a disk refuses, and then it is to be tried again later. Returns what is to be written
    then in a thread."""


class Moves:
    """On the loop, as the logs are; a step copies about `max_bytes`, in few batches, and then lets others work.

    Everything here may raise StorageError, of the one or the other directory.
    """

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager

    def under_way(self, target: LogDirectory) -> list[TopicPartition]:
        """Those with a replica in another directory here; a copy without one waits for its directory to come back."""
        return [tp for tp in target.futures if self._manager.directory_of(tp) not in (None, target)]

    def future(self, topic_partition: TopicPartition) -> Log | None:
        return self._manager.future(topic_partition)

    def forget_predecessors(
        self, wanted: Mapping[TopicPartition, str]
    ) -> list[tuple[LogDirectory, Callable[[], None]]]:
        """Before moves to these paths start: what is to be done in threads first, for each log directory that has
        checkpoints of replicas that were there earlier. Until then none starts there."""
        new: dict[str, set[TopicPartition]] = defaultdict(set)
        for topic_partition, path in wanted.items():
            new[os.path.abspath(path)].add(topic_partition)
        work: list[tuple[LogDirectory, Callable[[], None]]] = []
        for directory in self._manager.live:
            here = directory.logs, directory.futures, directory.replaced
            moving = (tp for tp in new[directory.path] if self._manager.get(tp) is not None)
            gone = {tp for tp in moving if not any(tp in logs for logs in here)}
            if (forget := directory.forgetting(gone)) is not None:
                work.append((directory, forget))
        return work

    def start(self, topic_partition: TopicPartition, path: str) -> None:
        """Begin to move a replica to the log directory `path`; nothing when it is there, or on its way there.

        KafkaError for a directory that this broker has not, and for a partition it has not. A move to another one goes
        on where this one cannot begin.
        """
        manager = self._manager
        target = manager.live_directory(path)
        log = manager.get(topic_partition)
        if log is None:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} is not on this broker")
        place = manager.target_of(topic_partition)
        if place is target:
            return
        if manager.directory_of(topic_partition) is target:
            self.cancel(topic_partition)
            return
        name, current = future_name(topic_partition), os.path.join(target.path, current_name(topic_partition))
        if len(name) > LONGEST_NAME:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name} is too long for the name of a directory")
        with target.raising(f"creating {name}"):
            target.refuse_predecessor(topic_partition)
        if os.path.lexists(current):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{current} is in the way, and not a replica in use")
        future = self._make_future(log, target, name)
        try:
            self.cancel(topic_partition)
        except StorageError:
            manager.put_away(target, future)
            raise
        target.futures[topic_partition] = future

    def _make_future(self, log: Log, target: LogDirectory, name: str) -> Log:
        manager = self._manager
        directory = os.path.join(target.path, name)
        with target.making(directory, log.topic_partition, log.topic_id):
            future = Log.open(
                directory,
                log.config,
                manager.files,
                manager.clock,
                topic_partition=log.topic_partition,
                topic_id=log.topic_id,
                start_offset=log.start_offset,
            )
        manager.watch_future(future)
        return future

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Give up a move, if there is one."""
        place = self._manager.target_of(topic_partition)
        if place is not None:
            self._manager.put_away(place, place.futures[topic_partition])
            del place.futures[topic_partition]

    def read_ahead(self, topic_partition: TopicPartition) -> Pieces[Ahead | None]:
        """What a step has to know where it cuts the copy back, which may take long to read."""
        log, future = self._both(topic_partition)
        return read_ahead(future, _common_end(log, future))

    def drop_beginning(self, topic_partition: TopicPartition) -> Pieces[None]:
        """Remove from the copy what the replica has lost of its beginning, which may be much."""
        log, future = self._both(topic_partition)
        future.increment_start_offset(min(log.start_offset, future.end_offset))
        return delete_below_start(future)

    def step(
        self,
        topic_partition: TopicPartition,
        max_bytes: int = STEP_BYTES,
        *,
        high_watermark: int = 0,
        ahead: Ahead | None = None,
    ) -> Step:
        """Copy some more. KafkaError when the replica is damaged where it is to be read: such a move cannot end.

        `high_watermark` is the replica's: of transactions that ended below, the copy need not remember anything.
        """
        log, future = self._both(topic_partition)
        history = future.history
        self._align(log, future, ahead)
        if future.history != history:
            return Step(0, False)  # the next step finds it noted
        part = log.read(future.end_offset, max_bytes, log.end_offset)
        if part is not None:
            source = self._manager.directory_of(topic_partition)
            assert source is not None  # `log` is in it
            with source.raising(f"reading {log.directory}"):
                data = self._manager.files.pread(part.file.fd, part.length, part.position)
            some = next(some_at_a_time(memoryview(data)))
            future.append_copied(some)
            future.producers.committed_until(high_watermark)
            return Step(len(some), future.end_offset == log.end_offset)
        if future.end_offset < log.end_offset:
            self._skip_to_end(log, future)
        return Step(0, True)

    def _skip_to_end(self, log: Log, future: Log) -> None:
        """Compaction has removed the rest, perhaps all there was of the last epoch."""
        self._take_last_epoch(log, future)
        future.skip_to(log.end_offset)

    def _take_last_epoch(self, log: Log, future: Log) -> None:
        """A copy knows an epoch of which there is no record only from its replica. Without one in which nobody has
        produced yet, a leader could not tell followers from before it where their logs part from its own."""
        for epoch, start in log.epochs.entries[-1:]:
            future.assign_epoch(epoch, max(start, future.end_offset))

    def _align(self, log: Log, future: Log, ahead: Ahead | None = None) -> None:
        """The replica may have been cut back, or lost its beginning, since the last step; and what a restart has found
        damaged of the copy is copied again."""
        end = _common_end(log, future)
        if end < future.end_offset:
            truncate_to(future, end, ahead)
        if future.epochs.latest != log.epochs.latest:
            future.forget_unused_epochs()  # the replica may have forgotten one that was taken over from it
        if future.end_offset < log.start_offset:
            future.truncate_fully_at(log.start_offset)
        future.increment_start_offset(log.start_offset)

    def mark_of(self, topic_partition: TopicPartition) -> Mark:
        """One for the replica, above those of replicas that it has replaced: these may be there still, or come back
        with a power cut. StorageError."""
        log, _ = self._both(topic_partition)
        with disk_errors(log.directory, "listing it"):
            in_there = last_number(log.files.list_files(log.directory))
        log.last_mark = max(self._manager.clock.now_ms(), log.last_mark + 1, in_there + 1)
        return Mark(log.files, log.directory, log.last_mark)

    def finish(self, topic_partition: TopicPartition) -> Moved | None:
        """Put the copy in the place of the replica, which is marked. None if it has not caught up, or if its disk does
        not have all of it that is known to be on the replica's: more steps, or an fsync, are needed.

        Waits for no disk. A crash leaves the old or the new replica, or both, of which the old one says that it was
        replaced, or perhaps others that say so of moves before; whichever the next start takes has all that was known
        to be on the disk. That more is there nobody is told before the disk has the new one's name, too.
        """
        log, future = self._both(topic_partition)
        self._align(log, future)
        if future.end_offset != log.end_offset or future.flushed_until < log.flushed_until:
            return None
        self._take_last_epoch(log, future)
        manager = self._manager
        target, source = manager.target_of(topic_partition), manager.directory_of(topic_partition)
        assert target is not None
        assert source is not None
        future.cleaned_until = log.cleaned_until
        future.producers.know_no_more_than(log.producers)
        future.rename(os.path.join(target.path, current_name(topic_partition)))
        future.flushed_until, future.last_mark = log.flushed_until, log.last_mark
        manager.adopt(topic_partition, future, target)  # if memory is too short for that, it can be done again
        source.replaced[topic_partition] = log
        del target.futures[topic_partition], source.logs[topic_partition]
        log.retired, log.replaced_by = True, future
        log.close(clean=False)
        return Moved(future, partial(self._put_away, source, log, target))

    def _put_away(self, source: LogDirectory, log: Log, target: LogDirectory) -> list[CheckpointWrite]:
        """The replica that was replaced. It stays if the disk of the one in its place has failed: the next start finds
        it whole."""
        if self._manager.get(log.topic_partition) is None:
            return []
        if source.replaced.get(log.topic_partition) is log:  # else its topic was deleted, or its disk has failed
            self._manager.put_away_replaced(source, log.topic_partition)
        both = [directory for directory in (target, source) if directory.failure is None]
        return [w for each in both for w in (each.collect_start_offsets(), each.collect_cleaned_offsets())]

    def _both(self, topic_partition: TopicPartition) -> tuple[Log, Log]:
        log, future = self._manager.get(topic_partition), self.future(topic_partition)
        if log is None or future is None:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} is not being moved")
        return log, future


def _common_end(log: Log, future: Log) -> int:
    """The end of what a copy has as its replica has it, and whole."""
    end = future.epochs.common_end(future.end_offset, log.epochs, log.end_offset)
    return min([end, *(hole.first for _, hole in future.damage)])
