"""One log directory: its lock, its identity, and the checkpoints of all its partitions."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping, Set
from functools import partial
from itertools import chain
from typing import NamedTuple

from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log import checkpoint, clean_stop
from kafkad.log.checkpoint import (
    CLEANED_OFFSETS,
    DAMAGED_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    MetaProperties,
)
from kafkad.log.checkpoint_file import CheckpointFile
from kafkad.log.clean_stop import StoppedLog
from kafkad.log.files import Files, LogFile
from kafkad.log.indexed import LOG
from kafkad.log.lock import LOCK, holder, take
from kafkad.log.log import Log
from kafkad.log.names import Kind, PartitionName, parse_name
from kafkad.log.partition_files import hold_a_partition, is_of_kafka
from kafkad.log.segment import NOWHERE
from kafkad.names import MAX_PARTITION, NO_TOPIC_ID, TopicPartition, name_problem
from kafkad.refusals import failure

_CHECKPOINTS = (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS, CLEANED_OFFSETS, DAMAGED_OFFSETS)
_ROOM = 1 << 20
_NOT_OURS = (errno.ENOTDIR, errno.ENOENT, errno.ELOOP, errno.EACCES, errno.EPERM)
"""A file, a link that leads nowhere, another user's directory."""
_ROOM_PROBE = ".kafkad_room_probe"


class DirectoryLockedError(Exception):
    """Another broker is using the directory."""


class ForeignDirectoryError(Exception):
    """The directory belongs to another cluster or another broker, or to a Kafka in KRaft mode."""


