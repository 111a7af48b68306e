"""Fetch sessions (KIP-227): a client names its partitions once and then only what changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from math import inf
from random import Random

from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import NO_EPOCH
from kafkad.replica.partition import Partition
from kafkad.replica.waits import FetchWait
from kafkad.turns import Pieces
from kafkad.wire.fetch import FetchFrame, PartitionRequest

_PIECE = 63
"""A bit mask."""
SESSIONLESS_EPOCH = -1
FIRST_EPOCH = 0
NO_SESSION = 0
_MOST_PARTITIONS = 200_000
"""Of all sessions together: each takes about 450 bytes. A client without a session names all of its own each time."""


class CachedPartition:
    """One partition of a session: what the client wants of it, and what it was last told. It watches the partition."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "partition", "session", "wanted")

    def __init__(self, session: Session, key: str | bytes, wanted: PartitionRequest) -> None:
        self.session = session
        self.key = key
        self.partition: Partition | None = None
        """The replica here, as the last look found it."""
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def watch(self) -> None:
        """Be told of the next thing that happens to the partition."""
        partition = self.partition
        if partition is not None:
            partition.watchers[self] = None
            if self.session.replica_id >= 0:
                partition.end_watchers[self] = None

    def unwatch(self) -> None:
        partition = self.partition
        if partition is not None:
            partition.watchers.pop(self, None)
            if self.session.replica_id >= 0:
                partition.end_watchers.pop(self, None)

    def watermark_moved(self) -> None:
        """The high watermark moved. A follower learns of it with its next records, and does not wait for it."""
        session = self.session
        session.moved[self] = None
        if session.replica_id < 0:
            session.stir()

    def end_moved(self) -> None:
        session = self.session
        session.moved[self] = None
        if self.partition is not None:
            self.partition.was_at_end(session.replica_id, self.wanted.offset, session.used_ms)
        session.stir()

    def followed_ms(self, leader_epoch: int) -> float:
        """A time at which the follower followed in that leader epoch, or later: -inf if nothing is known of it."""
        return self.session.heard_ms if self._follows_in(leader_epoch) else -inf

    def answer_early(self, leader_epoch: int) -> None:
        """So that the follower's next one says that it follows in that leader epoch. Without a session it would not."""
        session = self.session
        if session.id and session.wait is not None and self._follows_in(leader_epoch):
            session.wait.expire_soon()

    def _follows_in(self, leader_epoch: int) -> bool:
        wanted = self.wanted
        if wanted.leader_epoch != leader_epoch:
            return False
        return self.session.partitions.get((self.key, wanted.partition)) is self

    def knows(self, high_watermark: int, log_start_offset: int) -> bool:
        return high_watermark == self.high_watermark and log_start_offset == self.log_start_offset

    def is_news(self, error_code: int, high_watermark: int, log_start_offset: int, length: int) -> bool:
        """True if an incremental answer has to mention it; remembers what it then says."""
        changed = high_watermark != self.high_watermark or log_start_offset != self.log_start_offset
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset
        if error_code:
            self.high_watermark = -1
        return bool(length or error_code or changed)


