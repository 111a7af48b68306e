"""Commits, fetches and deletes offsets of groups: checks the request and writes the records.

The codes of a refused write are Kafka's (3.9): clients know by them whether to look for another coordinator.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import State
from kafkad.group.group import Group
from kafkad.group.machine import GroupMachine
from kafkad.group.offsets import Committed, Position, kept, pack
from kafkad.group.records import NO_TIMESTAMP, OffsetCommitted, encode, offset_key, offset_value
from kafkad.metrics import Family, counters
from kafkad.replica.partition import Partition
from kafkad.shard import NO_PRODUCER, Coordination, Prepared, Repeating, Shard, TransactionalProducer, body_of
from kafkad.timers import Timers
from kafkad.turns import Pieces

DEFAULT_RETENTION = -1
_FIRST_SEQUENCE = 0
"""Kafka writes commits so, as if a producer had sent them, although there is no producer id."""

_AT_ONCE = 100
DELETED_AT_ONCE = 250
_USUAL_SIZE = len(offset_value(0, -1, "", 0))

Codes = list[ErrorCode]

_REFUSED_WRITE = {
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
"""The codes of a write that was too large; the shard has translated the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSettings:
    max_metadata_size: int
    commit_timeout_ms: int
    retention_ms: int
    check_interval_ms: int

    @classmethod
    def of(cls, config: Config) -> OffsetSettings:
        return cls(
            max_metadata_size=config.int("offset.metadata.max.bytes"),
            commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
            retention_ms=config.int("offsets.retention.minutes") * 60_000,
            check_interval_ms=config.long("offsets.retention.check.interval.ms"),
        )


