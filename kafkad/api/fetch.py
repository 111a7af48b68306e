"""Fetch: versions 4 to 18.

Records go from the page cache to the socket: a reply is a list of packed headers and file ranges. A fetch that finds
less than `min_bytes` waits for the partitions it asked for, until `max_wait_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from kafkad.api import follower_fetch_repeat
from kafkad.api.answering import LARGE_FRAME, close_for, reply_later
from kafkad.api.fetch_repeat import RepeatedFetch, may_repeat
from kafkad.api.fetch_session import NO_SESSION, SESSIONLESS_EPOCH, CachedPartition, FetchSessions, Session
from kafkad.api.follower_fetch_repeat import RepeatedFollowerFetch
from kafkad.api.peer import Peer
from kafkad.api.routes import FETCH
from kafkad.api.throttling import Throttle, timed
from kafkad.clock import Clock
from kafkad.errors import ErrorCode, KafkaError, StorageError
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Slice
from kafkad.log.transactions import aborted_transactions
from kafkad.metrics import RequestProbe
from kafkad.model import NO_EPOCH
from kafkad.names import is_another_topic
from kafkad.net.connection import Connection
from kafkad.net.reply import PENDING, Part, Pending, Reply
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition
from kafkad.replica.waits import FetchWait
from kafkad.security.authorizer import CLUSTER_NAME, REFUSALS, Identity, Operation, ResourceType
from kafkad.turns import Jobs, Pieces, at_once
from kafkad.wire.fetch import (
    FIRST_FLEXIBLE,
    FIRST_WITH_LEADERS,
    FIRST_WITH_TOPIC_IDS,
    MENDER,
    FetchFrame,
    PartitionRequest,
    pack_partition,
    pack_partition_end,
    pack_start,
    pack_topic,
    read_fetch,
    read_fetch_in_pieces,
)
from kafkad.wire.frames import read_request_header
from kafkad.wire.leaders import CurrentLeader, pack_endpoints
from kafkad.wire.primitives import or_malformed

_PIECE = 63
"""A bit mask: large fetches are worked on in pieces of so many partitions and one."""
_MANY_PARTITIONS = 200
_ENVELOPE, _EACH = 24, 48
"""About as many bytes as an answer has around its partitions, and around the records of each."""
_SMALL_IN_MEMORY = 64 * 1024
"""Larger requests are worked on one at a time."""


class PartitionAnswer(NamedTuple):
    """The answer of one partition."""

    cached: CachedPartition
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None
    records: Slice | None = None
    diverging: tuple[int, int] | None = None
    quiet: bool = False
    """There is nothing to read until the partition moves; and a follower is in sync, which it may become by a fetch."""
    preferred_replica: int = -1
    """The broker that this consumer is to read from, if it is another."""
    leader: CurrentLeader | None = None
    """Where this broker does not lead the partition, or not in the epoch that the client believes in."""


_ISOLATION_LEVELS = (0, 1)
_LED_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class FetchApi:
    def __init__(
        self, replicas: ReplicaManager, sessions: FetchSessions, clock: Clock, probe: RequestProbe, jobs: Jobs
    ) -> None:
        self._replicas = replicas
        self._leader_quota = replicas.parts.leader_quota
        self.sessions = sessions
        self._clock = clock
        self._jobs = jobs
        self.now_ms = clock.monotonic_ms
        self._probe = probe
        self.max_bytes = 55 << 20
        """fetch.max.bytes"""
        self.reads_nearest = False
        """True if consumers that say their rack are sent to a follower in it. Followers serve consumers in any case:
        another broker may have sent them."""

    def serve(
        self,
        connection: Connection,
        request: memoryview,
        version: int,
        correlation_id: int,
        throttle: Throttle | None = None,
    ) -> Reply | Pending:
        if len(request) > LARGE_FRAME:
            large = self._large(connection, connection.own(request), version, correlation_id, throttle)
            return self._in_pieces(connection, version, timed(throttle, large), len(request))
        _, body_at = read_request_header(request)
        peer: Peer = connection.peer
        frame = _admitted(peer, read_fetch(request, body_at, version))
        by_id = version >= FIRST_WITH_TOPIC_IDS
        if throttle is not None:
            frame, throttle = _held(frame, throttle)
        try:
            session = at_once(self.sessions.open(frame, by_id, self._clock.monotonic_ms(), peer.identity))
        except KafkaError as error:
            return _whole(pack_start(version, correlation_id, error.code, 0, 0), [], version)
        attempt = _Attempt(self, frame, session, version, correlation_id, throttle, peer)
        if attempt.is_large:
            return self._in_pieces(connection, version, timed(throttle, self._attempted(connection, attempt)))
        try:
            reply = at_once(attempt.reply(final=frame.max_wait_ms <= 0 or not session.partitions))
        except Exception:
            attempt.leave()
            raise
        if throttle is None and follower_fetch_repeat.may_repeat(frame, session):
            self._remember_follower(connection, request, version, frame, session)
        if reply is None:
            self._wait(connection, attempt, frame.max_wait_ms)
            return PENDING
        if type(reply) is list and throttle is None and not self._reads_nearest(frame) and may_repeat(frame, session):
            [cached] = session.partitions.values()
            partition = cached.partition
            assert partition is not None
            peer.prepare(FETCH, RepeatedFetch(self, request, version, frame, session, partition), partition.tp.topic)
        if session.id == NO_SESSION:
            at_once(session.close())
        return reply

    def _remember_follower(
        self, connection: Connection, request: memoryview, version: int, frame: FetchFrame, session: Session
    ) -> None:
        topic = frame.topics[0]
        cached = session.partitions.get((topic.key, topic.partitions[0].partition))
        partition = None if cached is None else cached.partition
        if (
            cached is None
            or partition is None
            or not partition.serves_in_sync(frame.replica_id, cached.wanted.leader_epoch)
        ):
            return
        peer: Peer = connection.peer
        known = peer.prepared.get(FETCH)
        if not isinstance(known, RepeatedFollowerFetch) or not known.continues(session, frame, request):
            known = RepeatedFollowerFetch(self, connection, request, version, frame, session)
        if known.remember(request, cached, partition):
            peer.prepare(FETCH, known, partition.tp.topic)

    def _large(
        self,
        connection: Connection,
        request: memoryview,
        version: int,
        correlation_id: int,
        throttle: Throttle | None,
    ) -> Pieces[Reply | Pending]:
        _, body_at = read_request_header(request)
        peer: Peer = connection.peer
        frame = _admitted(peer, (yield from or_malformed(read_fetch_in_pieces(request, body_at, version))))
        if throttle is not None:
            frame, throttle = _held(frame, throttle)
        by_id = version >= FIRST_WITH_TOPIC_IDS
        try:
            session = yield from self.sessions.open(frame, by_id, self._clock.monotonic_ms(), peer.identity)
        except KafkaError as error:
            return _whole(pack_start(version, correlation_id, error.code, 0, 0), [], version)
        attempt = _Attempt(self, frame, session, version, correlation_id, throttle, peer, is_large=True)
        return (yield from self._attempted(connection, attempt))

    def _attempted(self, connection: Connection, attempt: _Attempt) -> Pieces[Reply | Pending]:
        try:
            reply = yield from attempt.reply(final=attempt.due_ms <= self._clock.monotonic_ms())
        except Exception:
            attempt.leave()
            raise
        if reply is None:
            left_ms = int(attempt.due_ms - self._clock.monotonic_ms())
            if connection.closed:
                attempt.leave()
            else:
                self._wait(connection, attempt, max(left_ms, 1))
            return PENDING
        return reply

    def close_in_pieces(self, session: Session) -> None:
        self._jobs.do(session.close())

    def _in_pieces(
        self, connection: Connection, version: int, pieces: Pieces[Reply | Pending], size: int = 0
    ) -> Reply | Pending:
        def answer(reply: Reply | Pending) -> None:
            if not isinstance(reply, Pending):
                connection.reply(reply)

        job = self._jobs.do(pieces, alone=size > _SMALL_IN_MEMORY, size=size, host=connection.host)
        if job.done() and job.exception() is None:
            return job.result()
        reply_later(connection, "Fetch", version, job, answer)
        return PENDING

    def wait_on(
        self,
        connection: Connection,
        frame: FetchFrame,
        session: Session,
        version: int,
        correlation_id: int,
        quick: Callable[[], Reply | None],
    ) -> None:
        """Of a request that found nothing, as its session knows already. `quick` answers it if it can."""
        attempt = _Attempt(self, frame, session, version, correlation_id, None, connection.peer, quick)
        self._wait(connection, attempt, frame.max_wait_ms)

    def _wait(self, connection: Connection, attempt: _Attempt, max_wait_ms: int) -> None:
        def gone() -> None:
            wait.end()
            attempt.leave()

        def try_again(final: bool) -> bool:
            if final:
                attempt.expire(self.now_ms())
            try:
                reply = None if attempt.quick is None else attempt.quick()
                if reply is not None:
                    attempt.leave()
                elif attempt.is_large:
                    connection.peer.on_close = None
                    attempt.end_wait()
                    work = timed(attempt.throttle, self._attempted(connection, attempt))
                    again = self._in_pieces(connection, attempt.version, work)
                    if not isinstance(again, Pending):
                        connection.reply(again)
                    return True
                else:
                    reply = at_once(timed(attempt.throttle, attempt.reply(final)))
            except Exception as error:
                close_for(connection, "Fetch", attempt.version, error)
                return True
            if reply is None:
                return False
            connection.peer.on_close = None
            attempt.end_wait()
            connection.reply(reply)
            return True

        wait: FetchWait = self._replicas.waits.fetch(max_wait_ms, try_again)
        attempt.begin_wait(wait)
        connection.peer.on_close = gone

    def read_all(
        self,
        frame: FetchFrame,
        session: Session,
        wanted: list[CachedPartition],
        arrives: bool,
        watch: bool,
        identity: Identity,
    ) -> Pieces[tuple[list[PartitionAnswer], int, bool]]:
        """These partitions within the request's bytes: (answers, bytes of records, must answer now).

        `arrives`: for the first time with this request, which says how far a follower has come by now.
        """
        left = min(frame.max_bytes, self.max_bytes)
        total = 0
        urgent = False
        found: list[PartitionAnswer] = []
        restricted, is_follower = identity.restricted, frame.replica_id >= 0
        for cached in wanted:
            if not len(found) & _PIECE:
                yield
            try:
                if restricted:
                    self._check_right(frame, cached, identity)
                partition = self._found(cached)
                answer = self._read(frame, cached, partition, left, not total, arrives)
                if watch:
                    cached.watch()
                if is_follower and partition.deletion_waits:
                    known = max(cached.log_start_offset, cached.wanted.log_start_offset)
                    urgent = urgent or answer.log_start_offset > known
            except KafkaError as error:
                answer = self._failed(cached, error)
            if answer.error_code or answer.diverging or answer.preferred_replica >= 0:
                urgent = True
            session.looked_at(cached, answer.quiet, answer.high_watermark, answer.log_start_offset)
            if answer.records is not None:
                length = answer.records.length
                total += length
                left = max(left - length, 0)
                if length < frame.min_bytes and _is_on_older_segment(frame, answer):
                    urgent = True
            found.append(answer)
        return found, total, urgent

    def _check_right(self, frame: FetchFrame, cached: CachedPartition, identity: Identity) -> None:
        """Whether it may read this partition now: rights may have changed while the fetch waited."""
        if frame.replica_id >= 0:
            may = identity.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, "Fetch")
        elif frame.replica_id == MENDER and identity.allows(
            Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            may = True
        else:
            key = cached.key
            name = self._replicas.metadata.name_of(key) if isinstance(key, bytes) else key
            may = name is None or identity.may(Operation.READ, ResourceType.TOPIC, name, "Fetch")
        if not may:
            raise KafkaError(*REFUSALS[ResourceType.TOPIC])

    def _failed(self, cached: CachedPartition, error: KafkaError) -> PartitionAnswer:
        self._probe.error(error.code.name)
        key, index = cached.key, cached.wanted.partition
        known = self._replicas.find(key, index) if isinstance(key, str) else None
        if known is not None:
            known.probe.failed_fetch += 1
        if isinstance(error, StorageError):
            self._replicas.directory_failed(error)
        aborted: list[tuple[int, int]] | None = [] if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else None
        leader = None
        if error.code in _LED_ELSEWHERE:
            name = self._replicas.metadata.name_of(key) if isinstance(key, bytes) else key
            leader = self._replicas.current_leader(name or "", index)
        return PartitionAnswer(cached, error.code, aborted=aborted, leader=leader)

    def endpoints(self, found: list[PartitionAnswer], listener: str) -> bytes:
        """The tagged fields at the end of an answer: where the leaders are that it names."""
        leaders = dict.fromkeys(answer.leader.broker for answer in found if answer.leader is not None)
        return pack_endpoints(self._replicas.metadata.endpoints(leaders, listener))

    def _read(
        self,
        frame: FetchFrame,
        cached: CachedPartition,
        partition: Partition,
        left: int,
        at_least_one: bool,
        arrives: bool,
    ) -> PartitionAnswer:
        wanted = cached.wanted
        follower = frame.replica_id
        reads_from = self._admit(frame, wanted, partition)
        if reads_from != partition.broker_id:
            return _sent_to(reads_from, cached, partition, frame.read_committed)
        log = partition.log
        parted = None
        if wanted.last_fetched_epoch >= 0:
            parted = diverging(log.epochs, log.end_offset, wanted.last_fetched_epoch, wanted.offset)
        if follower >= 0 and arrives and parted is None:
            partition.fetched_through(follower, cached)
            partition.fetched_by(follower, wanted.offset, wanted.log_start_offset, frame.replica_epoch)
        high_watermark, stable, upto = partition.visible(frame.read_committed)
        if parted is not None:
            return PartitionAnswer(cached, 0, high_watermark, stable, log.start_offset, None, None, parted)
        if follower >= 0:
            high_watermark, upto = partition.high_watermark, log.end_offset
        records = None
        quiet = False
        throttled = follower >= 0 and partition.serves_throttled(follower)
        if (left > 0 or at_least_one) and not (throttled and self._leader_quota.wait_ms(self._clock.monotonic_ms())):
            quiet = wanted.offset >= upto and (follower < 0 or follower in partition.role.isr)
            records = partition.read(wanted.offset, min(wanted.max_bytes, left), upto, at_least_one)
            partition.probe.total_fetch += 1
            if records is not None and follower < 0:
                partition.probe.bytes_out += records.length
            if records is not None and throttled:
                self._leader_quota.take(records.length, self._clock.monotonic_ms())
        aborted = None
        if frame.read_committed:
            aborted = aborted_transactions(log, wanted.offset, upto, records) if records is not None else []
        return PartitionAnswer(cached, 0, high_watermark, stable, log.start_offset, aborted, records, None, quiet)

    def _admit(self, frame: FetchFrame, wanted: PartitionRequest, partition: Partition) -> int:
        """The broker that this reader is to read from; raises why it may not read this partition at all."""
        if frame.isolation_level not in _ISOLATION_LEVELS:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"there is no isolation level {frame.isolation_level}")
        epoch = wanted.leader_epoch if wanted.leader_epoch >= 0 else NO_EPOCH
        if frame.replica_id < 0 and frame.rack is not None and (partition.is_leader or partition.following is not None):
            partition.check_epoch(epoch)
            return partition.nearest(frame.rack, wanted.offset) if self._reads_nearest(frame) else partition.broker_id
        partition.check_leader(epoch)
        if frame.replica_id >= 0:
            partition.check_replica(frame.replica_id, epoch)
        return partition.broker_id

    def _reads_nearest(self, frame: FetchFrame) -> bool:
        return self.reads_nearest and frame.replica_id < 0 and bool(frame.rack)

    def _found(self, cached: CachedPartition) -> Partition:
        key = cached.key
        name = self._replicas.metadata.name_of(key) if isinstance(key, bytes) else key
        if name is None:
            raise self._replicas.metadata.unknown(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        partition = self._replicas.get(name, cached.wanted.partition)
        if cached.partition is not partition:
            if isinstance(key, bytes) and is_another_topic(key, partition.log.topic_id):
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, "the log here is of an earlier topic of this name")
            cached.unwatch()
            cached.partition = partition
        return partition


def _admitted(peer: Peer, frame: FetchFrame) -> FetchFrame:
    """Without a session for who says that it is a broker and is none: followers' go before those of consumers."""
    identity = peer.identity
    if frame.replica_id < 0 or identity.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return frame
    return frame._replace(session_id=NO_SESSION, session_epoch=SESSIONLESS_EPOCH)


