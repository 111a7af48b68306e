"""The quick way of a follower's Fetch: for one partition of its session, which it sends again and again.

While a follower keeps up with a partition, its requests are the same but for the correlation id, the session's epoch
and the offset. Such a request is recognised by its bytes; its records leave behind a prepared head, at once or after a
wait. Whatever is not quite ordinary is left to `api/fetch`, with nothing done: followers that are not in sync, other
partitions that have moved, rights that have to be looked at.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafkad.api.fetch_session import NO_SESSION, CachedPartition, Session
from kafkad.errors import KafkaError
from kafkad.log.files import Slice
from kafkad.net.connection import Connection
from kafkad.net.reply import PENDING, Pending, Reply
from kafkad.replica.partition import Partition
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.wire.fetch import FetchFrame, Head, PartitionRequest, layout_of_repeated

if TYPE_CHECKING:
    from kafkad.api.fetch import FetchApi

_MOST_KNOWN = 256
"""Partitions of one connection."""


def may_repeat(frame: FetchFrame, session: Session) -> bool:
    """True if this is a follower's fetch of one partition, within a session, that waits when there is nothing."""
    return (
        frame.repeats is not None
        and frame.replica_id >= 0
        and session.id != NO_SESSION
        and session.incremental
        and frame.min_bytes == 1
        and frame.max_wait_ms > 0
        and frame.isolation_level == 0
        and frame.topics[0].partitions[0].last_fetched_epoch >= 0
    )


class _Target:
    """One partition, and what requests for it and their answers have in common."""

    __slots__ = ("after", "cached", "head", "max_bytes", "partition", "wanted")

    def __init__(self, after: bytes, cached: CachedPartition, partition: Partition, head: Head, max_bytes: int) -> None:
        self.after = after
        self.cached = cached
        self.partition = partition
        self.head = head
        self.max_bytes = max_bytes
        self.wanted = cached.wanted


class RepeatedFollowerFetch:
    """The requests of one follower's connection, in one version and one session."""

    __slots__ = (
        "_api",
        "_before",
        "_connection",
        "_frame",
        "_session",
        "_size",
        "_targets",
        "_unpack",
        "_version",
    )

    def __init__(
        self,
        api: FetchApi,
        connection: Connection,
        request: memoryview,
        version: int,
        frame: FetchFrame,
        session: Session,
    ) -> None:
        self._api = api
        self._connection = connection
        self._version = version
        self._frame = frame
        self._session = session
        self._targets: dict[bytes, _Target] = {}
        """By the bytes of a request that name a partition and its leader epoch."""
        layout = layout_of_repeated(frame, len(request))
        self._size = layout.size
        self._unpack = layout.unpack_from
        self._before: bytes = self._unpack(request)[2]

    def continues(self, session: Session, frame: FetchFrame, request: memoryview) -> bool:
        """True if requests that are laid out like this one, of the same follower in the same session, may be remembered
        here."""
        mine = self._frame
        if session is not self._session or len(request) != self._size:
            return False
        if (frame.replica_id, frame.replica_epoch) != (mine.replica_id, mine.replica_epoch):
            return False
        version, _, before, *_ = self._unpack(request)
        return bool(version == self._version and before == self._before)

    def remember(self, request: memoryview, cached: CachedPartition, partition: Partition) -> bool:
        """Fetches of this partition in this leader epoch. Whether that is new."""
        _, _, _, _, between, _, after = self._unpack(request)
        known = self._targets.get(between)
        if known is not None and known.after == after and known.cached is cached and known.partition is partition:
            return False
        if len(self._targets) >= _MOST_KNOWN:
            del self._targets[next(iter(self._targets))]
        head = Head(self._version, self._session.id, cached.key, cached.wanted.partition, read_committed=False)
        max_bytes = min(cached.wanted.max_bytes, self._frame.max_bytes)
        self._targets[between] = _Target(after, cached, partition, head, max_bytes)
        return True

    def answer(self, view: memoryview, at: int, end: int) -> Reply | Pending | None:
        """HOT."""
        if end - at != self._size:
            return None
        version, correlation_id, before, epoch, between, offset, after = self._unpack(view, at)
        target = self._targets.get(between)
        if target is None or after != target.after or before != self._before or version != self._version:
            return None
        api, session, frame = self._api, self._session, self._frame
        cached, partition = target.cached, target.partition
        if session.unsure or not session.is_only_about(cached) or not api.sessions.awaits(session, epoch):
            return None
        index, leader_epoch, _, last_epoch, start_offset, max_bytes = target.wanted
        if not partition.goes_on(frame.replica_id, offset, last_epoch):
            return None
        log = partition.log
        records = None
        if offset < log.end_offset:
            records = self._read(target, offset)
            if records is None:
                return None
        session.heard_ms = session.unanswered_ms
        api.sessions.advance(session, api.now_ms())
        cached.wanted = PartitionRequest(index, leader_epoch, offset, last_epoch, start_offset, max_bytes)
        session.moved[cached] = None
        session.restless = False
        cached.watch()  # before others are told what is committed by this: they may append
        self._connection.measure(None)
        partition.fetched_by(frame.replica_id, offset, start_offset, frame.replica_epoch)
        if records is not None:
            return self._reply(target, correlation_id, records)
        partition.probe.total_fetch += 1
        session.looked_at(cached, offset >= log.end_offset, partition.high_watermark, log.start_offset)
        moved = partial(self._moved, target, correlation_id)
        api.wait_on(self._connection, frame, session, version, correlation_id, moved)
        return PENDING

    def _moved(self, target: _Target, correlation_id: int) -> Reply | None:
        """The answer to a fetch that has waited; None if there is none yet, or if it has to go the long way."""
        session, partition = self._session, target.partition
        if session.closed or not session.is_only_about(target.cached):
            return None
        if not partition.serves_in_sync(self._frame.replica_id, target.wanted.leader_epoch):
            return None
        if not self._connection.peer.identity.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            return None
        records = self._read(target, target.cached.wanted.offset)
        return None if records is None else self._reply(target, correlation_id, records)

    def _read(self, target: _Target, offset: int) -> Slice | None:
        log = target.partition.log
        try:
            return log.read(offset, min(target.max_bytes, self._api.max_bytes), log.end_offset)
        except KafkaError:
            return None

    def _reply(self, target: _Target, correlation_id: int, records: Slice) -> Reply:
        session, cached, partition, head = self._session, target.cached, target.partition, target.head
        _, stable, _ = partition.visible(read_committed=False)
        high_watermark, start_offset = partition.high_watermark, partition.log.start_offset
        partition.probe.total_fetch += 1
        cached.high_watermark, cached.log_start_offset = high_watermark, start_offset
        cached.watch()
        session.moved[cached] = None
        return [head.pack(correlation_id, high_watermark, stable, start_offset, records.length), records, head.end]
