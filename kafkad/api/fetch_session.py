"""Fetch sessions (KIP-227): a client names its partitions once and then only what changed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from random import Random

from kafkad.errors import ErrorCode, KafkaError
from kafkad.turns import Pieces
from kafkad.wire.fetch import FetchFrame, Wanted

_PIECE = 63
"""A bit mask."""
SESSIONLESS_EPOCH = -1
FIRST_EPOCH = 0
NO_SESSION = 0


class Followed:
    """One partition of a session: what the client wants of it, and what it was last told."""

    __slots__ = ("high_watermark", "key", "log_start_offset", "wanted")

    def __init__(self, key: str | bytes, wanted: Wanted) -> None:
        self.key = key
        self.wanted = wanted
        self.high_watermark = -1
        self.log_start_offset = -1

    def is_news(self, error_code: int, high_watermark: int, log_start_offset: int, length: int) -> bool:
        """True if an incremental answer has to mention it; remembers what it then says."""
        changed = high_watermark != self.high_watermark or log_start_offset != self.log_start_offset
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset
        if error_code:
            self.high_watermark = -1
        return bool(length or error_code or changed)


class Session:
    """Kept from one fetch to the next; without one (`id` 0) it lives for a single request."""

    __slots__ = ("by_id", "epoch", "followed", "id", "incremental", "used_ms")

    def __init__(self, session_id: int, by_id: bool, used_ms: float) -> None:
        self.id = session_id
        self.epoch = 1
        self.by_id = by_id
        self.used_ms = used_ms
        self.incremental = False
        self.followed: OrderedDict[tuple[str | bytes, int], Followed] = OrderedDict()

    def update(self, frame: FetchFrame) -> Pieces[None]:
        followed = self.followed
        for topic in frame.topics:
            for wanted in topic.partitions:
                known = followed.get((topic.key, wanted.partition))
                if known is None:
                    followed[topic.key, wanted.partition] = Followed(topic.key, wanted)
                    if not len(followed) & _PIECE:
                        yield
                else:
                    known.wanted = wanted
            yield
        for key, indexes in frame.forgotten:
            for index in indexes:
                followed.pop((key, index), None)
            yield

    def rotate(self, served: Iterable[Followed]) -> None:
        """Partitions that got data go to the end, so that a full answer never starves the others."""
        if self.id:
            for each in served:
                self.followed.move_to_end((each.key, each.wanted.partition))


class FetchSessions:
    def __init__(self, slots: int, eviction_ms: int, random: Random) -> None:
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._random = random
        self._sessions: OrderedDict[int, Session] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions(self) -> int:
        return sum(len(session.followed) for session in self._sessions.values())

    def open(self, frame: FetchFrame, by_id: bool, now_ms: float) -> Pieces[Session]:
        """The session this request belongs to, brought up to date; KafkaError 70, 71 or 106 as Kafka has them."""
        if frame.session_epoch in (FIRST_EPOCH, SESSIONLESS_EPOCH):
            self._sessions.pop(frame.session_id, None)
            session = Session(NO_SESSION, by_id, now_ms)
            yield from session.update(frame)
            followed = len(session.followed)
            if frame.session_epoch == FIRST_EPOCH and followed and self._make_room(followed, now_ms):
                self._keep(session)
            return session
        return (yield from self._continue(frame, by_id, now_ms))

    def _continue(self, frame: FetchFrame, by_id: bool, now_ms: float) -> Pieces[Session]:
        session = self._sessions.get(frame.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {frame.session_id}")
        if session.epoch != frame.session_epoch:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session {session.id} is at epoch {session.epoch}, not {frame.session_epoch}",
            )
        if session.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "a fetch session keeps to topic names or to ids")
        self.advance(session, now_ms)
        yield from session.update(frame)
        if not session.followed:
            self._sessions.pop(session.id, None)
            session.id = NO_SESSION
        return session

    def awaits(self, session: Session, epoch: int) -> bool:
        """True if a request with this epoch is the next one of a session that is still kept."""
        return session.epoch == epoch and self._sessions.get(session.id) is session

    def advance(self, session: Session, now_ms: float) -> None:
        """The request that the session awaited is here."""
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        session.incremental = True
        session.used_ms = now_ms
        self._sessions.move_to_end(session.id)

    def _keep(self, session: Session) -> None:
        while True:
            session_id = self._random.randrange(1, 2**31 - 1)
            if session_id not in self._sessions:
                break
        session.id = session_id
        self._sessions[session_id] = session

    def _make_room(self, size: int, now_ms: float) -> bool:
        """A full cache gives up its longest unused session if that is stale, or smaller than the new one."""
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms < self._eviction_ms and len(oldest.followed) >= size:
            return False
        del self._sessions[oldest.id]
        self.evictions += 1
        return True