class Session:
    """Kept from one fetch to the next; without one (`id` 0) it lives for a single request.

    Only the partitions in `moved` can have anything to say: they were named, or something has happened to them, since
    they were looked at and found to have nothing. The others cost a fetch nothing, however many they are.
    """

    __slots__ = (
        "busy",
        "by_id",
        "closed",
        "counted",
        "epoch",
        "heard_ms",
        "id",
        "incremental",
        "moved",
        "owner",
        "partitions",
        "replica_epoch",
        "replica_id",
        "restless",
        "unanswered_ms",
        "unsure",
        "used_ms",
        "wait",
    )

    def __init__(self, session_id: int, by_id: bool, used_ms: float, replica_id: int = -1) -> None:
        self.id = session_id
        self.replica_id = replica_id
        """The id of the following broker; -1 for a consumer."""
        self.replica_epoch = NO_EPOCH
        """That of the follower's registration, as its last request has it."""
        self.moved: dict[CachedPartition, None] = {}
        self.wait: FetchWait | None = None
        """The fetch that waits."""
        self.busy = 0
        """Fetches that are looking at its partitions, or wait for them."""
        self.closed = False
        self.counted = 0
        """Partitions that it may have, of those that all sessions may."""
        self.owner: object = None
        """The identity of whoever opened it."""
        self.unsure = False
        """True if rights have changed since its partitions were looked at."""
        self.restless = False
        """True if a partition has moved since the last look began, when no fetch was waiting."""
        self.epoch = 1
        self.by_id = by_id
        self.used_ms = used_ms
        self.unanswered_ms = used_ms
        """A time at which its last request was here and had no answer yet: when it came, or when its time was up."""
        self.heard_ms = -inf
        """A time before which its client did not send its last request: the one before had no answer yet. When the
        request came does not tell, for it may have lain in a socket while this process stood still."""
        self.incremental = False
        self.partitions: OrderedDict[tuple[str | bytes, int], CachedPartition] = OrderedDict()

    def update(self, frame: FetchFrame) -> Pieces[None]:
        partitions = self.partitions
        for topic in frame.topics:
            for number, wanted in enumerate(topic.partitions, 1):
                known = partitions.get((topic.key, wanted.partition))
                if known is None:
                    known = CachedPartition(self, topic.key, wanted)
                    partitions[topic.key, wanted.partition] = known
                else:
                    known.wanted = wanted
                self.moved[known] = None
                if not number & _PIECE:
                    yield
            yield

    def forget(self, frame: FetchFrame) -> Pieces[None]:
        """What the client wants no more; only of a session that it goes on with, as in Kafka."""
        for key, indexes in frame.forgotten:
            for number, index in enumerate(indexes, 1):
                gone = self.partitions.pop((key, index), None)
                if gone is not None:
                    gone.unwatch()
                    self.moved.pop(gone, None)
                if not number & _PIECE:
                    yield
            yield

    def stir(self) -> None:
        if self.wait is not None:
            self.wait.stir()
        else:
            self.restless = True

    def is_only_about(self, cached: CachedPartition) -> bool:
        """HOT. True if this is one of its partitions, and no other has anything to say."""
        moved = self.moved
        if len(moved) > 1 or (moved and cached not in moved):
            return False
        return self.partitions.get((cached.key, cached.wanted.partition)) is cached

    def looked_at(self, cached: CachedPartition, quiet: bool, high_watermark: int, log_start_offset: int) -> None:
        """HOT. In the same turn. Without anything to read, and nothing that the client has not been told, it need not
        be looked at again before it moves."""
        if quiet and (not self.incremental or cached.knows(high_watermark, log_start_offset)):
            self.moved.pop(cached, None)
        else:
            self.moved[cached] = None

    def rotate(self, served: Iterable[CachedPartition]) -> None:
        """Partitions that got data go to the end, so that a full answer never starves the others."""
        moved = self.moved
        for each in served:
            moved.pop(each, None)
            moved[each] = None

    def close(self) -> Pieces[None]:
        """Ends the session: no request will name it again. A fetch under way still watches its partitions. They are let
        go of, and it by them: thousands of them are not to wait for the collection of garbage."""
        self.closed = True
        if self.busy:
            return
        while self.partitions:
            _, cached = self.partitions.popitem()
            cached.unwatch()
            if not len(self.partitions) & _PIECE:
                yield
        self.moved.clear()


