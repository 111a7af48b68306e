"""Sends records, to all leaders at once, with one request on its way to each: that keeps the order, also of what has
to be sent again, and while the broker writes the one, we build the next.

What is sent again: anything a broker surely has not written; and what it may have written only if it would know the
repetition by its producer's sequence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kctl.errors import Disconnected, KctlError, failure
from kctl.reach.connection import Connection
from kctl.reach.session import Session
from kctl.records.batches import NOBODY, Batch, PartitionQueue, Producer
from kctl.records.channels import Answer, Channels
from kctl.texts.spelling import quote

if TYPE_CHECKING:
    from kafkad.wire.messages.produce import (
        PartitionProduceData,
        PartitionProduceResponse,
        ProduceRequest,
        ProduceResponse,
    )

_BACKOFF_SECONDS = 0.1
_BUFFERED_BYTES = 32 << 20
_REQUEST_BYTES = 1 << 20
_LAST_BEFORE_IMPLICIT_TRANSACTIONS = 11
_NOT_WRITTEN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
_PERHAPS_WRITTEN = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NETWORK_EXCEPTION,
}
_TOO_LARGE: dict[int, str] = {
    ErrorCode.MESSAGE_TOO_LARGE: "max.message.bytes",
    ErrorCode.RECORD_LIST_TOO_LARGE: "segment.bytes",
}
"""Codes that say that a batch is larger than this setting of the topic."""
_OF_THE_RECORDS = _TOO_LARGE.keys() | {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.CORRUPT_MESSAGE}
"""Faults of one batch: others may well be taken."""


class Options(NamedTuple):
    acks: int = -1
    codec: int = 0
    level: int | None = None
    batch_bytes: int = 512 * 1024
    linger: float = 0.005


class Undelivered(NamedTuple):
    """The records of one batch, by their marks."""

    where: TopicPartition
    marks: list[int]
    error: KctlError


class Delivered(NamedTuple):
    where: TopicPartition
    first_offset: int
    """-1 where the broker does not say (acks 0)."""
    batch: Batch


class Sender:
    """Sends records to brokers, in batches. `on_delivered` is called for each batch when it is acknowledged."""

    def __init__(
        self,
        session: Session,
        options: Options,
        producer: Producer = NOBODY,
        *,
        transactional_id: str | None = None,
        on_delivered: Callable[[Delivered], None] = lambda _: None,
        before_send: Callable[[TopicPartition], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.undelivered: list[Undelivered] = []
        self.broken: KctlError | None = None
        """The error that makes it useless to send more."""
        self._session = session
        self._options = options
        self._producer = producer
        self._transactional_id = transactional_id
        self._on_delivered = on_delivered
        self._before_send = before_send
        self._clock = clock
        self._channels: Channels[list[TopicPartition], ProduceResponse] = Channels(session, clock)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._not_before: dict[TopicPartition, float] = {}
        self._trouble_since: dict[TopicPartition, float] = {}
        self._in_doubt: set[TopicPartition] = set()
        """Partitions whose first batch may have been written, by a request that was not answered, or not well."""
        self._buffered = 0
        self._limits: dict[tuple[str, str], int | None] = {}

    def add(self, where: TopicPartition, record: Record, mark: int = 0) -> None:
        """Takes a record to be sent, and what it is to be known by; waits when too much is on its way already."""
        queue = self._queue(where)
        batches = len(queue.batches)
        self._buffered += queue.add(record, mark, self._options.batch_bytes, self._clock())
        if len(queue.batches) > batches > 0:
            self._make_room()

    def extend(self, where: TopicPartition, values: Sequence[bytes], timestamp: int, mark: int) -> None:
        """Adds records that are only values, as `add` does one; `mark` is the first one's."""
        queue = self._queue(where)
        while values:
            batches = len(queue.batches)
            count, size = queue.extend(values, timestamp, mark, self._options.batch_bytes, self._clock())
            self._buffered += size
            if len(queue.batches) > batches > 0:
                self._make_room()
            values = values[count:]
            mark += count

    def _queue(self, where: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(where)
        if queue is None:
            queue = self._queues[where] = PartitionQueue()
        return queue

    def _make_room(self) -> None:
        """Sends what is due after a batch has become full, and waits while too much is buffered."""
        self.poll(0)
        while self._buffered > _BUFFERED_BYTES and self.broken is None:
            self.poll(0.1)

    def poll(self, seconds: float) -> None:
        """Sends what is due and takes the answers that come within that time."""
        self._send_due(self._options.linger)
        self._take(seconds)

    def flush(self) -> None:
        """Returns when everything is delivered, or cannot be."""
        while self._pending():
            self._send_due(0)
            self._take(0.1)

    def close(self) -> None:
        self._channels.close()

    def _pending(self) -> bool:
        if self.broken is not None:
            self._give_up_rest(self.broken)
        return any(queue.batches for queue in self._queues.values())

    # --- sending

    def _send_due(self, linger: float) -> None:
        now = self._clock()
        by_leader: dict[int, list[TopicPartition]] = {}
        for where, queue in self._queues.items():
            if queue.is_due(now, linger) and self._not_before.get(where, 0.0) <= now:
                leader = self._leader(where)
                if leader is not None and not self._channels.is_busy(leader):
                    by_leader.setdefault(leader, []).append(where)
        for leader, partitions in by_leader.items():
            self._send(leader, partitions)

    def _leader(self, where: TopicPartition) -> int | None:
        leader = self._leaders.get(where)
        if leader is not None:
            return leader
        try:
            if where in self._trouble_since:
                self._session.metadata([where.topic])
            found = self._session.leaders([where])[where]
        except KctlError as error:
            found = error
        if isinstance(found, KctlError):
            self._again(where, found)
            return None
        self._leaders[where] = found
        return found

    def _send(self, leader: int, partitions: list[TopicPartition]) -> None:
        for where in partitions:
            self._before_send(where)
        size = 0
        sent: list[TopicPartition] = []
        for where in partitions:
            size += self._queues[where].batches[0].bytes
            if sent and size > _REQUEST_BYTES:
                break
            sent.append(where)
            self._queues[where].in_flight = True
        timeout = self._session.settings.timeout
        if self._options.acks == 0:
            self._send_and_forget(leader, sent)
            return
        version = _LAST_BEFORE_IMPLICIT_TRANSACTIONS if self._transactional_id else None
        self._channels.send(leader, lambda c: self._request(c, sent), sent, timeout + 1, version)

    def _send_and_forget(self, leader: int, sent: list[TopicPartition]) -> None:
        try:
            self._channels.tell(leader, lambda c: self._request(c, sent))
        except KctlError as error:
            self._taken(Answer(leader, sent, error, sent=False))
            return
        for where in sent:
            self._delivered(where, -1)

    def _request(self, connection: Connection, partitions: list[TopicPartition]) -> ProduceRequest:
        from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

        topics: dict[str, list[PartitionProduceData]] = {}
        for where in partitions:
            data = self._queues[where].encoded(self._producer, self._options.codec, self._options.level)
            topics.setdefault(where.topic, []).append(PartitionProduceData(index=where.partition, records=data))
        return ProduceRequest(
            transactional_id=self._transactional_id,
            acks=self._options.acks,
            timeout_ms=int(self._session.settings.timeout * 1000),
            topic_data=[TopicProduceData(name=topic, partition_data=data) for topic, data in topics.items()],
        )

    # --- taking answers

    def _take(self, seconds: float) -> None:
        for answer in self._channels.wait(min(seconds, self._until_due()) if not self._channels.busy else seconds):
            self._taken(answer)
        self._send_due(self._options.linger)

    def _until_due(self) -> float:
        return _BACKOFF_SECONDS / 10 if any(queue.batches for queue in self._queues.values()) else _BACKOFF_SECONDS

    def _taken(self, answer: Answer[list[TopicPartition], ProduceResponse]) -> None:
        sent = answer.tag
        for where in sent:
            self._queues[where].in_flight = False
        if isinstance(answer.response, KctlError):
            for where in sent:
                self._unanswered(where, answer.response, answer.sent)
            return
        parts = {
            TopicPartition(topic.name, part.index): part
            for topic in answer.response.responses
            for part in topic.partition_responses
        }
        for where in sent:
            part = parts.get(where)
            if part is None:
                self._unanswered(where, Disconnected(f"broker {answer.broker} did not answer for {where}"), True)
            elif part.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._delivered(where, part.base_offset if not part.error_code else -1)
            else:
                self._refused(where, part)

    def _delivered(self, where: TopicPartition, offset: int) -> None:
        queue = self._queues[where]
        queue.in_flight = False
        batch = queue.batches.popleft()
        self._buffered -= batch.bytes
        self._trouble_since.pop(where, None)
        self._in_doubt.discard(where)
        self._on_delivered(Delivered(where, offset, batch))

    def _unanswered(self, where: TopicPartition, error: KctlError, sent: bool) -> None:
        if sent:
            self._in_doubt.add(where)
        if not isinstance(error, Disconnected):
            self._give_up(where, error)
            self.broken = error
        elif self._producer.id >= 0 or not sent:
            self._again(where, error)
        else:
            self._give_up(where, error.with_hint("with --idempotent they would have been sent again"))
            self.broken = error

    def _refused(self, where: TopicPartition, part: PartitionProduceResponse) -> None:
        code = part.error_code
        batch = self._queues[where].batches[0]
        what = f"partition {where} does not take the records"
        if code in _PERHAPS_WRITTEN:
            self._in_doubt.add(where)
        if setting := _TOO_LARGE.get(code):
            if batch.count > 1:
                self._queues[where].split()
                return
            limit = self._limit_of(where.topic, setting)
            what += "" if limit is None else f": it takes {limit:,} bytes at once"
            error = failure(code, what, hints=[_room(where.topic, setting, batch.bytes, self._options.codec)])
        else:
            error = failure(code, what, part.error_message)
        if code in _NOT_WRITTEN or (code in _PERHAPS_WRITTEN and self._producer.id >= 0):
            self._again(where, error)
        else:
            self._give_up(where, error)
            if code not in _OF_THE_RECORDS:
                self.broken = error

    def _limit_of(self, topic: str, setting: str) -> int | None:
        """The most bytes that a batch may have there by this setting; None if it cannot be seen."""
        if (topic, setting) not in self._limits:
            from kctl.configs.of_topics import topic_settings

            entries = topic_settings(self._session, [topic], [setting]).of.get(topic, ())
            self._limits[topic, setting] = next((int(entry.value) for entry in entries if entry.value), None)
        return self._limits[topic, setting]

    def _again(self, where: TopicPartition, error: KctlError) -> None:
        """Later, and perhaps to another leader; not after the time-out."""
        now = self._clock()
        self._leaders.pop(where, None)
        self._not_before[where] = now + _BACKOFF_SECONDS
        if now - self._trouble_since.setdefault(where, now) >= self._session.settings.timeout:
            self._give_up(where, error)
            self.broken = error

    def _give_up(self, where: TopicPartition, error: KctlError) -> None:
        batch = self._queues[where].drop()
        self._buffered -= batch.bytes
        if where in self._in_doubt:
            self._in_doubt.discard(where)
            what = f"{error.what}; the records may be in {where} or not"
            error = KctlError(what, exit_code=error.exit_code, code=error.code, hints=error.hints)
        self.undelivered.append(Undelivered(where, batch.marks, error))

    def _give_up_rest(self, error: KctlError) -> None:
        for where, queue in self._queues.items():
            while queue.batches and not queue.in_flight:
                told = f"{where}: not sent{' again' * (where in self._in_doubt)}, after this: {error.what}"
                self._give_up(where, KctlError(told, exit_code=error.exit_code, code=error.code, hints=error.hints))


def _room(topic: str, setting: str, size: int, codec: int) -> str:
    """What helps a record that is too large for this setting, alone in its batch of so many bytes."""
    packed, smaller = (" before compression", "") if codec else ("", "; --compression zstd makes it smaller")
    wider = f"kctl configs set {quote(f'topic/{topic}')} {setting}=… allows more"
    return f"the record takes {size:,} bytes{packed}: {wider}{smaller}"