def _held(frame: FetchFrame, throttle: Throttle) -> tuple[FetchFrame, Throttle | None]:
    """The request of a client that has quotas: no answer to it is so large that it could never pass. Other brokers have
    none."""
    if throttle.is_of_broker(frame.replica_id) or throttle.is_of_mender(frame) or not throttle.limits_fetches:
        return frame, None
    most = throttle.most_fetched
    if most is None:
        return frame, throttle
    max_bytes = min(frame.max_bytes, most)
    return frame._replace(max_bytes=max_bytes, min_bytes=min(frame.min_bytes, max_bytes // 2)), throttle


def _sent_to(preferred: int, cached: CachedPartition, partition: Partition, read_committed: bool) -> PartitionAnswer:
    high_watermark, stable, _ = partition.visible(read_committed)
    aborted: list[tuple[int, int]] | None = [] if read_committed else None
    start = partition.log.start_offset
    return PartitionAnswer(cached, 0, high_watermark, stable, start, aborted, preferred_replica=preferred)


def diverging(epochs: LeaderEpochs, log_end: int, epoch: int, offset: int) -> tuple[int, int] | None:
    """The epoch and offset at which a reader's history diverges from that of a log that ends at `log_end` (KIP-595)."""
    end_epoch, end_offset = epochs.end_offset_for(epoch, log_end)
    if end_epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing is known of leader epoch {epoch}")
    if end_epoch < epoch or end_offset < offset:
        return end_epoch, end_offset
    return None


class _Attempt:
    """One fetch being answered: read again each time something it waits for has moved."""

    __slots__ = (
        "_api",
        "_arrives",
        "_correlation_id",
        "_frame",
        "_identity",
        "_is_done",
        "_listener",
        "_session",
        "_wait",
        "_watches",
        "due_ms",
        "is_large",
        "quick",
        "throttle",
        "version",
    )

    def __init__(
        self,
        api: FetchApi,
        frame: FetchFrame,
        session: Session,
        version: int,
        correlation_id: int,
        throttle: Throttle | None,
        peer: Peer,
        quick: Callable[[], Reply | None] | None = None,
        *,
        is_large: bool = False,
    ) -> None:
        """`quick`, of a request whose session knows of it already: an answer without much ado, if there is one.
        `is_large`: it is worked on in pieces, as are all that have many partitions."""
        self._api = api
        self.quick = quick
        self._identity = peer.identity
        self._listener = peer.listener
        self.throttle = throttle
        self._arrives = quick is None
        self._frame = frame
        self._session = session
        session.busy += 1
        self._is_done = False
        self._wait: FetchWait | None = None
        self.version = version
        self._correlation_id = correlation_id
        self.is_large = is_large or len(session.partitions) > _MANY_PARTITIONS
        self._watches = bool(session.id) or self.is_large
        """True if its partitions notify it when they move; without a session, a small fetch has that only in a wait."""
        self.due_ms = api.now_ms() + (frame.max_wait_ms if session.partitions else 0) if self.is_large else 0.0

    def begin_wait(self, wait: FetchWait) -> None:
        """In the turn in which `reply` found too little, unless it watches already."""
        session = self._session
        session.wait = self._wait = wait
        if not self._watches:
            self._watches = True
            for cached in session.partitions.values():
                cached.watch()
        if session.restless:
            wait.stir()

    def expire(self, now_ms: float) -> None:
        """It is answered now, with what there is."""
        self.due_ms = now_ms
        if self._session.wait is self._wait:
            self._session.unanswered_ms = now_ms

    def end_wait(self) -> None:
        """Another fetch of the session may wait by now."""
        if self._session.wait is self._wait:
            self._session.wait = None

    def leave(self) -> None:
        """It is answered, it failed, or there is nobody to answer any more."""
        session = self._session
        self.end_wait()
        self._done()
        if session.closed or not session.id:
            if self.is_large:
                self._api.close_in_pieces(session)
            else:
                at_once(session.close())

    def _done(self) -> None:
        """However it ends, and once."""
        if not self._is_done:
            self._is_done = True
            self._session.busy -= 1

    def reply(self, final: bool) -> Pieces[Reply | None]:
        """At first all that the request is about, later what has moved since."""
        session = self._session
        arrives, self._arrives = self._arrives, False
        everything = session.partitions.values()
        whole = arrives and not session.incremental
        session.restless = False
        found, total, urgent = yield from self._look(everything if whole else session.moved, arrives)
        if total < self._frame.min_bytes and not final and not urgent:
            return None
        if throttle_ms := self._throttle_ms(total, len(found)):
            return (yield from self._nothing(throttle_ms))
        if not whole and not session.incremental:
            found, _, _ = yield from self._look(everything, False)
        self._done()
        if session.closed or (self._watches and not session.id):
            yield from self._let_go(found if session.id else [])
        if session.id:
            found = yield from self._news(found)
        return (yield from self._pack(found))

    def _news(self, found: list[PartitionAnswer]) -> Pieces[list[PartitionAnswer]]:
        """What the client has to be told that has a session: all, until it has been told once."""
        session = self._session
        if not session.closed:
            session.rotate(answer.cached for answer in found if answer.records is not None)
        news = []
        for place, answer in enumerate(found):
            if not place & _PIECE:
                yield
            if _is_news(answer):
                news.append(answer)
        return news if session.incremental else found

    def _let_go(self, found: list[PartitionAnswer]) -> Pieces[None]:
        """Of the session's partitions, and of those that it has let go of itself since they were looked at."""
        yield from self._session.close()
        for place, answer in enumerate(found):
            if not place & _PIECE:
                yield
            answer.cached.unwatch()

    def _throttle_ms(self, total: int, partitions: int) -> int:
        return 0 if self.throttle is None else self.throttle.fetched(total + _ENVELOPE + _EACH * partitions)

    def _nothing(self, throttle_ms: int) -> Pieces[Reply]:
        """The client is to ask again later. What its session was told stays true, and a new one does not begin."""
        session, version = self._session, self.version
        self._done()
        if not session.incremental:
            self._api.sessions.drop(session)
        if session.closed or not session.incremental:
            yield from session.close()
        return _whole(pack_start(version, self._correlation_id, 0, session.id, 0, throttle_ms), [], version)

    def _look(
        self, wanted: Iterable[CachedPartition], arrives: bool
    ) -> Pieces[tuple[list[PartitionAnswer], int, bool]]:
        return self._api.read_all(self._frame, self._session, list(wanted), arrives, self._watches, self._identity)

    def _pack(self, found: list[PartitionAnswer]) -> Pieces[Reply]:
        version = self.version
        topics = [(key, list(answers)) for key, answers in groupby(found, lambda answer: answer.cached.key)]
        start = pack_start(version, self._correlation_id, 0, self._session.id, len(topics))
        body: list[Part] = []
        flexible = version >= FIRST_FLEXIBLE
        for key, answers in topics:
            body.append(pack_topic(key, len(answers), version))
            for place, answer in enumerate(answers):
                if not place & _PIECE:
                    yield
                _pack_answer(body, answer, version, flexible)
            if flexible:
                body.append(b"\x00")
        if version < FIRST_WITH_LEADERS:
            return _whole(start, body, version)
        return _whole(start, body, version, self._api.endpoints(found, self._listener))


def _is_on_older_segment(frame: FetchFrame, answer: PartitionAnswer) -> bool:
    """There is another segment between what is read and the end of what may be read. As in Kafka, nobody waits there:
    however long, no more would come of this one."""
    partition = answer.cached.partition
    assert partition is not None
    upto = answer.last_stable_offset if frame.read_committed else answer.high_watermark
    if frame.replica_id >= 0:
        upto = partition.log.end_offset
    segments = partition.log.segments
    return segments.number_of(answer.cached.wanted.offset) < segments.number_of(upto)


def _is_news(answer: PartitionAnswer) -> bool:
    if answer.preferred_replica >= 0 or answer.diverging is not None:
        return True
    length = answer.records.length if answer.records is not None else 0
    return answer.cached.is_news(answer.error_code, answer.high_watermark, answer.log_start_offset, length)


def _pack_answer(body: list[Part], answer: PartitionAnswer, version: int, flexible: bool) -> None:
    records = answer.records
    body.append(
        pack_partition(
            version,
            answer.cached.wanted.partition,
            answer.error_code,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            answer.aborted,
            records.length if records is not None else 0,
            answer.preferred_replica,
        )
    )
    if records is not None:
        body.append(records)
    if flexible:
        body.append(pack_partition_end(answer.diverging, answer.leader if version >= FIRST_WITH_LEADERS else None))


def _whole(start: bytes, body: list[Part], version: int, tags: bytes = b"\x00") -> Reply:
    """Put the length in front, `tags` at the end, and join neighbouring bytes, so that each run of them is one send."""
    parts: list[Part] = []
    run = [b"", start]
    total = 0
    for part in body:
        if isinstance(part, bytes):
            run.append(part)
        else:
            parts += [b"".join(run), part]
            total += part.length  # type: ignore[union-attr]
            run = []
    if version >= FIRST_FLEXIBLE:
        run.append(tags)
    if run:
        parts.append(b"".join(run))
    total += sum(len(part) for part in parts if isinstance(part, bytes))
    size = total.to_bytes(4, "big")
    if len(parts) == 1:
        return size + parts[0]  # type: ignore[operator]
    parts[0] = size + parts[0]  # type: ignore[operator]
    return parts
