"""One partition of a coordinator's topic, led and loaded here: appends records and applies them when committed."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.producers import COORDINATOR
from kafkad.replica.markers import Marker, MarkerBatch
from kafkad.replica.partition import Partition
from kafkad.shard.batch import NO_PRODUCER, Prepared, Repeating, TransactionalProducer, build, build_around, cut
from kafkad.timers import Timers
from kafkad.turns import Pieces
from kafkad.wire.records import LENGTH, PREFIX_SIZE

R = TypeVar("R")
OnEnd = Callable[[KafkaError | None], None]

NO_SEQUENCE = -1
_ROOM_FOR_COMPRESSION = 2
"""What cannot be compressed becomes longer by it, but never so many times."""
_MOST_COMPRESSION = 4
"""Records may be so many times what the topic takes before they are compressed, which takes 10 to 40 ms for each MB:
everybody waits for that."""


class Machine(Protocol[R]):
    """A coordinator's state over one partition; R are its records, typed."""

    def encode(self, record: R) -> tuple[bytes, bytes | None]:
        """Key and value; the value None is a tombstone."""

    def least_size(self, record: R) -> int:
        """The bytes of key and value at least: what it takes no time to know without encoding them."""

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """None for a kind that this broker does not know, MalformedError for bytes that are no record."""

    def apply(self, record: R, producer_id: int = -1) -> None:
        """The only place where durable state changes. What has a producer is pending until its transaction ends."""

    def end_transaction(self, producer_id: int, committed: bool) -> None: ...

    def missed(self, where: str) -> Pieces[None]:
        """While it is loaded: a damaged place of the log may have had records of any key, after those applied before
        and ahead of those that follow."""

    def loaded(self) -> None:
        """All of the log has been applied, and requests come from now on: arm timers."""

    def unloaded(self) -> None:
        """This broker no longer coordinates: answer all waiting requests with NOT_COORDINATOR, cancel timers."""


M = TypeVar("M", bound=Machine[Any])


class CoordinatorParts:
    """The parts that all shards of a topic share. `codec` may change while they run."""

    __slots__ = ("clock", "codec", "disk_failed", "timers")

    def __init__(self, clock: Clock, timers: Timers, disk_failed: Callable[[StorageError], None], codec: int) -> None:
        self.clock = clock
        self.timers = timers
        self.disk_failed = disk_failed
        self.codec = codec