class Committer(NamedTuple):
    """The sender of a commit: a member of a generation, or a client outside the group (-1 and an empty member id)."""

    group: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class OffsetToCommit(NamedTuple):
    """One offset to commit; a timestamp of -1 is now."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    timestamp: int = NO_TIMESTAMP


class PreparedCommit(NamedTuple):
    """Many offsets for one group, as they are written if it still takes them."""

    fits: list[bool]
    """False for an offset whose metadata is too long: it has no record."""
    records: list[OffsetCommitted]
    values: dict[Position, bytes]
    """What the records say, as `Offsets` keeps it."""
    body: bytes


class Fetched(NamedTuple):
    """An offset as it was committed; -1 if there is none, or if it cannot be told."""

    position: Position
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class OffsetProbe:
    """Counts of offsets, not of requests."""

    __slots__ = ("committed", "deleted", "expired")

    def __init__(self) -> None:
        self.committed = 0
        self.expired = 0
        self.deleted = 0


class OffsetCommitter:
    def __init__(
        self, coordination: Coordination[GroupMachine], settings: OffsetSettings, clock: Clock, timers: Timers
    ) -> None:
        self.settings = settings
        self.probe = OffsetProbe()
        self.waiting: dict[str, Counter[Position]] = {}
        """Positions being committed, by group: written, but not in effect yet."""
        self._coordination = coordination
        self._clock = clock
        self._timers = timers

    def commit(
        self, who: Committer, asked: Sequence[OffsetToCommit], retention_ms: int = DEFAULT_RETENTION
    ) -> Codes | asyncio.Future[Codes]:
        """HOT. The fate of each offset; later, when its write has to be waited for."""
        try:
            shard = self._shard_for(who)
        except KafkaError as error:
            return [error.code] * len(asked)
        now = self._clock.now_ms()
        return self._write(shard, who.group, *self._recorded(who.group, asked, now, retention_ms))

    def prepare(
        self, who: Committer, asked: Sequence[OffsetToCommit], retention_ms: int = DEFAULT_RETENTION
    ) -> Pieces[PreparedCommit | Codes]:
        """What can be done in turns of a commit of many offsets: all but to write and to apply it. The fate of each,
        without encoding them, where the group refuses them already or no batch could hold them."""
        try:
            shard = self._shard_for(who)
        except KafkaError as error:
            return [error.code] * len(asked)
        now, most, least_size = self._clock.now_ms(), shard.most_bytes, shard.machine.least_size
        size = 0
        fits: list[bool] = []
        records: list[OffsetCommitted] = []
        values: dict[Position, bytes] = {}
        for at in range(0, len(asked), _AT_ONCE):
            some_fit, some = self._recorded(who.group, asked[at : at + _AT_ONCE], now, retention_ms)
            fits += some_fit
            size += sum(map(least_size, some))
            if size <= most:
                records += some
                values.update(map(kept, some))
            yield
        if size > most:
            return _codes(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, fits)
        return PreparedCommit(fits, records, values, (yield from body_of(records, encode)))

    def commit_prepared(self, who: Committer, prepared: PreparedCommit) -> Codes | asyncio.Future[Codes]:
        """As `commit`, by the same that it was prepared for: the group may refuse it by now."""
        try:
            shard = self._shard_for(who)
        except KafkaError as error:
            return [error.code] * len(prepared.fits)
        apply = partial(shard.machine.put_offsets, who.group, prepared.values)
        return self._write(shard, who.group, prepared.fits, prepared.records, prepared=Prepared(prepared.body, apply))

    def commit_in_transaction(
        self, who: Committer, producer: TransactionalProducer, asked: Sequence[OffsetToCommit]
    ) -> Codes | asyncio.Future[Codes]:
        """The same for offsets that count once the producer's transaction commits. That it may write them here has been
        verified."""
        try:
            shard = self._coordination.shard(who.group)
            _check_transactional(shard.machine, who)
        except KafkaError as error:
            return [error.code] * len(asked)
        now = self._clock.now_ms()
        return self._write(shard, who.group, *self._recorded(who.group, asked, now, DEFAULT_RETENTION), producer)

    def home(self, group: str) -> Partition:
        """The partition that has the group's offsets; KafkaError unless the group is coordinated here."""
        return self._coordination.shard(group).partition

    def _recorded(
        self, group: str, asked: Sequence[OffsetToCommit], now: int, retention_ms: int
    ) -> tuple[list[bool], list[OffsetCommitted]]:
        """HOT. Which of the offsets have metadata that fit, and the records of these."""
        limit = self.settings.max_metadata_size
        expire = NO_TIMESTAMP if retention_ms == DEFAULT_RETENTION else _expires_at(now, retention_ms)
        fits = [not one.metadata or metadata_fits(one.metadata, limit) for one in asked]
        records = [
            OffsetCommitted(
                group, topic, partition, offset, epoch, metadata or "", now if at == NO_TIMESTAMP else at, expire
            )
            for (topic, partition, offset, epoch, metadata, at), fit in zip(asked, fits, strict=True)
            if fit
        ]
        return fits, records

    def _write(
        self,
        shard: Shard[GroupMachine],
        group: str,
        fits: list[bool],
        records: list[OffsetCommitted],
        producer: TransactionalProducer = NO_PRODUCER,
        prepared: Prepared | None = None,
    ) -> Codes | asyncio.Future[Codes]:
        """HOT."""
        if not records:
            shard.machine.begin(group)
            return _codes(ErrorCode.NONE, fits)
        writing = Writing()
        shard.write(records, writing.end, _FIRST_SEQUENCE, producer, prepared)
        return self._ended(writing.error, fits) if writing.ended else self._wait(group, records, writing, fits)

    def standing(self, who: Committer, topic: str, partition: int) -> StandingCommit:
        """For a commit that is likely to be repeated."""
        return StandingCommit(self, self._coordination.shard(who.group), who, (topic, partition), self._clock)

    def fetch(self, group: str, positions: Sequence[Position] | None, require_stable: bool) -> Pieces[list[Fetched]]:
        """The committed offsets of these partitions, or of all that the group committed to."""
        offsets = self._coordination.shard(group).machine.offsets
        waiting = frozenset(self.waiting.get(group, ()) if require_stable else ())
        if positions is None:
            committed: Iterable[tuple[Position, Committed | None]] = offsets.of_group(group)
            is_pending = (offsets.pending(group) if require_stable else set[Position]()).__contains__
        else:
            committed = ((position, offsets.committed(group, *position)) for position in dict.fromkeys(positions))
            is_pending = partial(offsets.is_pending, group)
        found = []
        for position, one in committed:
            if require_stable and (position in waiting or is_pending(position)):
                found.append(Fetched(position, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif one is None:
                found.append(Fetched(position))
            else:
                found.append(Fetched(position, one.offset, one.leader_epoch, one.metadata))
            yield
        return found

    def prepare_to_delete(self, group: str) -> Pieces[None]:
        """What can be done in turns. `delete` goes by it, if it follows in the turn in which this ends."""
        _, known = self._to_delete_from(group)
        while known.subscriptions.are_unread:
            yield from known.subscriptions.read()
            _, known = self._to_delete_from(group)  # it may have another generation by now

    def delete(self, group: str, positions: Sequence[Position]) -> Coroutine[None, None, Codes]:
        """The result for each offset, when they are deleted; KafkaError when none may be. An empty group ends with its
        last offset. What its members consume, if that has not been read, may be any topic. They are `DELETED_AT_ONCE`
        at most."""
        machine, known = self._to_delete_from(group)
        in_use = [known.state is not State.EMPTY and known.subscriptions.include(topic) for topic, _ in positions]
        codes = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used else ErrorCode.NONE for used in in_use]
        free = {position for position, used in zip(positions, in_use, strict=True) if not used}
        there = len(machine.offsets.there(group, free))
        writing = Writing()
        if free:
            machine.forget_offsets(group, free, writing.end)
        else:
            writing.end(None)
        return self._deleted(writing, there, codes)

    def _to_delete_from(self, group: str) -> tuple[GroupMachine, Group]:
        if not group:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group has a name")
        machine = self._coordination.shard(group).machine
        known = machine.group(group)
        if known is None or known.state is State.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
        if known.state is not State.EMPTY and not known.is_consumer:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group} has members, which may use any of its offsets")
        return machine, known

    async def _deleted(self, writing: Writing, there: int, codes: Codes) -> Codes:
        error = await self.end_of(writing)
        if error is not None:
            raise KafkaError(_refusal(error), error.message or "")
        self.probe.deleted += there
        return codes

    async def end_of(self, writing: Writing) -> KafkaError | None:
        """What went wrong. Waits at most `offsets.commit.timeout.ms`; the records may still be committed later."""
        if writing.ended:
            return writing.error
        end: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()

        def settle(error: KafkaError | None) -> None:
            if not end.done():
                end.set_result(error)

        late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it is written, but not committed yet")
        timer = self._timers.at(self._clock.monotonic_ms() + self.settings.commit_timeout_ms, partial(settle, late))
        writing.on_end = settle
        try:
            return await end
        finally:
            timer.cancel()

    def collect(self) -> Iterator[Family]:
        """Under the names that JMX exporters give Kafka's metrics."""
        probe = self.probe
        counts = {
            "offset_commit": probe.committed,
            "offset_expiration": probe.expired,
            "offset_deletion": probe.deleted,
        }
        yield from counters("kafka_server_group_coordinator_metrics", counts, "Offsets of groups")

    def _shard_for(self, who: Committer) -> Shard[GroupMachine]:
        """HOT. Where it may commit; KafkaError if it may not."""
        shard = self._coordination.shard(who.group)
        self.check(shard.machine, who)
        return shard

    def check(self, machine: GroupMachine, who: Committer) -> None:
        """HOT. A client outside any group may commit to a group that has no members, or is not known yet."""
        group = machine.groups.get(who.group)
        if group is not None:
            group.check_commit(who.member_id, who.instance_id, who.generation, self._clock.monotonic_ms())
        else:
            _check_unknown(machine, who)

    def _ended(self, error: KafkaError | None, fits: Sequence[bool]) -> Codes:
        if error is not None:
            return _codes(_refusal(error), fits)
        self.probe.committed += sum(fits)
        return _codes(ErrorCode.NONE, fits)

    def _wait(
        self, group: str, records: Sequence[OffsetCommitted], writing: Writing, fits: Sequence[bool]
    ) -> asyncio.Future[Codes]:
        """Waits for the commit, at most `offsets.commit.timeout.ms`; the records may still be committed later."""
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        positions = Counter((record.topic, record.partition) for record in records)
        self.waiting.setdefault(group, Counter()).update(positions)

        def end(error: KafkaError | None) -> None:
            timer.cancel()
            self._no_longer_waiting(group, positions)
            codes = self._ended(error, fits)
            if not answer.done():
                answer.set_result(codes)

        def give_up() -> None:
            if not answer.done():
                answer.set_result(_codes(ErrorCode.REQUEST_TIMED_OUT, fits))

        timer = self._timers.at(self._clock.monotonic_ms() + self.settings.commit_timeout_ms, give_up)
        writing.on_end = end
        return answer

    def _no_longer_waiting(self, group: str, positions: Counter[Position]) -> None:
        waiting = self.waiting[group]
        for position, count in positions.items():
            if waiting[position] > count:
                waiting[position] -= count
            else:
                del waiting[position]
        if not waiting:
            del self.waiting[group]