class FetchSessions:
    def __init__(self, slots: int, eviction_ms: int, random: Random, do: Callable[[Pieces[None]], object]) -> None:
        """`do` carries out work that may be long, of which whoever asks for a session need not wait for the end."""
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._random = random
        self._do = do
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self._counted = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def rights_changed(self) -> None:
        """Partitions that nothing has happened to are looked at again all the same: they may be refused by now."""
        for session in self._sessions.values():
            session.unsure = True

    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(self, frame: FetchFrame, by_id: bool, now_ms: float, owner: object = None) -> Pieces[Session]:
        """The session this request belongs to, brought up to date; KafkaError 70, 71 or 106 as Kafka has them.

        Of other owners there is none: neither to go on with nor to end.
        """
        if frame.session_epoch in (FIRST_EPOCH, SESSIONLESS_EPOCH):
            before = self._sessions.get(frame.session_id)
            if before is not None and before.owner is owner:
                self._end(before)
            session = Session(NO_SESSION, by_id, now_ms, frame.replica_id)
            session.owner = owner
            session.replica_epoch = frame.replica_epoch
            yield from session.update(frame)
            if frame.session_epoch == FIRST_EPOCH and session.partitions:
                self._end_predecessors(session)
                if self._make_room(session, now_ms) and self._make_room_for(session, len(session.partitions), now_ms):
                    self._keep(session)
            return session
        return (yield from self._continue(frame, by_id, now_ms, owner))

    def _continue(self, frame: FetchFrame, by_id: bool, now_ms: float, owner: object) -> Pieces[Session]:
        session = self._sessions.get(frame.session_id)
        if session is None or session.owner is not owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {frame.session_id}")
        if session.epoch != frame.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {frame.session_epoch}",
            )
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a fetch session keeps to topic names or to ids")
        heard_ms = session.unanswered_ms
        self.advance(session, now_ms)
        session.replica_epoch = frame.replica_epoch
        if session.unsure:
            session.unsure = False
            session.moved.update(dict.fromkeys(session.partitions.values()))
        named = sum(len(topic.partitions) for topic in frame.topics)
        if named and not self._make_room_for(session, len(session.partitions) + named, now_ms):
            self._evict(session)
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no room for the growth of fetch session {session.id}"
            )
        yield from session.update(frame)
        yield from session.forget(frame)
        session.heard_ms = heard_ms  # of the partitions that it still wants
        self._count(session, len(session.partitions))
        if not session.partitions:
            self.drop(session)
        return session

    def drop(self, session: Session) -> None:
        """It is to be forgotten before anybody has been told of it."""
        self._forget(session)
        session.id = NO_SESSION

    def awaits(self, session: Session, epoch: int) -> bool:
        """True if a request with this epoch is the next one of a session that is still kept."""
        return session.epoch == epoch and self._sessions.get(session.id) is session

    def advance(self, session: Session, now_ms: float) -> None:
        """The request that the session awaited is here."""
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        session.incremental = True
        session.used_ms = session.unanswered_ms = now_ms
        self._sessions.move_to_end(session.id)

    def _keep(self, session: Session) -> None:
        while True:
            session_id = self._random.randrange(1, 2**31 - 1)
            if session_id not in self._sessions:
                break
        session.id = session_id
        self._sessions[session_id] = session
        self._count(session, len(session.partitions))

    def _forget(self, session: Session) -> None:
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
        self._count(session, 0)

    def _end(self, session: Session) -> None:
        self._forget(session)
        self._do(session.close())

    def _evict(self, session: Session) -> None:
        self._end(session)
        self.evictions += 1

    def _count(self, session: Session, partitions: int) -> None:
        """It may have so many; none if it is not kept."""
        if self._sessions.get(session.id) is not session:
            partitions = 0
        self._counted += partitions - session.counted
        session.counted = partitions

    def _end_predecessors(self, new: Session) -> None:
        """Those of the same follower in earlier registrations: it has begun anew since. In one registration it may have
        several, for each of its fetchers has its own."""
        if new.replica_id < 0:
            return
        for each in list(self._sessions.values()):
            if each.replica_id == new.replica_id and each.replica_epoch < new.replica_epoch:
                self._end(each)

    def _make_room(self, new: Session, now_ms: float) -> bool:
        """A full cache gives up a stale session, or a consumer's that is smaller than the new one. To a follower it
        gives up any consumer's: replication comes first."""
        if len(self._sessions) < self._slots:
            return True
        given_up = self._stale(new, now_ms)
        if given_up is None:
            given_up = next((each for each in self._sessions.values() if each.replica_id < 0), None)
            if given_up is None or (new.replica_id < 0 and len(given_up.partitions) >= len(new.partitions)):
                return False
        self._evict(given_up)
        return True

    def _make_room_for(self, session: Session, partitions: int, now_ms: float) -> bool:
        """All sessions together keep a limited number of partitions. Stale ones give way, and then the largest of a
        consumer if this one is smaller; to a follower all of them do."""
        while self._counted - session.counted + partitions > _MOST_PARTITIONS:
            given_up = self._stale(session, now_ms)
            if given_up is None:
                consumers = (each for each in self._sessions.values() if each.replica_id < 0 and each is not session)
                given_up = max(consumers, key=lambda each: each.counted, default=None)
                if given_up is None or (session.replica_id < 0 and given_up.counted <= partitions):
                    return False
            self._evict(given_up)
        self._count(session, partitions)
        return True

    def _stale(self, beside: Session, now_ms: float) -> Session | None:
        """The longest unused session, whoever's it is, if that is long enough."""
        oldest = next((each for each in self._sessions.values() if each is not beside), None)
        return None if oldest is None or now_ms - oldest.used_ms < self._eviction_ms else oldest
