"""Produce: versions 3 to 13.

A batch of a transaction is appended where that is open already, or where its coordinator says that it may begin: one
question for all such partitions of a request, before anything is appended.

Three ways, fastest first. *Repeated*: a request for one partition that its peer has sent before is recognised by
`api/produce_repeat`. *Direct*: anything else that can be appended on the spot. *Slow*: a batch that takes long to
open (large and compressed, another codec) goes through a worker process, and the reply comes later. With acks=all a
reply is held back on each of these ways until everything is committed.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final

from kafkad.api.answering import close_for
from kafkad.api.context import client_text
from kafkad.api.delayed_produce import DelayedProduce, DelayedProduces
from kafkad.api.peer import Peer
from kafkad.api.produce_repeat import LONGEST_KNOWN, RepeatedProduce
from kafkad.api.produce_work import Outcome, Work, after, within
from kafkad.api.routes import PRODUCE
from kafkad.api.throttling import Throttle, timed
from kafkad.api.transaction import Admission, Transaction, is_transactional
from kafkad.api.verifier import Verdict, Verifier
from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.batch_workers import BatchWorkers
from kafkad.log.producers import DuplicateBatch
from kafkad.log.validate import (
    Demands,
    NotOneBatch,
    RefusedRecords,
    check_batch,
    demands,
    end_of_batch,
    plain_records_match_header,
    quick_enough,
    rebuild,
    rebuild_quickly,
    stamp,
)
from kafkad.metrics import RequestProbe
from kafkad.names import INTERNAL_TOPICS, is_another_topic
from kafkad.net.connection import Connection, DeferredReply
from kafkad.net.reply import PENDING, Pending, Reply
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.security.authorizer import REFUSALS, Operation, ResourceType
from kafkad.timers import Timers
from kafkad.together import cancelled
from kafkad.turns import Jobs, Pieces, at_once
from kafkad.wire.frames import RequestHeader, read_request_header
from kafkad.wire.primitives import or_malformed
from kafkad.wire.produce import (
    PIECE,
    Answer,
    PartitionData,
    ProduceFrame,
    Success,
    TopicData,
    pack_response,
    pack_response_with_leaders,
    read_produce_in_pieces,
)
from kafkad.wire.records import (
    ATTRIBUTES,
    ATTRIBUTES_AT,
    BATCH_HEADER,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    MAGIC,
    MAGIC_AT,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL,
    Header,
)

log = logging.getLogger(__name__)

RecordsCheck = Callable[[memoryview, int, int, Header], bool]
"""Checks a batch and its records. With many batches in a request, none is decompressed here: they would add up."""


_TOPIC, _TRANSACTION = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
_I32 = struct.Struct(">i")
_BASE_OFFSET = struct.Struct(">q")
_PIECE: Final = 10
"""Requests that are too long to be read at once are worked on in pieces of so many partitions."""
_MOST_AT_ONCE: Final = 500
"""Topics and partitions."""
_FLAGS_AT: Final = ATTRIBUTES_AT + 1
_ACKS_ALL, _ACKS_NONE = -1, 0
_VALID_ACKS = (0, 1, -1)
_SUCCESS: Final = {version: Success(version) for version in range(3, 14)}
_WITH_START_OFFSET = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
_TOLD_WHY = frozenset(
    {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTION_ABORTABLE}
)
_PASSING = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER})
"""The client sends the batch again, and may have sent others behind it."""
_ADMIN_CLIENT = "__admin_client"
_QUICK_UNTIL = 512 * 1024
"""From this position in a request on, batches take the general path: those before took the event loop long enough."""


class ProduceApi:
    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        timers: Timers,
        batch_workers: BatchWorkers,
        probe: RequestProbe,
        jobs: Jobs,
        verifier: Verifier,
    ) -> None:
        self.verifies = True
        """`transaction.partition.verification.enable`"""
        self.verifier = verifier
        self._replicas = replicas
        self._clock = clock
        self._batch_workers = batch_workers
        self._delayed = DelayedProduces(clock, timers)
        self._stopped = False
        self._probe = probe
        self._jobs = jobs
        self._tasks: set[asyncio.Future[None]] = set()

    @property
    def idle(self) -> bool:
        """No produce waits for a worker, a disk or another broker."""
        return not self._tasks and not self._delayed

    @property
    def oldest_wait_for_followers(self) -> object | None:
        """The request that has waited longest for other brokers; None while any waits for this one."""
        return None if self._tasks else self._delayed.oldest

    async def stop(self) -> None:
        """Give up what waits for a worker, a disk or its turn: nothing is appended any more."""
        self._stopped = True
        await cancelled(self._tasks)

    def append_ordinary(
        self,
        partition: Partition,
        acks: int,
        view: memoryview,
        at: int,
        end: int,
        version: int,
        records_match: RecordsCheck,
        transaction: Admission | None = None,
    ) -> int:
        """HOT. The base offset of an ordinary batch, appended; -1 for what `_outcome` has to look at, nothing done."""
        if not partition.appends_as_is or end - at < HEADER_SIZE:
            return -1
        if acks == _ACKS_ALL and not partition.enough_in_sync:
            return -1
        header = BATCH_HEADER.unpack_from(view, at)
        try:
            if header[ATTRIBUTES] & TRANSACTIONAL and (
                transaction is None or not transaction.admits(partition, header)
            ):
                return -1
            check_batch(view, at, end, header, partition.log.config, version)
            if not records_match(view, at, end, header):
                return -1
            return partition.append(view, at, end, header)
        except StorageError:
            _BASE_OFFSET.pack_into(view, at, 0)  # the append had set it before the disk refused
            return -1
        except (DuplicateBatch, KafkaError):
            return -1

    def serve(
        self, connection: Connection, frame: memoryview, version: int, throttle: Throttle | None = None
    ) -> Reply | DeferredReply | Pending | None:
        header, body_at = read_request_header(frame, 0)
        request = self._read_at_once(read_produce_in_pieces(frame, body_at, version))
        if request is None:
            self._begin(self._long(connection, connection.own(frame), header, body_at, throttle), throttle)
            return PENDING
        work = at_once(_work(connection, header, request, frame, throttle))
        if work.transaction is not None:
            at_once(self._meet(work, work.transaction, frame))
            asked = None if work.transaction.let_in(self.verifier) else self._verify(work.transaction)
            if asked is not None:
                self._begin(self._when_verified(connection, work, connection.own(frame), asked), throttle)
                return PENDING
        return self._append_all(connection, work, frame)

    def _read_at_once(self, reading: Pieces[ProduceFrame]) -> ProduceFrame | None:
        """None if it is for many partitions, and there is no time for those in this turn; or for very many."""
        try:
            next(reading)
            for _ in range(_MOST_AT_ONCE // PIECE - 1 if self._jobs.has_time else 0):
                next(reading)
        except StopIteration as end:
            request: ProduceFrame = end.value
            return request
        reading.close()  # it reads what may be received over
        return None

    def _append_all(
        self, connection: Connection, work: Work, frame: memoryview
    ) -> Reply | DeferredReply | Pending | None:
        request = work.request
        for topic in request.topics:
            self._append_topic(work, topic, frame)
        if work.waiting:
            if work.transaction is not None:
                work.transaction.keep(self._clock.now_ms())
            self._begin(self._finish(connection, work), work.throttle)
            return PENDING
        if request.repeats and not work.failed:
            self._remember(connection, frame, work)
        return (
            self._reply(connection, work)
            if work.delayed is None
            else self._when_committed(connection, work.delayed, work)
        )

    def _meet(self, work: Work, transaction: Transaction, frame: memoryview) -> Pieces[None]:
        """Show the transaction all batches that may be its own."""
        for topic in work.request.topics:
            yield
            held = self._writable(work, topic)
            for number, (index, at, end) in enumerate(topic.partitions, 1):
                if not number % _PIECE:
                    yield
                if end - at < HEADER_SIZE:
                    continue
                header = BATCH_HEADER.unpack_from(frame, at)
                if header[MAGIC] == 2 and is_transactional(header):
                    transaction.meets(held.get(index), header)

    def _verify(self, transaction: Transaction) -> asyncio.Future[None] | None:
        """Ask the coordinator, if it has to be asked; None if the answer was there at once."""
        if not transaction.adds and not self.verifies:
            transaction.trusted(self._clock.now_ms())
            return None
        claim = transaction.claim(self._clock.now_ms())
        if claim is None:
            return None
        answered: asyncio.Future[None] | None = None

        def told(verdict: Verdict) -> None:
            transaction.told(verdict)
            if answered is not None:
                answered.set_result(None)

        self.verifier.ask(claim, told)
        if not transaction.answered:
            answered = asyncio.get_running_loop().create_future()
        return answered

    async def _long(
        self,
        connection: Connection,
        frame: memoryview,
        header: RequestHeader,
        body_at: int,
        throttle: Throttle | None,
    ) -> None:
        """A request for many partitions: read, and worked on, in pieces."""
        asked = None
        try:
            reading = timed(throttle, _read_in_pieces(connection, header, frame, body_at, throttle))
            work = await self._jobs.do(reading)
            if work.transaction is not None:
                await self._jobs.do(timed(throttle, self._meet(work, work.transaction, frame)))
                _check_transaction(work)
                asked = None if work.error is not None else self._verify(work.transaction)
        except Exception as error:
            close_for(connection, "Produce", header.api_version, error)
        else:
            await self._when_verified(connection, work, frame, asked)

    async def _when_verified(
        self, connection: Connection, work: Work, frame: memoryview, asked: asyncio.Future[None] | None
    ) -> None:
        try:
            if asked is not None:
                await asked
            await self._jobs.do(timed(work.throttle, self._append_in_pieces(work, frame)))
            await self._finish(connection, work)
        except Exception as error:
            close_for(connection, "Produce", work.version, error)

    def _begin(self, work: Coroutine[Any, Any, None], throttle: Throttle | None) -> None:
        task = asyncio.ensure_future(work if throttle is None else throttle.timed_turns(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _append_in_pieces(self, work: Work, frame: memoryview) -> Pieces[None]:
        for topic in work.request.topics:
            yield
            for at in range(0, len(topic.partitions), _PIECE):
                if self._stopped:
                    return
                _check_transaction(work)
                self._append_topic(work, topic._replace(partitions=topic.partitions[at : at + _PIECE]), frame)
                yield

    def _append_topic(self, work: Work, topic: TopicData, frame: memoryview) -> None:
        """HOT. Append at once what can be; the rest goes the long way, partition by partition."""
        if work.error is not None:
            for index, _, _ in topic.partitions:
                work.take(self._refusal(topic, index, work.error))
            return
        version, acks, packed = work.version, work.request.acks, work.packed
        held = self._writable(work, topic)
        by_id = topic.name is None
        transaction = work.transaction
        pack = _SUCCESS[version].pack
        for data in topic.partitions:
            index, at, end = data
            partition = held.get(index)
            if partition is None or at >= _QUICK_UNTIL or (by_id and partition.log.topic_id != topic.topic_id):
                base = -1
            else:
                base = self.append_ordinary(
                    partition, acks, frame, at, end, version, plain_records_match_header, transaction
                )
            if partition is not None and base >= 0:
                if acks == _ACKS_ALL and not partition.commits_at_once:
                    self._wait_for(work, len(packed), partition, partition.log.end_offset)
                packed.append(pack(index, base, partition.log.start_offset))
            else:
                work.take(self._outcome(work, topic, data, frame))

    def _wait_for(self, work: Work, place: int, partition: Partition, end: int) -> None:
        """The answer of this partition is true once what was appended before `end` is committed."""
        if work.delayed is None:
            work.delayed = self._delayed.new(work.request.timeout_ms)
        work.delayed.wait_for(place, partition, end)

    def _writable(self, work: Work, topic: TopicData) -> Mapping[int, Partition]:
        """The topic's partitions here, if this request may write to them at all."""
        name = self._name_of(topic)
        allowed = work.request.acks in _VALID_ACKS and (work.allow_internal or name not in INTERNAL_TOPICS)
        if work.sender is not None:
            allowed = allowed and work.sender.identity.allows(Operation.WRITE, _TOPIC, name)
        return self._replicas.of_topic(name if allowed else "")

    def _name_of(self, topic: TopicData) -> str:
        """Empty where no topic has the id."""
        return topic.name or self._replicas.metadata.name_of(topic.topic_id or b"") or ""

    def _outcome(self, work: Work, topic: TopicData, data: PartitionData, frame: memoryview) -> Outcome:
        index, at, end = data
        try:
            return self._append(work, self._find(work, topic, index), topic, index, frame, at, end)
        except KafkaError as error:
            name = self._name_of(topic)
            known = self._replicas.find(name, index)
            if known is None:
                return self._refusal(topic, index, error)
            if error.code in _PASSING and end - at >= HEADER_SIZE:
                header = BATCH_HEADER.unpack_from(frame, at)
                if header[MAGIC] == 2 and header[PRODUCER_ID] >= 0:
                    known.log.producers.awaits(header)
            return self._refused(known, topic, error, end - at)

    def _refused(self, partition: Partition, topic: TopicData, error: KafkaError, size: int) -> Answer:
        """An error from a partition that is here: it also has the log's start where Kafka has looked into the batch."""
        partition.probe.failed_produce += 1
        partition.probe.bytes_rejected += size if error.code == ErrorCode.MESSAGE_TOO_LARGE else 0
        answer = self._refusal(topic, partition.tp.partition, error)
        if error.code in _WITH_START_OFFSET and not isinstance(error, NotOneBatch):
            answer = answer._replace(log_start_offset=partition.log.start_offset)
        return answer

    def _find(self, work: Work, topic: TopicData, index: int) -> Partition:
        name = self._name_of(topic)
        _check_right(work, name)
        if work.request.acks not in _VALID_ACKS:
            raise KafkaError(
                ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {work.request.acks}; a broker knows 0, 1 and -1 (all)"
            )
        if topic.name is None and not name:
            raise self._replicas.metadata.unknown(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        if name in INTERNAL_TOPICS and not work.allow_internal:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker itself writes to {name}")
        partition = self._replicas.leader(name, index)
        if topic.topic_id is not None and is_another_topic(topic.topic_id, partition.log.topic_id):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "the log here is of an earlier topic of this name")
        return partition

    def _append(
        self, work: Work, partition: Partition, topic: TopicData, index: int, frame: memoryview, at: int, end: int
    ) -> Outcome:
        if work.request.acks == _ACKS_ALL:
            partition.check_acks_all()
        config = partition.log.config
        end = end_of_batch(frame, at, end, work.version)
        header = BATCH_HEADER.unpack_from(frame, at)
        check_batch(frame, at, end, header, config, work.version)
        batch = frame[at:end]
        wanted = demands(config, partition.tp, self._clock.now_ms())
        outcome = rebuild_quickly(batch, wanted) if quick_enough(header, config) and work.affords(header) else None
        place = len(work.packed)
        if outcome is None:
            return self._rebuilt_elsewhere(work, place, partition, topic, bytearray(batch), wanted)
        return self._write(work, place, partition, index, outcome.unwrap(batch))

    def _write(self, work: Work, place: int, partition: Partition, index: int, batch: memoryview) -> Outcome:
        """Append as leader; not an Answer when that has to wait for a flush."""
        config = partition.log.config
        now_ms = self._clock.now_ms()
        size = len(batch)
        header = stamp(batch, 0, size, BATCH_HEADER.unpack_from(batch), config, now_ms)
        if header[ATTRIBUTES] & TRANSACTIONAL:
            _check_belongs(work, partition, header)
        append_time = now_ms if config.stamps_append_time else -1
        try:
            base = partition.append(batch, 0, size, header)
        except DuplicateBatch as duplicate:
            append_time = duplicate.timestamp if append_time >= 0 else -1
            base = duplicate.base_offset
        answer = Answer(index, ErrorCode.NONE, base, append_time, partition.log.start_offset)
        if work.request.acks == _ACKS_ALL and not partition.commits_at_once:
            self._wait_for(work, place, partition, base + header[LAST_OFFSET_DELTA] + 1)
        if partition.log.must_flush:
            return after(self._replicas.durable.flush_or_copy(partition.log), answer)
        return answer

    def _refusal(self, topic: TopicData, index: int, error: KafkaError) -> Answer:
        self._probe.error(error.code.name)
        if isinstance(error, StorageError):
            self._replicas.directory_failed(error)
        if isinstance(error, RefusedRecords):
            return Answer(index, error.code, message=error.message, record_errors=error.record_errors)
        if error.code in _TOLD_WHY or (error.code is ErrorCode.CORRUPT_MESSAGE and isinstance(error, NotOneBatch)):
            return Answer(index, error.code, message=error.message)
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return Answer(index, error.code, leader=self._replicas.current_leader(self._name_of(topic), index))
        return Answer(index, error.code)

    # -- requests that wait ----------------------------------------------------------------------------------------

    async def _rebuilt_elsewhere(
        self, work: Work, place: int, partition: Partition, topic: TopicData, batch: bytearray, wanted: Demands
    ) -> Answer:
        """A worker process opens the batch; what it makes of it is appended when it is back."""
        call, records = partial(rebuild, batch, wanted), BATCH_HEADER.unpack_from(batch)[RECORD_COUNT]
        outcome = await asyncio.wrap_future(self._batch_workers.submit(call, records, work))
        try:
            _check_right(work, partition.tp.topic)
            if batch[_FLAGS_AT] & TRANSACTIONAL:
                _check_transactional_right(work)
            partition.check_leader(-1)
            if work.request.acks == _ACKS_ALL:
                partition.check_acks_all()
            written = self._write(work, place, partition, partition.tp.partition, outcome.unwrap(memoryview(batch)))
        except KafkaError as error:
            return self._refused(partition, topic, error, len(batch))
        return await written if isinstance(written, Coroutine) else written

    async def _finish(self, connection: Connection, work: Work) -> None:
        """Complete what waits, all of it side by side. With acks=all, one that takes too long gets a time-out error, as
        in Kafka; else it may take as long as it does, for who is told so sends again what has been appended."""
        timeout = max(work.request.timeout_ms, 0) / 1000 if work.request.acks == _ACKS_ALL else None
        places = list(work.waiting)
        partitions = work.partitions()
        waiting: Iterable[Awaitable[Answer]] = work.waiting.values()
        if work.throttle is not None:
            waiting = map(work.throttle.timed_turns, work.waiting.values())
        done = await asyncio.gather(*(within(timeout, each) for each in waiting), return_exceptions=True)
        work.waiting.clear()
        for at, settled in zip(places, done, strict=True):
            if isinstance(settled, BaseException):
                settled = self._late_refusal(*partitions[at], settled)
            work.settle(at, settled)
        if work.delayed is None or not self._delayed.park(
            work.delayed, lambda: connection.reply(self._late_reply(connection, work))
        ):
            connection.reply(self._late_reply(connection, work))

    def when_committed(
        self, connection: Connection, reply: bytes, partition: Partition, request: ProduceFrame, version: int
    ) -> Reply | DeferredReply:
        """HOT. The reply to a request for one partition, when what it has just appended is committed."""
        later = DeferredReply(connection)
        delayed = self._delayed.new(request.timeout_ms)
        delayed.wait_for(0, partition, partition.log.end_offset)
        if self._delayed.park(
            delayed, lambda: later.settle(self._let_go(connection, delayed, reply, request, version))
        ):
            return later
        return self._let_go(connection, delayed, reply, request, version)

    def _let_go(
        self, connection: Connection, delayed: DelayedProduce, reply: bytes, request: ProduceFrame, version: int
    ) -> Reply:
        """HOT. The prepared reply, if nothing failed."""
        if not delayed.failures:
            return reply
        [topic] = request.topics
        work = Work(request, version, _I32.unpack_from(reply, 4)[0], allow_internal=False)
        work.take(self._refusal(topic, topic.partitions[0][0], delayed.failures[0]))
        return self._packed(connection, work)

    def _when_committed(
        self, connection: Connection, delayed: DelayedProduce, work: Work
    ) -> Reply | DeferredReply | None:
        later = DeferredReply(connection)
        if self._delayed.park(delayed, lambda: later.settle(self._late_reply(connection, work))):
            return later
        return self._reply(connection, work)

    def _late_refusal(self, topic: TopicData, index: int, error: BaseException) -> Answer:
        if isinstance(error, KafkaError):
            return self._refusal(topic, index, error)
        if isinstance(error, TimeoutError):
            return self._refusal(topic, index, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "not confirmed in time"))
        log.error("internal error while producing to partition %d", index, exc_info=error)
        return self._refusal(topic, index, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    # -- responses -------------------------------------------------------------------------------------------------

    def _late_reply(self, connection: Connection, work: Work) -> Reply | None:
        """After a wait."""
        if work.throttle is None:
            return self._reply(connection, work)
        return work.throttle.at_work(lambda: self._reply(connection, work))

    def _reply(self, connection: Connection, work: Work) -> Reply | None:
        if work.delayed is not None and work.delayed.failures:
            partitions = work.partitions()
            for at, error in work.delayed.failures.items():
                work.settle(at, self._refusal(*partitions[at], error))
        if work.request.acks == _ACKS_NONE:
            if work.failed:
                log.info(
                    "closing %s: its Produce with acks=0 failed, and this is the only way to tell", connection.address
                )
                connection.end()
            return None
        return self._packed(connection, work)

    def _packed(self, connection: Connection, work: Work) -> Reply:
        answer = work.request, work.version, work.correlation_id, work.packed
        if not work.leaders:
            return pack_response(*answer)
        peer: Peer = connection.peer
        return [*pack_response_with_leaders(*answer, self._replicas.metadata.endpoints(work.leaders, peer.listener))]

    def _remember(self, connection: Connection, frame: memoryview, work: Work) -> None:
        request, version = work.request, work.version
        if request.repeats > LONGEST_KNOWN:
            return
        topic = request.topics[0]
        name = self._name_of(topic)
        partition = self._replicas.find(name, topic.partitions[0][0])
        if partition is not None and partition.appends_as_is and name not in INTERNAL_TOPICS and _may_repeat(work):
            peer: Peer = connection.peer
            repeated = peer.prepared.get(PRODUCE)
            if not isinstance(repeated, RepeatedProduce) or repeated.version != version:
                repeated = RepeatedProduce(self, connection, version)
            if repeated.remember(frame, request, partition, work.transaction):
                peer.prepare(PRODUCE, repeated, name)


def _read_in_pieces(
    connection: Connection, header: RequestHeader, frame: memoryview, body_at: int, throttle: Throttle | None
) -> Pieces[Work]:
    request = yield from or_malformed(read_produce_in_pieces(frame, body_at, header.api_version))
    return (yield from _work(connection, header, request, frame, throttle))


def _work(
    connection: Connection,
    header: RequestHeader,
    request: ProduceFrame,
    frame: memoryview,
    throttle: Throttle | None,
) -> Pieces[Work]:
    """A request that has been read, and its refusal as a whole if that is certain already."""
    version = header.api_version
    work = Work(request, version, header.correlation_id, allow_internal=header.client_id == _ADMIN_CLIENT)
    work.throttle = throttle
    peer: Peer = connection.peer
    is_for_one = len(request.topics) == 1 and len(request.topics[0].partitions) == 1
    restricted = peer.identity.restricted
    if restricted or (request.transactional_id is None and not is_for_one):
        work.is_transactional = yield from _has_transactional(request, frame)
    if restricted:
        work.sender = peer
        _check_transaction(work)
    if request.transactional_id is None:
        if work.is_transactional and not is_for_one:  # else it is refused where it is appended
            work.error = _without_id()
    elif work.error is None:
        client = partial(client_text, connection, header.client_id)
        work.transaction = Transaction(request.transactional_id, version, client)
    return work


def _check_transaction(work: Work) -> None:
    """Refuses all of a request, or what is left of it, that has batches of a transaction which its sender may not write
    in."""
    if work.sender is not None and work.is_transactional and work.error is None:
        try:
            _check_transactional_right(work)
        except KafkaError as error:
            work.error = error


def _check_transactional_right(work: Work) -> None:
    """Whether the sender may write in its transaction now."""
    name = work.request.transactional_id
    if work.sender is None or name is None:
        return
    if not work.sender.identity.may(Operation.WRITE, _TRANSACTION, name, "Produce"):
        raise KafkaError(*REFUSALS[_TRANSACTION])


def _check_right(work: Work, topic: str) -> None:
    """Whether the sender may write to it now: it may have been refused while something was waited for."""
    if work.sender is None or not topic:
        return
    if not work.sender.identity.may(Operation.WRITE, _TOPIC, topic, "Produce"):
        raise KafkaError(*REFUSALS[_TOPIC])


def _may_repeat(work: Work) -> bool:
    """True if batches of a transaction may follow that is named: there may have been none, so that nobody asked."""
    name = work.request.transactional_id
    return work.sender is None or name is None or work.sender.identity.allows(Operation.WRITE, _TRANSACTION, name)


def _has_transactional(request: ProduceFrame, frame: memoryview) -> Pieces[bool]:
    for topic in request.topics:
        yield
        for start in range(0, len(topic.partitions), _PIECE):
            for _, at, end in topic.partitions[start : start + _PIECE]:
                if end - at >= HEADER_SIZE and frame[at + _FLAGS_AT] & TRANSACTIONAL and frame[at + MAGIC_AT] == 2:
                    return True
            yield
    return False


def _without_id() -> KafkaError:
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a batch of a transaction, and no transactional id"
    )


def _check_belongs(work: Work, partition: Partition, header: Header) -> None:
    if work.transaction is None:
        raise _without_id()
    refusal = work.transaction.refusal(partition, header) if is_transactional(header) else None
    if refusal is not None:
        raise refusal