class StandingCommit:
    """A repeated commit to one partition, in which only the offset and its metadata change."""

    __slots__ = ("_batch", "_clock", "_committer", "_key", "_machine", "_position", "_shard", "_who")

    def __init__(
        self,
        committer: OffsetCommitter,
        shard: Shard[GroupMachine],
        who: Committer,
        position: Position,
        clock: Clock,
    ) -> None:
        self._committer = committer
        self._shard = shard
        self._machine = shard.machine
        self._who = who
        self._position = position
        self._clock = clock
        self._key = offset_key(who.group, *position)
        self._batch = Repeating(self._key, _USUAL_SIZE, _FIRST_SEQUENCE)

    @property
    def stands(self) -> bool:
        """True if it can still be repeated: the group is coordinated here, and nothing has to be waited for."""
        return self._shard.commits_at_once

    def again(self, offset: int, leader_epoch: int, metadata: str) -> bool:
        """HOT. Commit it, if nothing stands against it and nothing has to be waited for; or do nothing: False."""
        committer, machine, who = self._committer, self._machine, self._who
        try:
            committer.check(machine, who)
        except KafkaError:
            return False
        if metadata and not metadata_fits(metadata, committer.settings.max_metadata_size):
            return False
        now = self._clock.now_ms()
        value = offset_value(offset, leader_epoch, metadata, now)
        batch = self._batch
        if len(value) != batch.value_size:
            batch = self._batch = Repeating(self._key, len(value), _FIRST_SEQUENCE)
        if not self._shard.write_again(batch, value, now):
            return False
        machine.offsets.put(who.group, self._position, pack(offset, leader_epoch, metadata, now))
        committer.probe.committed += 1
        return True


