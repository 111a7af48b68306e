"""One replica of one partition on this broker: its role, its high watermark, and the requests that wait for it.

Written only from the event loop. The role comes from the controller (LeaderAndIsr). What only a leader does about its
followers is in `leading`, what only a follower does in `following`; here is what every produce and fetch asks for.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from functools import partial

from kafkad.clock import Clock
from kafkad.cluster.metadata import MetadataCache
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.files import Slice
from kafkad.log.log import Log
from kafkad.log.mending import verify_batch
from kafkad.log.producers import Origin
from kafkad.metrics import TopicProbe
from kafkad.model import NO_EPOCH, NO_LEADER
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.replica.following import Following
from kafkad.replica.isr import DEFAULT_LAG, LagLimits
from kafkad.replica.leading import FollowerFetch, IsrChange, Leading, begin
from kafkad.replica.quota import ReplicationQuota, is_throttled
from kafkad.replica.selector import nearest
from kafkad.replica.waits import Waits, Watcher
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import RECORD_COUNT, Header

log = logging.getLogger(__name__)

OnCommitted = Callable[[KafkaError | None], None]
OnDeleted = Callable[[KafkaError | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The role that the controller gave to this replica last."""

    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()


def _nobody_asks(partition: Partition, change: IsrChange) -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class ReplicaParts:
    """Everything that the replicas of one broker have in common."""

    broker_id: int
    clock: Clock
    waits: Waits
    durable: Durable
    lag: LagLimits = DEFAULT_LAG
    metadata: MetadataCache = field(default_factory=MetadataCache)
    on_isr_change: Callable[[Partition, IsrChange], bool] = _nobody_asks
    """Asks the controller for another ISR and later calls `isr_altered` or `isr_kept`; False when it cannot ask."""
    leader_quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    """leader.replication.throttled.rate"""
    follower_quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    """follower.replication.throttled.rate"""


