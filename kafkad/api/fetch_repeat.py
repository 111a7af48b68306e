"""The quick way of Fetch: the fetch of one partition that a connection sends again and again.

Consumers that read one partition repeat their request but for the correlation id, the offset and, within a session, the
session's epoch. Such a request is recognised by its bytes and answered from a prepared head. Whatever is not quite
ordinary is left to `api/fetch`, with nothing done: errors, waits, aborted transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkad.api.fetch_session import NO_SESSION, SESSIONLESS_EPOCH, Session
from kafkad.errors import KafkaError
from kafkad.log.transactions import aborted_transactions
from kafkad.net.reply import Part
from kafkad.replica.partition import Partition
from kafkad.wire.fetch import FetchFrame, Head, PartitionRequest, layout_of_repeated

if TYPE_CHECKING:
    from kafkad.api.fetch import FetchApi


def may_repeat(frame: FetchFrame, session: Session) -> bool:
    """True if this is a consumer's fetch of one partition, alone or within a session that has no other."""
    if frame.repeats is None or len(session.partitions) != 1 or frame.replica_id >= 0:
        return False
    if frame.topics[0].partitions[0].last_fetched_epoch >= 0:
        return False
    if session.id == NO_SESSION:
        return frame.session_id == NO_SESSION and frame.session_epoch == SESSIONLESS_EPOCH
    return session.incremental


class RepeatedFetch:
    """A request that `may_repeat` and was answered with records of `partition`, and what its answers have in common."""

    __slots__ = (
        "_after",
        "_api",
        "_before",
        "_between",
        "_cached",
        "_head",
        "_max_bytes",
        "_min_bytes",
        "_partition",
        "_read_committed",
        "_session",
        "_size",
        "_unpack",
        "_version",
        "_wanted",
    )

    def __init__(
        self,
        api: FetchApi,
        request: memoryview,
        version: int,
        frame: FetchFrame,
        session: Session,
        partition: Partition,
    ) -> None:
        self._api = api
        layout = layout_of_repeated(frame, len(request))
        self._size = layout.size
        self._unpack = layout.unpack_from
        self._version, _, self._before, _, self._between, _, self._after = self._unpack(request)
        [self._cached] = session.partitions.values()
        self._wanted = self._cached.wanted
        self._partition = partition
        self._max_bytes = min(self._wanted.max_bytes, frame.max_bytes)
        self._min_bytes = frame.min_bytes if frame.max_wait_ms > 0 else 0
        self._read_committed = frame.read_committed
        self._session = session if session.id != NO_SESSION else None
        self._head = Head(version, session.id, self._cached.key, self._wanted.partition, frame.read_committed)

    def answer(self, view: memoryview, at: int, end: int) -> list[Part] | None:
        """HOT. None also when there are no records."""
        if end - at != self._size:
            return None
        version, correlation_id, before, epoch, between, offset, after = self._unpack(view, at)
        if before != self._before or between != self._between or after != self._after or version != self._version:
            return None
        session = self._session
        if epoch != SESSIONLESS_EPOCH if session is None else not self._is_next(session, epoch):
            return None
        return self._reply(correlation_id, offset, min(self._max_bytes, self._api.max_bytes))

    def _reply(self, correlation_id: int, offset: int, max_bytes: int) -> list[Part] | None:
        partition, session, head = self._partition, self._session, self._head
        high_watermark, stable, upto = partition.visible(self._read_committed)
        if offset >= upto:
            return None
        log = partition.log
        try:
            records = log.read(offset, max_bytes, upto)
            if self._read_committed and records is not None and aborted_transactions(log, offset, upto, records):
                return None
        except KafkaError:
            return None
        if records is None or records.length < self._min_bytes:
            return None
        length = records.length
        partition.probe.total_fetch += 1
        partition.probe.bytes_out += length
        start_offset = log.start_offset
        if session is not None:
            self._go_on(session, offset, high_watermark, start_offset)
        parts: list[Part] = [head.pack(correlation_id, high_watermark, stable, start_offset, length), records]
        if head.end:
            parts.append(head.end)
        return parts

    def _is_next(self, session: Session, epoch: int) -> bool:
        partitions = session.partitions.values()
        return (
            self._api.sessions.awaits(session, epoch)
            and len(partitions) == 1
            and next(iter(partitions)) is self._cached
        )

    def _go_on(self, session: Session, offset: int, high_watermark: int, log_start_offset: int) -> None:
        """Bring the session up to date, for the next request that is not this simple."""
        self._api.sessions.advance(session, self._api.now_ms())
        cached = self._cached
        index, leader_epoch, _, last_fetched_epoch, start_offset, max_bytes = self._wanted
        cached.wanted = PartitionRequest(index, leader_epoch, offset, last_fetched_epoch, start_offset, max_bytes)
        cached.high_watermark = high_watermark
        cached.log_start_offset = log_start_offset
        session.moved[cached] = None