def _check_transactional(machine: GroupMachine, who: Committer) -> None:
    group = machine.groups.get(who.group)
    if group is not None:
        group.check_transactional_commit(who.member_id, who.instance_id, who.generation)
    else:
        _check_unknown(machine, who)


def _check_unknown(machine: GroupMachine, who: Committer) -> None:
    """A group that is not kept: it has never had members, but may have offsets."""
    if who.generation >= 0:
        known = who.group in machine.offsets
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID if known else ErrorCode.ILLEGAL_GENERATION)


def _expires_at(now_ms: int, retention_ms: int) -> int:
    """Beyond what a record can hold, numbers begin again at the least one, as Java's do: that is over at once."""
    return (now_ms + retention_ms + 2**63) % 2**64 - 2**63


def metadata_fits(metadata: str, limit: int) -> bool:
    """Kafka measures Java strings: in UTF-16 units, of which a character has one or two."""
    return len(metadata) * 2 <= limit or len(metadata.encode("utf-16-le")) <= limit * 2


class Writing:
    """The result of a write. `on_end` is called if the write did not end at once."""

    __slots__ = ("ended", "error", "on_end")

    def __init__(self) -> None:
        self.ended = False
        self.error: KafkaError | None = None
        self.on_end: Callable[[KafkaError | None], None] | None = None

    def end(self, error: KafkaError | None) -> None:
        self.ended = True
        self.error = error
        if self.on_end is not None:
            self.on_end(error)


def _codes(code: ErrorCode, fits: Sequence[bool]) -> Codes:
    return [code if fit else ErrorCode.OFFSET_METADATA_TOO_LARGE for fit in fits]


def _refusal(error: KafkaError) -> ErrorCode:
    return _REFUSED_WRITE.get(error.code, error.code)