class Partition:
    """Every produce and fetch of one partition goes through here."""

    __slots__ = (
        "__weakref__",
        "_acks_fsync",
        "_alone",
        "_alone_in_sync",
        "_parts",
        "_verified",
        "appends_as_is",
        "broker_id",
        "commit_waits",
        "commits_at_once",
        "deletion_waits",
        "end_watchers",
        "enough_in_sync",
        "failure",
        "flushed_only",
        "following",
        "high_watermark",
        "is_leader",
        "leader_epoch",
        "leading",
        "log",
        "probe",
        "role",
        "stopped",
        "tp",
        "watchers",
    )

    def __init__(
        self, tp: TopicPartition, log: Log, parts: ReplicaParts, probe: TopicProbe, high_watermark: int
    ) -> None:
        self.tp = tp
        self.log = log
        self._parts = parts
        self._verified = -1
        """The offset whose batch was looked at last because a follower asked for it again."""
        self.broker_id = parts.broker_id
        self.role = Role()
        self.leader_epoch = NO_EPOCH
        self.is_leader = False
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.stopped = False
        """Deleted here, or handed over to another broker."""
        self.high_watermark = high_watermark
        self.clip_high_watermark()
        self.watchers: dict[Watcher, None] = {}
        """Told, once, when the high watermark moves."""
        self.end_watchers: dict[Watcher, None] = {}
        """Followers', told, once, when the log grows."""
        self.commit_waits: deque[tuple[int, OnCommitted]] = deque()
        self.deletion_waits: dict[OnDeleted, int] = {}
        self.failure: KafkaError | None = None
        """The reason why this replica is offline (its log directory failed); None while it is online."""
        self.probe = probe
        log.on_start_moved = self._tell_watchers
        self._settle()

    # -- role ------------------------------------------------------------------------------------------------------

    def become(self, role: Role) -> None:
        """Take the role of a LeaderAndIsr whose epochs the caller has checked."""
        was_leader, old_epoch = self.is_leader, self.leader_epoch
        self.role = role
        self.leader_epoch = role.leader_epoch
        self.is_leader = role.leader == self.broker_id
        if self.is_leader and (not was_leader or old_epoch != role.leader_epoch):
            self._tell_of_later_epoch(role.leader_epoch)
            self.log.assign_epoch(role.leader_epoch, self.log.end_offset)
            if role.leader_epoch > 0:
                self.log.producers.leads_from(self.log.end_offset, self._parts.clock)
        if role.leader_epoch > old_epoch + 1:
            self.leading = None  # another broker may have led meanwhile, and followers have truncated what they had
        self._take_part(role)
        self._settle()
        self._advance()
        if not self.is_leader:
            self.log.producers.forget_verifications()
            self._refuse_waits()
        self._end_deletion_waits()
        self._tell_all()

    def _tell_of_later_epoch(self, leader_epoch: int) -> None:
        """Of one in its log. As in Kafka it is led all the same: who refused would leave it without a leader."""
        latest = self.log.last_epoch
        if latest is not None and latest > leader_epoch:
            log.error(
                "%s is led here in leader epoch %d, and its log has records of epoch %d: the metadata store is older "
                "than the log. A coordinator in an earlier epoch than one of before cannot end transactions: put back "
                "a newer copy of the store, or raise leader_epoch there, in the state of the partition",
                self.tp,
                leader_epoch,
                latest,
            )

    def _take_part(self, role: Role) -> None:
        if not self.is_leader:
            self.leading, self.following = None, Following(self)
            return
        self.following = None
        self.leading = begin(
            role.isr,
            role.replicas,
            self.broker_id,
            before=self.leading,
            end_offset=self.log.end_offset,
            now_ms=self._parts.clock.monotonic_ms(),
            lag=self._parts.lag,
        )

    def update_config(self, config: LogConfig) -> None:
        self.log.update_config(config)
        self._settle()
        self._advance()
        self._tell_watchers()

    def take_log(self, log: Log) -> None:
        """The same records in another log directory, where as many of them are on the disk; go on there."""
        log.update_config(self.log.config)
        self.log = log
        log.on_start_moved = self._tell_watchers
        self._settle()
        self._tell_watchers()

    def fail(self, error: KafkaError) -> None:
        """Its directory is gone: every request from now on, and every one that waits, gets this error."""
        self.failure = error
        self.leading = self.following = None
        self._settle()
        self._refuse_waits()
        self._tell_all()

    def retire(self) -> None:
        """It is being deleted or handed over; holders of this object must look the partition up again."""
        self.stopped = True
        self.is_leader = False
        self.leading = self.following = None
        self._settle()
        self.log.forget_listeners()
        self._refuse_waits()
        self._tell_all()

    def _settle(self) -> None:
        """Work out, once per change, what the hot path asks with every request."""
        config = self.log.config
        self.enough_in_sync = len(self.role.isr) >= self.min_isr
        """For a write with acks=all."""
        self._alone = self.leading is not None and not self.leading.followers and self.enough_in_sync
        """No other replica has to be asked."""
        self._alone_in_sync = self.is_leader and self.role.isr == (self.broker_id,)
        self._acks_fsync = config.acks_fsync
        self.commits_at_once = self._alone and not config.acks_fsync
        """True if records are committed when `append` returns, so that `when_committed` is not needed."""
        self.flushed_only = config.read_flushed_only
        if self.flushed_only:
            self.log.on_flushed = self._flushed
        self.appends_as_is = self.is_leader and self.failure is None and config.takes_batches_as_they_came
        """A sound batch of a producer only has to be appended."""

    def serves_throttled(self, follower: int) -> bool:
        """True if what `follower` fetches counts for the leader's replication quota: it is not in sync."""
        throttled = self.log.config.leader_replication_throttled_replicas
        return is_throttled(throttled, self.tp.partition, self.broker_id) and follower not in self.role.isr

    @property
    def fetches_throttled(self) -> bool:
        """True if what this follower fetches counts for its replication quota."""
        throttled = self.log.config.follower_replication_throttled_replicas
        return is_throttled(throttled, self.tp.partition, self.broker_id)

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, which never asks for more replicas than the partition has."""
        return min(self.log.config.min_insync_replicas, len(self.role.replicas))

    # -- produce ---------------------------------------------------------------------------------------------------

    def append(
        self,
        view: memoryview,
        at: int,
        end: int,
        header: Header,
        origin: Origin = Origin.CLIENT,
        marker: ControlRecord | None = None,
    ) -> int:
        """HOT. Append one checked batch as leader; returns its base offset. `marker` as for `Log.append`."""
        log = self.log
        base = log.append(view, at, end, header, self.leader_epoch, origin, marker)
        if self._alone:
            self.high_watermark = log.end_offset
            if self.watchers:
                self._tell_watchers()
        elif self._alone_in_sync:
            self._advance()
        if self.end_watchers:
            self._tell_end_watchers()
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
        """Move the high watermark to where it may be by now; it stands while too few are in sync."""
        leading = self.leading
        if leading is None or not self.enough_in_sync:
            return
        end_offset = self.log.end_offset
        offset = end_offset
        if leading.followers:
            now_ms = self._parts.clock.monotonic_ms()
            offset = leading.high_watermark(self.high_watermark, end_offset, now_ms, self._parts.metadata.brokers)
        self.raise_high_watermark(offset)

    def raise_high_watermark(self, offset: int) -> None:
        """It never goes back, but when the log itself does."""
        if self.high_watermark < offset:
            self.high_watermark = offset
            self.log.producers.committed_until(offset)
            self._tell_watchers()
            while self.commit_waits and self.commit_waits[0][0] <= self.high_watermark:
                self.when_committed(*self.commit_waits.popleft())

    # -- committed -------------------------------------------------------------------------------------------------

    def clip_high_watermark(self) -> None:
        """The log has been cut, or was emptied to start at another offset."""
        self.high_watermark = min(max(self.high_watermark, self.log.start_offset), self.log.end_offset)

    def when_committed(self, end: int, on_committed: OnCommitted) -> None:
        """Call back, once, when what was appended before `end` is committed: the high watermark is there and, with
        `kafkad.acks.fsync`, the disk has it.

        With an error when this replica stops being the leader before, its disk fails, or too few replicas are in sync
        by then. To be asked right after the append; what is committed by then is called back before this returns.
        """
        if end > self.high_watermark:
            if self.is_leader and self.failure is None:
                self._await_commit(end, on_committed)
            else:
                on_committed(self.not_leading())
        elif self._acks_fsync:
            self._parts.durable.sync(self.log, partial(self._committed, on_committed))
        else:
            self._committed(on_committed, None)

    def forget_commit(self, on_committed: OnCommitted) -> None:
        """It need not be called any more. The oldest waits come first, and are the first to be given up."""
        for place, (_, waiting) in enumerate(self.commit_waits):
            if waiting is on_committed:
                del self.commit_waits[place]
                return

    def _await_commit(self, end: int, on_committed: OnCommitted) -> None:
        """In the order of offsets: a batch that is sent again stands before others that wait already."""
        waits = self.commit_waits
        place = len(waits)
        while place and waits[place - 1][0] > end:
            place -= 1
        waits.insert(place, (end, on_committed))

    def _committed(self, on_committed: OnCommitted, error: KafkaError | None) -> None:
        if error is None and self.is_leader and not self.enough_in_sync:
            error = self._too_few_in_sync(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        on_committed(error)

    def not_leading(self) -> KafkaError:
        return self.failure or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker no longer leads {self.tp}")

    def _refuse_waits(self) -> None:
        error = self.not_leading()
        waiting = *(on_committed for _, on_committed in self.commit_waits), *self.deletion_waits
        self.commit_waits, self.deletion_waits = deque(), {}
        for on_end in waiting:
            on_end(error)

    # -- watchers --------------------------------------------------------------------------------------------------

    def _tell_watchers(self) -> None:
        watchers, self.watchers = self.watchers, {}
        for watcher in watchers:
            watcher.watermark_moved()

    def _tell_end_watchers(self) -> None:
        watchers, self.end_watchers = self.end_watchers, {}
        for watcher in watchers:
            watcher.end_moved()

    def _tell_all(self) -> None:
        """Its role or its disk is another, or it is gone."""
        self._tell_watchers()
        self._tell_end_watchers()

    # -- followers -------------------------------------------------------------------------------------------------

    def check_replica(self, broker: int, current_leader_epoch: int) -> None:
        """Refuse the fetch of a broker that is no follower. It may know of a newer assignment: it tries again."""
        if self.leading is None or broker not in self.leading.followers:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if current_leader_epoch == NO_EPOCH
                else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {broker} holds no replica of {self.tp}",
            )

    def serves_in_sync(self, broker: int, leader_epoch: int) -> bool:
        """HOT. True if this replica leads in that epoch, and the broker is a follower of it that is in sync."""
        leading = self.leading
        return (
            leading is not None
            and self.leader_epoch == leader_epoch
            and self.failure is None
            and broker in leading.followers
            and broker in self.role.isr
        )

    def goes_on(self, broker: int, offset: int, last_epoch: int) -> bool:
        """HOT. True if nothing has to be looked at in the fetch of a follower in sync, whose leader epoch was checked:
        it has the same records as this log up to `offset`, and was not given what comes next before."""
        log, leading = self.log, self.leading
        if leading is None or broker not in self.role.isr or last_epoch != log.last_epoch:
            return False
        known, end = leading.followers.get(broker), log.end_offset
        return known is not None and log.start_offset <= offset <= end and (offset == end or known.end_offset < offset)

    def fetched_by(self, broker: int, offset: int, start_offset: int, broker_epoch: int = NO_EPOCH) -> None:
        """A follower has everything before `offset`, for it asks for what comes from there on. The epoch is that of its
        registration, if it says so."""
        leading = self.leading
        assert leading is not None
        if not self.log.start_offset <= offset <= self.log.end_offset:
            return  # it will be told so
        if not leading.note_epoch(broker, broker_epoch):
            return
        before, start_before, _, _, leader_end = leading.followers[broker]
        if offset == before and offset < leader_end and offset != self._verified:
            self._verified = offset
            verify_batch(self.log, offset)  # there was something to take: was it refused?
        leading.fetched(broker, offset, start_offset, self.log.end_offset, self._parts.clock.monotonic_ms())
        self._propose(leading.joined_by(self.high_watermark, self._parts.metadata.brokers))
        if offset != before:
            self._advance()
        if start_offset != start_before:
            self._end_deletion_waits()

    def fetched_through(self, broker: int, fetch: FollowerFetch) -> None:
        """A follower, which has been checked to be one, asks for this partition by that fetch."""
        leading = self.leading
        assert leading is not None
        leading.fetches[broker] = fetch

    def is_followed(self, since_ms: float) -> bool:
        """True if this broker still led at that time, by what is known of its followers: whoever may be elected next
        followed it then, or later."""
        leading = self.leading
        return leading is not None and leading.is_followed(self.leader_epoch, since_ms)

    def ask_followers(self, since_ms: float) -> None:
        """Has the fetches answered early of followers on which it depends whether it `is_followed`: their next ones say
        so, as soon as they are here."""
        leading = self.leading
        if leading is not None:
            leading.answer_early(self.leader_epoch, since_ms)

    def was_at_end(self, broker: int, offset: int, now_ms: float) -> None:
        """The follower fetched from `offset` on at that time, and there was nothing: for it there still is not."""
        if self.leading is not None:
            self.leading.was_at_end(broker, offset, now_ms)

    def expel_laggards(self) -> None:
        """Ask for an ISR without the followers that have not caught up for too long. To be called now and then."""
        leading = self.leading
        if leading is not None and leading.followers:
            self._propose(leading.left_by(self.log.end_offset, self._parts.clock.monotonic_ms()))
            self._advance()  # those outside the ISR that have fallen behind are not waited for any more
            leading.forget_refusals()

    def brokers_changed(self, alive: Container[int]) -> None:
        """Followers that have died are not waited for any more, unless they are in the ISR; one may have come back."""
        leading = self.leading
        if leading is not None and leading.followers:
            leading.forget_gone(alive)
            leading.forget_refusals()
            self._advance()
            self._end_deletion_waits()

    def _propose(self, isr: tuple[int, ...] | None) -> None:
        leading = self.leading
        if isr is None or leading is None:
            return
        leading.proposed = isr
        change = IsrChange(isr, self.role.isr, self.leader_epoch, self.role.partition_epoch, leading.joining(isr))
        if not self._parts.on_isr_change(self, change):
            leading.proposed = None

    def isr_altered(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        """The controller has written this ISR; news of an earlier state say nothing."""
        leading = self.leading
        if leading is None or leader_epoch != self.leader_epoch or partition_epoch < self.role.partition_epoch:
            return
        self.role = replace(self.role, isr=isr, partition_epoch=partition_epoch)
        left = set(leading.isr).difference(isr)  # these come back by a fetch of theirs
        leading.isr, leading.proposed = isr, None
        leading.refused -= set(isr)
        self._settle()
        self._advance()
        if left:
            self._tell_end_watchers()  # one that is not in sync is looked at with every fetch
        self._propose(leading.joined_by(self.high_watermark, self._parts.metadata.brokers.keys() - left))

    def isr_kept(self, change: IsrChange) -> bool:
        """The controller has refused the change for good: the ISR is the one before. True if it is news here that a
        follower cannot join."""
        leading = self.leading
        if leading is None or change.leader_epoch != self.leader_epoch or change.isr != leading.proposed:
            return False
        is_news = leading.kept(change)
        self._advance()
        if len(change.isr) > len(leading.isr):
            self._propose(leading.joined_by(self.high_watermark, self._parts.metadata.brokers))
        return is_news

    # -- fetch -----------------------------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The start of the first transaction that is still open, if that is before the high watermark."""
        unstable = self.log.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def visible(self, read_committed: bool) -> tuple[int, int, int]:
        """HOT. The high watermark and the last stable offset as consumers are told them, and which of them a reader
        may not pass: with `read_committed` nothing at or after the first transaction that is still open.

        With `kafkad.read.flushed.only` only what is on the disk counts.
        """
        watermark = self.high_watermark
        unstable = self.log.first_unstable_offset(watermark)
        if self.flushed_only:
            watermark = min(watermark, self.log.flushed_until)
        stable = watermark if unstable is None or unstable > watermark else unstable
        return watermark, stable, stable if read_committed else watermark

    def _flushed(self) -> None:
        if self.flushed_only:
            self._tell_watchers()

    def read(self, offset: int, max_bytes: int, upto: int, at_least_one: bool) -> Slice | None:
        """HOT. Whole batches below `upto`; OFFSET_OUT_OF_RANGE outside the log, nothing between `upto` and its end."""
        found = self.log.read(offset, max_bytes, upto, at_least_one) if offset < upto else None
        if found is None and (offset > self.log.end_offset or offset < self.log.start_offset):
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within {self.log.start_offset} to {self.log.end_offset} of {self.tp}",
            )
        return found

    def check_leader(self, current_leader_epoch: int) -> None:
        """Fence a client by the leader epoch it believes in (-1: it does not say), as KIP-320 has it."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.tp}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """The same for one that may read from a follower."""
        if self.failure is not None:
            raise self.failure
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{self.tp} is in leader epoch {self.leader_epoch}")
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.tp} is in leader epoch {self.leader_epoch}")

    def check_high_watermark(self) -> None:
        """Refuse while it may be behind what was committed, and read, before this broker led.

        A new leader learns from its followers' fetches how far they are: then it has passed the start of the epoch.
        """
        leading = self.leading
        if leading is not None and self.high_watermark < leading.epoch_start:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the leader of {self.tp} does not know yet what is committed before {leading.epoch_start}",
            )

    def nearest(self, rack: str, offset: int) -> int:
        """The broker that a consumer in this rack is to read from (KIP-392); this one if it does not lead."""
        leading = self.leading
        if leading is None:
            return self.broker_id
        brokers = self._parts.metadata.brokers
        return nearest(rack, offset, self.broker_id, leading.followers, self.role.isr, brokers)

    # -- deletion of records ---------------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Move the start of the log up to `offset` (-1: the high watermark); returns that offset."""
        wanted = self.high_watermark if offset == -1 else offset
        if wanted > self.high_watermark or wanted < -1:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp} can be cut up to {self.high_watermark}, not {offset}"
            )
        if wanted > self.log.start_offset:
            self.log.increment_start_offset(wanted)
        return wanted

    @property
    def low_watermark(self) -> int:
        """The offset before which no live replica has records; of a replica that does not lead, the start of its log.

        A copy that is being made in another log directory takes this log's start before it takes its place."""
        start, leading = self.log.start_offset, self.leading
        return start if leading is None else leading.low_watermark(start, self._parts.metadata.brokers)

    def when_deleted(self, offset: int, on_deleted: OnDeleted) -> None:
        """Call back, once, when the low watermark is at `offset`: until then what is before it could come back with
        another leader. With an error when this replica stops being the leader before, or its disk fails. What is so by
        now is called back before this returns."""
        if not self.is_leader or self.failure is not None:
            on_deleted(self.not_leading())
        elif self.low_watermark >= offset:
            on_deleted(None)
        else:
            self.deletion_waits[on_deleted] = offset
            self._tell_end_watchers()

    def forget_deletion(self, on_deleted: OnDeleted) -> None:
        """It need not be called any more, if it has not been."""
        self.deletion_waits.pop(on_deleted, None)

    def _end_deletion_waits(self) -> None:
        """Of those that the followers, or who is left of them, have come up to."""
        if self.deletion_waits:
            low = self.low_watermark
            for on_deleted in [each for each, offset in self.deletion_waits.items() if offset <= low]:
                del self.deletion_waits[on_deleted]
                on_deleted(None)