class NameTakenError(KafkaError):
    """Something that is no replica has the name that a replica's directory is to have. No fault of the disk."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class FoundPartition(NamedTuple):
    path: str
    name: PartitionName


class BrokenPartition(NamedTuple):
    """A partition that could not be opened. Its directory is left as it is."""

    path: str
    reason: str
    may_pass: bool = False
    """True if it opens once there is room on the disk."""
    last_mark: int = 0
    """See `Log.last_mark`."""


class LogDirectory:
    """Owned by the LogManager, on the loop; what may run in a thread says so. `failure` says why it is offline."""

    def __init__(self, path: str, files: Files) -> None:
        self.path = path
        self.failure: str | None = None
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.stopped: dict[TopicPartition, StoppedLog] = {}
        """Logs as a clean stop leaves them, while logs are loaded and closed."""
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}
        self.replaced: dict[TopicPartition, Log] = {}
        """Replicas whose copies elsewhere have taken their places, until they are put away: where the other disk fails,
        the next start takes one of these, and needs what the checkpoints say of it."""
        self.broken: dict[TopicPartition, BrokenPartition] = {}
        self.put_away: set[TopicPartition] = set()
        """What was deleted here or has moved away, until a deletion asks for `sync_names`."""
        self._checkpoints = {name: CheckpointFile(self._file(name), files) for name in _CHECKPOINTS}
        self._files = files
        self._lock: LogFile | None = None
        self._names: LogFile | None = None
        """The directory itself, kept open: an fsync of its names does not fail for want of a file descriptor."""

    def __str__(self) -> str:
        return self.path

    # --- who may use it

    def acquire(self) -> None:
        """Create and lock it, and read whose it is. DirectoryLockedError, CheckpointError or StorageError.
        ForeignDirectoryError for one of a Kafka in KRaft mode: beside its topics, a new cluster would begin."""
        try:
            self._files.make_directories(self.path)
            lock = self._files.open_log_file(self._file(LOCK), os.O_RDWR | os.O_CREAT)
            names = self._files.open_log_file(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise self.storage_error("opening it", error) from error
        try:
            take(lock.fd)
        except OSError:
            raise DirectoryLockedError(self._locked_message(lock)) from None
        with contextlib.suppress(OSError):  # a full disk is no reason not to start
            self._files.truncate(lock.fd, 0)
            self._files.write_all(lock.fd, b"%d\n" % os.getpid(), 0)
        self._lock, self._names = lock, names
        try:
            self.meta = checkpoint.read_meta_properties(self._file(checkpoint.META_PROPERTIES), self._files)
        except checkpoint.KraftError as error:
            raise ForeignDirectoryError(str(error)) from None
        except OSError as error:
            raise self.storage_error(f"reading {self._file(checkpoint.META_PROPERTIES)}", error) from error
        kraft = self.kraft_metadata
        if kraft is not None and (self.meta is None or self.meta.broker_id is None):
            raise ForeignDirectoryError(f"{kraft} is of a Kafka in KRaft mode. {checkpoint.KRAFT_REMEDY}.")

    def release(self) -> None:
        self._lock = self._names = None

    def _locked_message(self, lock: LogFile) -> str:
        pid = holder(lock.fd) or self._pid_in(lock)
        who = f"process {pid}" if pid else "another process"
        return (
            f"{self._file(LOCK)} is held by {who}: a broker is using {self.path} already. "
            "Stop it, or give this one another directory in log.dirs."
        )

    def _pid_in(self, lock: LogFile) -> int:
        """The one that its holder wrote there, if that was a kafkad."""
        text = self._files.pread(lock.fd, 20, 0).strip()
        return int(text) if text.isdigit() else 0

    def claim(self, cluster_id: str, broker_id: int, now_ms: int) -> None:
        """Make it this broker's, or find that it is. ForeignDirectoryError, StorageError."""
        self.refuse_foreign(cluster_id, broker_id)
        meta = self.meta
        if meta is not None and None not in (meta.cluster_id, meta.broker_id):
            return
        others = meta.others if meta is not None else ()
        self.meta = MetaProperties(broker_id=broker_id, cluster_id=cluster_id, others=others)
        try:
            checkpoint.write_meta_properties(self._file(checkpoint.META_PROPERTIES), self.meta, now_ms, self._files)
        except OSError as error:
            raise self.storage_error(f"writing {checkpoint.META_PROPERTIES}", error) from error

    @property
    def is_unused(self) -> bool:
        """True until `take_into_use`, unless it holds partitions: its disk is a new one, whatever the ids there say.
        StorageError."""
        return not os.path.exists(self._file(RECOVERY_POINTS)) and not any(self.partitions())

    def take_into_use(self) -> None:
        """Leave in it what every directory of a broker has. StorageError."""
        with self.raising(f"writing {RECOVERY_POINTS}"):
            checkpoint.write_offsets(self._file(RECOVERY_POINTS), {}, self._files)

    def refuse_foreign(self, cluster_id: str, broker_id: int) -> None:
        """ForeignDirectoryError if it is another's."""
        meta, path = self.meta, self._file(checkpoint.META_PROPERTIES)
        if meta is None:
            return
        if meta.cluster_id not in (None, cluster_id):
            raise ForeignDirectoryError(
                f"{path} says that this directory belongs to cluster {meta.cluster_id}, but this broker is in "
                f"cluster {cluster_id}. Check log.dirs, and the metadata store."
            )
        if meta.broker_id not in (None, broker_id):
            raise ForeignDirectoryError(
                f"{path} says that this directory belongs to broker {meta.broker_id}, but this is broker {broker_id}. "
                "Check broker.id and log.dirs."
            )

    # --- what is in it

    def read_checkpoints(self) -> None:
        """CheckpointError, StorageError."""
        try:
            for file in self._checkpoints.values():
                file.read()
        except OSError as error:
            raise self.storage_error("reading its checkpoints", error) from error

    def take_clean_marker(self) -> None:
        """True if the last broker stopped cleanly; from now on this directory counts as in use."""
        self.stopped = clean_stop.read(self.path, self._files)
        try:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(self._file(clean_stop.FILE_NAME))
            self.was_clean = checkpoint.take_clean_shutdown(self.path, self._files)
        except OSError as error:
            raise self.storage_error(f"removing {checkpoint.CLEAN_SHUTDOWN}", error) from error

    def checkpointed(self, name: str, topic_partition: TopicPartition) -> int | None:
        """A partition's entry in the checkpoint file `name`."""
        return self._checkpoints[name].offsets.get(topic_partition)

    @property
    def kraft_metadata(self) -> str | None:
        """KRaft's metadata log, if there is one: where a broker id says that this is of a Kafka with ZooKeeper, a
        migration that was rolled back has left it."""
        path = self._file(checkpoint.KRAFT_METADATA)
        return path if os.path.exists(path) else None

    def partitions(self) -> Iterator[FoundPartition]:
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    name = parse_name(entry.name)
                    if name is not None and entry.name != checkpoint.KRAFT_METADATA and entry.is_dir():
                        yield FoundPartition(entry.path, name)
        except OSError as error:
            raise self.storage_error("listing it", error) from error

    def current_partitions(self) -> list[TopicPartition]:
        """Those that are neither deleted nor on their way here."""
        current = [found for found in self.partitions() if found.name.kind is Kind.CURRENT]
        return [found.name.topic_partition for found in current if self.holds_a_partition(found)]

    def holds_a_partition(self, found: FoundPartition) -> bool:
        """False for an operator's own directory that has a partition's name, such as `backup-2024`. One that cannot be
        looked into counts, too: to open it will say why."""
        topic, partition = found.name.topic_partition
        if name_problem(topic) is not None or partition > MAX_PARTITION:
            return False
        try:
            return hold_a_partition(self._files.list_files(found.path))
        except OSError:
            return True

    def all_logs(self) -> Iterator[tuple[TopicPartition, Log]]:
        return chain(self.logs.items(), self.futures.items())

    # --- what is written about it: there may be tens of thousands of logs, and no function is called for each

    def _all_kept(self) -> Iterator[tuple[TopicPartition, Log]]:
        return chain(self.replaced.items(), self.all_logs())

    def collect_recovery_points(self) -> Iterator[CheckpointWrite]:
        """And first which logs are checked from further back: of these no other file tells. Each is collected when
        it is asked for: what is collected counts as about to be written, and none is behind one that a disk refuses."""
        damaged = {tp: at for tp, log in self._all_kept() if (at := log.segments.damaged_from) != NOWHERE}
        yield self.checkpoint(DAMAGED_OFFSETS, damaged)
        recovery_points = {tp: log.durability.recovery_point for tp, log in self._all_kept()}
        yield self.checkpoint(RECOVERY_POINTS, recovery_points)

    def holds(self, log: Log) -> bool:
        tp = log.topic_partition
        return log in (self.logs.get(tp), self.futures.get(tp))

    def says_too_much_of(self, log: Log) -> bool:
        """By the checkpoint, or by one that is about to be written, more of it is on the disk than is known to be."""
        if self._checkpoints[RECOVERY_POINTS].is_about_to_be_written:
            return True
        return (self.checkpointed(RECOVERY_POINTS, log.topic_partition) or 0) > log.durability.recovery_point

    def collect_start_offsets(self) -> CheckpointWrite:
        """Only those that the names of the segments do not tell."""
        told = {tp: log.start_offset for tp, log in self._all_kept() if log.start_offset > log.segments.all[0].base}
        return self.checkpoint(START_OFFSETS, told)

    def collect_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> CheckpointWrite:
        """`offsets` are those of the replicas that have a role; the others keep what the checkpoint says."""
        known = self._checkpoints[HIGH_WATERMARKS].offsets
        here = {tp: at for tp in self.logs if (at := offsets.get(tp, known.get(tp))) is not None}
        kept = {tp: known[tp] for tp in self.replaced if tp in known}
        return self.checkpoint(HIGH_WATERMARKS, {**kept, **here})

    def collect_cleaned_offsets(self) -> CheckpointWrite:
        logs = chain(self.replaced.items(), self.logs.items())
        known = {tp: log.cleaned_until for tp, log in logs if log.cleaned_until is not None}
        return self.checkpoint(CLEANED_OFFSETS, known)

    def checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> CheckpointWrite:
        """A write that may be done in a thread. What could not be opened keeps what was said about it."""
        for topic_partition in self.broken:
            known = self.checkpointed(name, topic_partition)
            if known is not None:
                offsets[topic_partition] = known
        return CheckpointWrite(self, name, offsets, self._checkpoints[name].collect())

    def store(self, write: CheckpointWrite) -> None:
        """Thread-safe. StorageError."""
        with self.raising(f"writing {write.name}"):
            self._checkpoints[write.name].write(write.offsets, write.version)

    def forgetting(self, gone: Set[TopicPartition]) -> Callable[[], None] | None:
        """Before partitions are made, so that no predecessor's checkpoint is taken for theirs: what is to be done in a
        thread first, if there are some on the disk, or soon. It may raise StorageError."""
        is_named = any([file.forget(gone) for file in self._checkpoints.values()])
        return partial(self._rewrite_checkpoints_without, gone) if is_named else None

    def refuse_predecessor(self, topic_partition: TopicPartition) -> None:
        """BlockingIOError while checkpoints have one of that name, which is to be forgotten in a thread first."""
        if self.forgetting({topic_partition}) is not None:
            raise BlockingIOError(errno.EAGAIN, "its predecessor is still in a checkpoint")

    def _rewrite_checkpoints_without(self, gone: Set[TopicPartition]) -> None:
        for name, file in self._checkpoints.items():
            with self.raising(f"writing {name}"):
                file.rewrite_without(gone)

    @contextlib.contextmanager
    def making(self, path: str, topic_partition: TopicPartition, topic_id: bytes) -> Iterator[None]:
        """Make the directory of a partition, and have its log opened inside. StorageError; NameTakenError where
        there is something of that name already.

        What a full disk leaves half made goes again. A file descriptor is kept for that: without one, the disk does
        not say what is in there. Refused, for now, if checkpoints there have a predecessor of its name, which is to be
        forgotten in a thread before.
        """
        with self.raising(f"creating {path}"):
            self.refuse_predecessor(topic_partition)
            self._make_empty(path)
            try:
                kept = self._files.open_log_file(path, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:
                self._files.rmdir(path)
                raise
        try:
            with self.raising(f"creating {path}"):
                self.write_id(path, topic_id)
                yield
        except StorageError:
            del kept
            with contextlib.suppress(OSError):
                self._empty(path, self._files.listdir(path))
                self._files.rmdir(path)
            raise

    def _make_empty(self, path: str) -> None:
        """NameTakenError."""
        try:
            self._files.mkdir(path)
        except FileExistsError:
            try:
                self._take_over(path)
            except OSError as error:
                if error.errno not in _NOT_OURS:
                    raise
                why = failure(f"{path} is there already and cannot be used for a partition", error, self.path)
                raise NameTakenError(f"{why}: move it away") from None

    def _take_over(self, path: str) -> None:
        """What an earlier try left half made. NameTakenError if it holds more."""
        names = self._files.listdir(path)
        has_directories = len(self._files.list_files(path)) < len(names)
        if has_directories or not all(self._is_of_new_log(path, name) for name in names):
            raise NameTakenError(
                f"{path} is there already and not empty, while this broker has no such partition: move it away"
            )
        self._empty(path, names)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def _is_of_new_log(self, path: str, name: str) -> bool:
        """True of a file that a log without records has."""
        return is_of_kafka(name) and (not name.endswith(LOG) or self._files.is_empty(os.path.join(path, name)))

    def _empty(self, path: str, names: list[str]) -> None:
        for name in names:
            self._files.unlink(os.path.join(path, name))

    @contextlib.contextmanager
    def raising(self, doing: str) -> Iterator[None]:
        """An OSError becomes the StorageError of this directory."""
        try:
            yield
        except OSError as error:
            raise self.storage_error(doing, error) from error

    def write_id(self, path: str, topic_id: bytes) -> None:
        if topic_id == NO_TOPIC_ID:
            return
        name = os.path.join(path, checkpoint.PARTITION_METADATA)
        try:
            checkpoint.write_topic_id(name, topic_id, self._files, durable=False)
        except OSError as error:
            raise self.storage_error(f"writing {name}", error) from error

    def describe_stopped(self) -> None:
        """Take down how the logs, which are closed, are left."""
        stopped = {tp: clean_stop.describe(log, self._files) for tp, log in self.logs.items()}
        self.stopped = {tp: found for tp, found in stopped.items() if found is not None}

    def mark_clean(self) -> None:
        """`stopped` spares the next start reading those logs again."""
        try:
            checkpoint.write_clean_shutdown(self.path, self._files)
            clean_stop.write(self.path, self.stopped, self._files)
        except OSError as error:
            raise self.storage_error(f"writing {checkpoint.CLEAN_SHUTDOWN}", error) from error

    def sync_names(self) -> None:
        """Wait until the disk knows which partitions are here. Thread-safe; StorageError, which is final."""
        names = self._names
        if names is None:
            raise StorageError(self.path, f"log directory {self.path} is offline")
        try:
            self._files.sync_for_good(names.fd)
        except OSError as error:
            raise self.storage_error("flushing it", error) from error

    def space(self) -> tuple[int, int]:
        """Total and usable bytes of its volume; -1 when the disk does not say."""
        try:
            volume = os.statvfs(self.path)
        except OSError:
            return -1, -1
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def has_room(self) -> bool:
        """True if a file of a megabyte fits in: quotas are no matter of its volume."""
        path = self._file(_ROOM_PROBE)
        try:
            file = self._files.open_log_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            try:
                return self._files.pwrite(file.fd, bytes(_ROOM), 0) == _ROOM
            finally:
                self._files.unlink(path)
        except OSError:
            return False

    def storage_error(self, doing: str, error: OSError) -> StorageError:
        return StorageError(self.path, failure(f"log directory {self.path}: {doing}", error, self.path))

    def _file(self, name: str) -> str:
        return os.path.join(self.path, name)


class CheckpointWrite(NamedTuple):
    """Offsets collected on the loop, to be written wherever waiting for a disk does no harm."""

    directory: LogDirectory
    name: str
    offsets: dict[TopicPartition, int]
    version: int

    def write(self) -> None:
        """Thread-safe. StorageError when the disk refuses."""
        self.directory.store(self)