class Shard(Generic[M]):
    __slots__ = ("_leader_epoch", "_make_machine", "_parts", "_serving", "_waiting", "index", "machine", "partition")

    def __init__(self, partition: Partition, parts: CoordinatorParts, make_machine: Callable[[Shard[M]], M]) -> None:
        self.index = partition.tp.partition
        self.partition = partition
        self._parts = parts
        self._leader_epoch = partition.leader_epoch
        self._serving = False
        self._waiting: deque[_Write] = deque()
        self._make_machine = make_machine
        self.machine: M
        """From `start_over` to `forget`."""

    def start_over(self) -> None:
        """It is to be loaded, from the beginning."""
        self.machine = self._make_machine(self)

    def begin(self) -> None:
        """Loaded: writes are taken from now on."""
        self._serving = True
        self.machine.loaded()

    def forget(self) -> None:
        """What was loaded of it: it cannot be loaded now, and memory may be short."""
        with suppress(AttributeError):  # there may not even have been memory for an empty one
            del self.machine

    def goes_on_in(self, leader_epoch: int) -> bool:
        """This broker leads in that epoch. False if another one may have led since it was told of its last one."""
        before, self._leader_epoch = self._leader_epoch, leader_epoch
        return leader_epoch <= before + 1

    def end(self) -> None:
        """No longer led here: fail the waiting writes, which another leader may still commit."""
        self._serving = False
        while self._waiting:
            write = self._waiting.popleft()
            write.on_end(_not_coordinator(self.partition) if write.translated else self.partition.not_leading())
        self.machine.unloaded()

    @property
    def serves(self) -> bool:
        """True from the end of the loading until this broker is told of another leader."""
        return self._serving

    @property
    def commits_at_once(self) -> bool:
        """True if a write is committed before it returns."""
        return self.partition.commits_at_once and not self._waiting and self._serving

    @property
    def most_bytes(self) -> int:
        """No batch of more bytes is taken: those of its records before they are compressed."""
        config = self.partition.log.config
        return min(config.max_message_bytes, config.segment_bytes) * self._compression

    @property
    def _compression(self) -> int:
        """How many times the size of a batch its records may have."""
        return _MOST_COMPRESSION if self._parts.codec else 1

    def write(
        self,
        records: Sequence[Any],
        on_end: OnEnd,
        base_sequence: int = NO_SEQUENCE,
        producer: TransactionalProducer = NO_PRODUCER,
        prepared: Prepared | None = None,
    ) -> None:
        """HOT. Append the records as one batch and apply them when it is committed; or none of them. With a `producer`
        they belong to its transaction. `prepared` has what was made of them already, where they are many.

        `on_end` is called once: with None after all are applied, or with what went wrong. Where nothing has to be
        waited for, that is before this returns. Writes are applied in their order.
        """
        try:
            self._append(records, base_sequence, producer, prepared)
        except KafkaError as error:
            on_end(self._refused(error))
            return
        if self.commits_at_once:
            if prepared is None:
                self._apply(records, producer.id)
            else:
                prepared.apply()
            on_end(None)
        else:
            apply = partial(self._apply, records, producer.id) if prepared is None else prepared.apply
            self._wait(_Write(apply, on_end))

    def write_all(self, records: Sequence[Any], on_end: OnEnd) -> None:
        """Append the records in their order, as one batch, or as more where one would be larger than the topic takes.
        Each is applied when it is committed, also if another is refused.

        `on_end` is called once, when all of them have ended, with what went wrong first.
        """
        config = self.partition.log.config
        most = min(config.max_message_bytes, config.segment_bytes) // _ROOM_FOR_COMPRESSION
        batches = list(cut(records, self.machine.encode, most))
        ends: list[KafkaError | None] = []

        def ended(error: KafkaError | None) -> None:
            ends.append(error)
            if len(ends) == len(batches):
                on_end(next(filter(None, ends), None))

        for batch, body in batches:
            self.write(batch, ended, prepared=Prepared(body, partial(self._apply, batch, NO_PRODUCER.id)))
        if not batches:
            on_end(None)

    def end_transaction(self, marker: Marker, on_end: OnEnd) -> None:
        """Append the marker and, when it is committed, let what the transaction wrote here take effect or be dropped.

        As `write` otherwise; but what went wrong is told as the leader of a partition does.
        """
        try:
            if not self._serving:
                raise self.partition.not_leading()
            self.partition.check_leader(-1)
            MarkerBatch(marker, self._parts.clock.now_ms()).append(self.partition)
        except KafkaError as error:
            if isinstance(error, StorageError):
                self._parts.disk_failed(error)
            on_end(error)
            return
        if self.commits_at_once:
            self.machine.end_transaction(marker.producer_id, marker.commit)
            on_end(None)
        else:
            ended = partial(self.machine.end_transaction, marker.producer_id, marker.commit)
            self._wait(_Write(ended, on_end, translated=False))

    def _apply(self, records: Sequence[Any], producer_id: int) -> None:
        """HOT."""
        apply = self.machine.apply
        if producer_id < 0:
            for record in records:
                apply(record)
        else:
            for record in records:
                apply(record, producer_id)

    def write_again(self, batch: Repeating, value: bytes, timestamp: int) -> bool:
        """HOT. Append `batch` with another value; it is committed when this returns, and for the caller to apply.

        False, and nothing is done, where a write has to be waited for or is refused: `write` says by what.
        """
        partition = self.partition
        if not self.commits_at_once or self._parts.codec:
            return False
        try:
            partition.check_leader(-1)
            _check_size(partition, batch.size)
            partition.append(batch.view, 0, batch.size, batch.fill(value, timestamp))
        except KafkaError as error:
            self._refused(error)
            return False
        return True

    def _append(
        self,
        records: Sequence[Any],
        base_sequence: int,
        producer: TransactionalProducer,
        prepared: Prepared | None,
    ) -> None:
        partition = self.partition
        if not self._serving:
            raise _not_coordinator(partition)
        partition.check_leader(-1)
        if not partition.commits_at_once:
            partition.check_acks_all()
        machine, parts = self.machine, self._parts
        size = sum(map(machine.least_size, records)) if prepared is None else len(prepared.body)
        _check_size(partition, size, self._compression)
        now_ms = parts.clock.now_ms()
        if prepared is None:
            encode = machine.encode
            encoded = [encode(record) for record in records]
            if parts.codec:
                size = sum(len(key) + len(value or b"") for key, value in encoded)
                _check_size(partition, size, self._compression)
            batch, header = build(encoded, now_ms, parts.codec, base_sequence, producer)
        else:
            batch, header = build_around(prepared.body, len(records), now_ms, parts.codec, base_sequence, producer)
        _check_size(partition, header[LENGTH] + PREFIX_SIZE)
        with memoryview(batch) as view:
            partition.append(view, 0, len(batch), header, COORDINATOR)

    def _refused(self, error: KafkaError) -> KafkaError:
        if isinstance(error, StorageError):
            self._parts.disk_failed(error)
        return _for_coordinators(error)

    def _wait(self, write: _Write) -> None:
        self._waiting.append(write)
        partition = self.partition
        partition.when_committed(partition.log.end_offset, partial(self._committed, write))

    def _committed(self, write: _Write, error: KafkaError | None) -> None:
        """`write` is committed, or never will be."""
        write.settled = True
        write.error = error
        waiting = self._waiting
        while waiting and waiting[0].settled:
            done = waiting.popleft()
            if done.error is None or done.error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                # those that were in sync have it: whoever loads the partition will find it
                done.apply()
            done.on_end(done.error and (_for_coordinators(done.error) if done.translated else done.error))


