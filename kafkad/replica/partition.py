"""One replica of one partition on this broker: its role, its ISR, its high watermark, and who waits for them.

Written only from the event loop. The role comes from the controller (LeaderAndIsr), the high watermark from here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.files import Slice
from kafkad.log.log import Log
from kafkad.metrics import TopicProbe
from kafkad.model import NO_EPOCH, NO_LEADER
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.waits import FetchWait, Waits
from kafkad.wire.records import RECORD_COUNT, Header

"""Its place in a batch header."""

OnCommitted = Callable[[KafkaError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What the controller last said of this partition."""

    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()


class Partition:
    """The way of every produce and fetch of one partition goes through here."""

    __slots__ = (
        "__weakref__",
        "_acks_fsync",
        "_alone",
        "_durable",
        "appends_as_is",
        "broker_id",
        "commit_waits",
        "commits_at_once",
        "enough_in_sync",
        "failure",
        "fetch_waits",
        "flushed_only",
        "high_watermark",
        "is_leader",
        "leader_epoch",
        "log",
        "probe",
        "role",
        "stopped",
        "tp",
        "waits",
    )

    def __init__(
        self,
        tp: TopicPartition,
        log: Log,
        broker_id: int,
        waits: Waits,
        durable: Durable,
        probe: TopicProbe,
        high_watermark: int,
    ) -> None:
        self.tp = tp
        self.log = log
        self._durable = durable
        self.broker_id = broker_id
        self.waits = waits
        self.role = Role()
        self.leader_epoch = NO_EPOCH
        self.is_leader = False
        self.stopped = False
        """Deleted here, or handed over to another broker."""
        self.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
        self.fetch_waits: dict[FetchWait, None] = {}
        self.commit_waits: deque[tuple[int, OnCommitted]] = deque()
        self.failure: KafkaError | None = None
        """Why this replica serves nobody (its directory went offline); None while it is well."""
        self.probe = probe
        self._settle()

    # -- role ------------------------------------------------------------------------------------------------------

    def become(self, role: Role) -> None:
        """Take the role of a LeaderAndIsr whose epochs the caller has checked."""
        was_leader, old_epoch = self.is_leader, self.leader_epoch
        self.role = role
        self.leader_epoch = role.leader_epoch
        self.is_leader = role.leader == self.broker_id
        if self.is_leader and (not was_leader or old_epoch != role.leader_epoch):
            self.log.assign_epoch(role.leader_epoch, self.log.end_offset)
        self._settle()
        self._advance()
        if not self.is_leader:
            self._refuse_commit_waits()
        self.waits.wake(self)

    def update_config(self, config: LogConfig) -> None:
        self.log.update_config(config)
        self._settle()
        self._advance()

    def take_log(self, log: Log) -> None:
        """The same records in another log directory; go on there."""
        self.log = log
        self._settle()

    def fail(self, error: KafkaError) -> None:
        """Its directory is gone: every request from now on, and every one that waits, gets this error."""
        self.failure = error
        self._settle()
        self._refuse_commit_waits()
        self.waits.wake(self)

    def retire(self) -> None:
        """It is being deleted or handed over; whoever still holds it must look the partition up again."""
        self.stopped = True
        self.is_leader = False
        self._settle()
        self._refuse_commit_waits()
        self.waits.wake(self)

    def _settle(self) -> None:
        """Work out, once per change, what the hot path asks with every request."""
        config = self.log.config
        self.enough_in_sync = len(self.role.isr) >= self.min_isr
        """For a write with acks=all."""
        self._alone = self.is_leader and self.role.isr == (self.broker_id,) and self.enough_in_sync
        self._acks_fsync = config.acks_fsync
        self.commits_at_once = self._alone and not config.acks_fsync
        """What is appended is committed when `append` returns: nobody has to ask `when_committed`."""
        self.flushed_only = config.read_flushed_only
        if self.flushed_only:
            self.log.on_flushed = self._flushed
        self.appends_as_is = self.is_leader and self.failure is None and config.takes_batches_as_they_came
        """A sound batch of a producer only has to be appended."""

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, which never asks for more replicas than the partition has."""
        return min(self.log.config.min_insync_replicas, len(self.role.replicas))

    # -- produce ---------------------------------------------------------------------------------------------------

    def append(self, view: memoryview, at: int, end: int, header: Header) -> int:
        """HOT. Append one checked batch as leader; returns its base offset."""
        log = self.log
        base = log.append(view, at, end, header, self.leader_epoch)
        if self._alone:
            self.high_watermark = log.end_offset
            if self.fetch_waits:
                self.waits.wake(self)
        probe = self.probe
        probe.total_produce += 1
        probe.messages_in += header[RECORD_COUNT]
        probe.bytes_in += end - at
        return base

    def check_acks_all(self) -> None:
        if not self.enough_in_sync:
            raise self._too_few_in_sync(ErrorCode.NOT_ENOUGH_REPLICAS)

    def _too_few_in_sync(self, code: ErrorCode) -> KafkaError:
        in_sync, wanted = len(self.role.isr), self.log.config.min_insync_replicas
        return KafkaError(code, f"{self.tp} has {in_sync} in-sync replicas, min.insync.replicas asks for {wanted}")

    def _advance(self) -> None:
        if self._alone and self.high_watermark < self.log.end_offset:
            self.high_watermark = self.log.end_offset
            self.waits.wake(self)
            while self.commit_waits and self.commit_waits[0][0] <= self.high_watermark:
                self.when_committed(*self.commit_waits.popleft())

    # -- committed -------------------------------------------------------------------------------------------------

    def when_committed(self, end: int, on_committed: OnCommitted) -> None:
        """Call back, once, when what was appended before `end` is committed: the high watermark is there and, with
        `kafkad.acks.fsync`, the disk has it.

        With an error when this replica stops being the leader before, its disk fails, or too few replicas are in sync
        by then. To be asked right after the append; what is committed by then is called back before this returns.
        """
        if end > self.high_watermark:
            if self.is_leader and self.failure is None:
                self.commit_waits.append((end, on_committed))
            else:
                on_committed(self._not_leading())
        elif self._acks_fsync:
            self._durable.sync(self.log, partial(self._committed, on_committed))
        else:
            self._committed(on_committed, None)

    def _committed(self, on_committed: OnCommitted, error: KafkaError | None) -> None:
        if error is None and self.is_leader and not self.enough_in_sync:
            error = self._too_few_in_sync(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        on_committed(error)

    def _not_leading(self) -> KafkaError:
        return self.failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker no longer leads {self.tp}")

    def _refuse_commit_waits(self) -> None:
        error = self._not_leading()
        waiting, self.commit_waits = self.commit_waits, deque()
        for _, on_committed in waiting:
            on_committed(error)

    # -- fetch -----------------------------------------------------------------------------------------------------

    @property
    def visible_until(self) -> int:
        """Where consumers stop: the high watermark; with `kafkad.read.flushed.only` what is on the disk, if less."""
        return min(self.high_watermark, self.log.flushed_until) if self.flushed_only else self.high_watermark

    def _flushed(self) -> None:
        if self.flushed_only and self.fetch_waits:
            self.waits.wake(self)

    @property
    def last_stable_offset(self) -> int:
        """What read_committed may see: nothing at or after the first transaction that is still open."""
        unstable = self.log.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def read(self, offset: int, max_bytes: int, upto: int, at_least_one: bool) -> Slice | None:
        """HOT. Whole batches below `upto`; OFFSET_OUT_OF_RANGE outside the log, nothing between `upto` and its end."""
        found = self.log.read(offset, max_bytes, upto, at_least_one) if offset < upto else None
        self.probe.total_fetch += 1
        if found is not None:
            self.probe.bytes_out += found.length
        elif offset > self.log.end_offset or offset < self.log.start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log.start_offset} to {self.log.end_offset} of {self.tp}",
            )
        return found

    def check_leader(self, current_leader_epoch: int) -> None:
        """Fence a client by the leader epoch it believes in (-1: it does not say), as KIP-320 has it."""
        if self.failure is not None:
            raise self.failure
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.tp} is in leader epoch {self.leader_epoch}")
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.tp} is in leader epoch {self.leader_epoch}")
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.tp}")

    def delete_records(self, offset: int) -> int:
        """Move the start of the log up to `offset` (-1: the high watermark); returns the new start."""
        wanted = self.high_watermark if offset == -1 else offset
        if wanted > self.high_watermark or wanted < -1:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp} can be cut up to {self.high_watermark}, not {offset}"
            )
        if wanted > self.log.start_offset:
            self.log.increment_start_offset(wanted)
        return self.log.start_offset