class _Write:
    """Appended, not yet applied. `translated`: whoever waits is told of errors as coordinators tell them."""

    __slots__ = ("apply", "error", "on_end", "settled", "translated")

    def __init__(self, apply: Callable[[], None], on_end: OnEnd, *, translated: bool = True) -> None:
        self.apply = apply
        self.on_end = on_end
        self.translated = translated
        self.settled = False
        self.error: KafkaError | None = None


def level_of_refusal(error: KafkaError) -> int:
    """At which the log has it: that another broker leads the partition now is no trouble."""
    return logging.INFO if error.code == ErrorCode.NOT_COORDINATOR else logging.WARNING


def _check_size(partition: Partition, size: int, compression: int = 1) -> None:
    """`compression`: the size is that of records which may become so many times smaller."""
    config = partition.log.config
    if size > config.max_message_bytes * compression:
        code, limit, allowed = ErrorCode.MESSAGE_TOO_LARGE, "max.message.bytes", config.max_message_bytes
    elif size > config.segment_bytes * compression:
        code, limit, allowed = ErrorCode.RECORD_LIST_TOO_LARGE, "segment.bytes", config.segment_bytes
    else:
        return
    times = f", and before compression they may be {compression} times that" if compression > 1 else ""
    raise KafkaError(code, f"{size} bytes of records in one batch, {limit} of {partition.tp} is {allowed}{times}")


_AS_COORDINATOR = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def _for_coordinators(error: KafkaError) -> KafkaError:
    """The error of a refused write, translated for clients of a coordinator."""
    code = _AS_COORDINATOR.get(error.code)
    return error if code is None else KafkaError(code, error.message or "")


def _not_coordinator(partition: Partition) -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, f"this broker no longer coordinates what is kept in {partition.tp}")
