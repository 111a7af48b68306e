"""Holds clients to their quotas: what a request takes is measured, and its connection is not read for a while.

The answer leaves at once and says for how long. There is one of these only while any client has a quota; requests
between brokers are never measured, but who says that it is a broker has to have the right to be one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from struct import Struct
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkad.api.fetch_session import SESSIONLESS_EPOCH
from kafkad.api.routes import BETWEEN_BROKERS, FETCH, OFFSET_COMMIT, PRODUCE
from kafkad.errors import ErrorCode, KafkaError
from kafkad.net.connection import Connection, DeferredReply, OnReply
from kafkad.net.reply import PENDING, Pending, Reply
from kafkad.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from kafkad.turns import Pieces
from kafkad.wire.fetch import MENDER, FetchFrame
from kafkad.wire.primitives import MalformedError
from kafkad.wire.produce import FIRST_FLEXIBLE as FIRST_FLEXIBLE_PRODUCE

if TYPE_CHECKING:
    from kafkad.clock import Clock
    from kafkad.security.quotas.clients import Budget, ClientQuotas

T = TypeVar("T")
_Y = TypeVar("_Y")
_I16, _I32 = Struct(">h"), Struct(">i")
_CLIENT_ID_AT: Final = 8
_WRITE_TXN_MARKERS, _ADD_PARTITIONS_TO_TXN = 27, 24
_FIRST_OF_BROKERS: Final = 4
_OF_BROKERS: Final = frozenset({_WRITE_TXN_MARKERS, *(route.key for route in BETWEEN_BROKERS)})
_FIRST_COMMIT_WITH_THROTTLE, _FIRST_FLEXIBLE_COMMIT = 3, 8
_PERCENT_OF_NS: Final = 100 / 1e9
"""Of one second of the thread that serves all requests."""


class Throttling:
    """Asked by the dispatcher for each request."""

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._clock = clock

    def of(self, connection: Connection, view: memoryview, at: int, end: int) -> Throttle | None:
        """None for a client without a quota, and for who has not logged in: nothing that it says of itself counts."""
        key, version = _I16.unpack_from(view, at)[0], _I16.unpack_from(view, at + 2)[0]
        if connection.listener.apart or not connection.peer.authenticated:
            return None
        of_brokers = key in _OF_BROKERS or (key == _ADD_PARTITIONS_TO_TXN and version >= _FIRST_OF_BROKERS)
        if of_brokers and _may_be_broker(connection):
            connection.measure(None)
            return None
        client = _client_id(view, at, end)
        user = connection.peer.principal.name
        budget = self._quotas.of(user, client, self._clock.monotonic_ms())
        if budget is None:
            connection.measure(None)
            return None
        throttle = Throttle(partial(self._quotas.budget, user, client), connection, self._clock)
        connection.measure(throttle.moved if budget.request is not None else None)
        return throttle


class Throttle:
    """One request of a client that has quotas."""

    __slots__ = ("_charged", "_connection", "_look_up", "_since_ns", "_worked_ns", "clock")

    def __init__(self, look_up: Callable[[float], Budget], connection: Connection, clock: Clock) -> None:
        """`look_up` says what the client's quotas are at a time: a request may wait, and they may change meanwhile."""
        self._look_up = look_up
        self._connection = connection
        self.clock = clock
        self._since_ns: int | None = perf_counter_ns()
        """Worked on since then; None while it waits."""
        self._worked_ns = 0
        self._charged = False
        """The answer says already what it has taken."""

    @property
    def budget(self) -> Budget:
        return self._look_up(self.clock.monotonic_ms())

    # -- time --------------------------------------------------------------------------------------------------------

    def work(self) -> bool:
        """From now on the request is worked on. False if it was before."""
        if self._since_ns is not None:
            return False
        self._since_ns = perf_counter_ns()
        return True

    def rest(self) -> None:
        """It has to wait for something else, if it does not already, or is done."""
        self._note()
        self._since_ns = None

    def timed(self, steps: Generator[_Y, None, T] | Coroutine[_Y, None, T]) -> Generator[_Y, None, T]:
        """The same work, measured without what goes on between its steps."""
        resume: Callable[[], _Y] = partial(steps.send, None)
        step = resume
        while True:
            begins = self.work()
            try:
                awaited = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                if begins:
                    self.rest()
            try:
                yield awaited
                step = resume
            except BaseException as error:
                step = partial(steps.throw, error)

    def timed_turns(self, work: Coroutine[Any, None, T]) -> Awaitable[T]:
        """The same of work that waits for something now and then."""
        return _Turns(self, work)

    def at_work(self, work: Callable[[], T]) -> T:
        """The last of it. What it has made may be sent at once, for that is measured by itself."""
        self.work()
        try:
            return work()
        finally:
            self.rest()

    def _note(self) -> None:
        """The time until now."""
        if self._since_ns is None:
            return
        now_ns = perf_counter_ns()
        taken_ns, self._since_ns = now_ns - self._since_ns, now_ns
        if self._charged:
            self.moved(taken_ns)
        else:
            self._worked_ns += taken_ns

    def moved(self, ns: int) -> None:
        """Its bytes have taken so long, of the kernel and of TLS, or what was done for it after its answer was made: as
        in Kafka, that counts with the client's next request."""
        request = self.budget.request
        if request is not None:
            request.add(ns * _PERCENT_OF_NS, self.clock.monotonic_ms())

    def _time_ms(self, now_ms: float) -> int:
        self._note()
        self._charged = True
        worked_ns, self._worked_ns = self._worked_ns, 0
        request = self.budget.request
        return 0 if request is None else request.take(worked_ns * _PERCENT_OF_NS, now_ms)

    # -- what each request takes ---------------------------------------------------------------------------------------

    def served(
        self, key: int, version: int, size: int, reply: Reply | DeferredReply | Pending | None
    ) -> Reply | DeferredReply | Pending | None:
        """Of a produce of so many bytes, or of a prepared answer: the same reply, with the time to wait in it. A fetch
        has asked for that itself."""
        self.rest()
        if key == FETCH:
            return reply
        now_ms = self.clock.monotonic_ms()
        throttle_ms = 0 if reply is None else self._time_ms(now_ms)
        quota = self.budget.produce if key == PRODUCE else None
        if quota is not None:
            throttle_ms = max(throttle_ms, quota.take(size, now_ms))
        if not throttle_ms:
            return reply
        self._connection.mute(throttle_ms)
        if reply is PENDING:
            self._connection.on_reply = _then(self._connection.on_reply, partial(_told, key, version, throttle_ms))
        elif type(reply) is DeferredReply:
            reply.on_reply = _then(reply.on_reply, partial(_told, key, version, throttle_ms))
        else:
            return _told(key, version, throttle_ms, reply)  # type: ignore[arg-type]
        return reply

    def is_of_broker(self, replica_id: int) -> bool:
        """True if the request says so by this id of a replica, and its sender may. Its bytes count for nothing then."""
        return replica_id >= 0 and self._spares_broker()

    def is_of_mender(self, frame: FetchFrame) -> bool:
        """The same of a fetch by which a broker mends its log. Clients may use that id, too: where everybody may do
        everything, it frees nobody from a quota."""
        return (
            frame.replica_id == MENDER
            and frame.session_epoch == SESSIONLESS_EPOCH
            and self._connection.peer.identity.restricted
            and self._spares_broker()
        )

    def _spares_broker(self) -> bool:
        if not _may_be_broker(self._connection):
            return False
        self._connection.measure(None)
        return True

    @property
    def limits_fetches(self) -> bool:
        budget = self.budget
        return budget.fetch is not None or budget.request is not None

    @property
    def most_fetched(self) -> int | None:
        """The bytes that one fetch may be answered with, so that it can pass at all, and in its turn."""
        quota = self.budget.fetch
        return None if quota is None else quota.line.most(self._connection.peer.turn)

    def fetched(self, size: int) -> int:
        """The time for which a fetch is to be answered with nothing, and to come again; or 0."""
        now_ms = self.clock.monotonic_ms()
        connection, fetch, throttle_ms = self._connection, self.budget.fetch, self._time_ms(now_ms)
        if fetch is not None and not throttle_ms and not connection.closed:
            peer = connection.peer
            throttle_ms, peer.turn = fetch.line.ask(size, now_ms, peer.turn)
            if not throttle_ms and size > fetch.most_at_once:
                connection.mute(fetch.owed_ms(now_ms))
        if throttle_ms:
            connection.mute(throttle_ms)
        return throttle_ms

    def answered(self, message: Any, response: Any) -> None:
        """Of every other request, just before its response is written."""
        if not self.is_of_broker(getattr(message, "replica_id", -1)):
            self.say(response, self._time_ms(self.clock.monotonic_ms()))

    def say(self, response: Any, throttle_ms: int) -> None:
        if throttle_ms:
            self._connection.mute(throttle_ms)
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)


class _Turns(Awaitable[T]):
    def __init__(self, throttle: Throttle, work: Coroutine[Any, None, T]) -> None:
        self._throttle = throttle
        self._work = work

    def __await__(self) -> Generator[Any, None, T]:
        return self._throttle.timed(self._work)


def timed(throttle: Throttle | None, pieces: Pieces[T]) -> Pieces[T]:
    """Measured, for a client that has quotas."""
    return pieces if throttle is None else throttle.timed(pieces)


class MutationQuota:
    """What one request may do to topics: `admit` is asked for each topic, right before it is changed.

    Requests of versions that know the refusal are refused once nothing is left; those before are carried out, and their
    connection waits.
    """

    def __init__(self, throttle: Throttle | None, *, strict: bool) -> None:
        self._throttle = throttle
        self._mutations = None if throttle is None else throttle.budget.mutations
        self._strict = strict
        self._throttle_ms = 0

    def admit(self, partitions: int) -> None:
        """Raises THROTTLING_QUOTA_EXCEEDED."""
        throttle, mutations = self._throttle, self._mutations
        if throttle is None or mutations is None:
            return
        now_ms = throttle.clock.monotonic_ms()
        if self._strict and mutations.exceeded_ms(now_ms):
            self._throttle_ms = mutations.exceeded_ms(now_ms)
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        mutations.take(partitions, now_ms)
        if not self._strict:
            self._throttle_ms = mutations.exceeded_ms(now_ms)

    def say(self, response: Any) -> None:
        """The time to wait, in the response to the request."""
        if self._throttle is not None and self._mutations is not None and self._throttle_ms:
            self._mutations.throttled.add(self._throttle_ms, self._throttle.clock.monotonic_ms())
            self._throttle.say(response, self._throttle_ms)


def _may_be_broker(connection: Connection) -> bool:
    allowed: bool = connection.peer.identity.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    return allowed


def _client_id(view: memoryview, at: int, end: int) -> str:
    """Empty for a client without one. What the view has after this request is another's."""
    begin = at + _CLIENT_ID_AT + _I16.size
    size = _I16.unpack_from(view, at + _CLIENT_ID_AT)[0] if begin <= end else 0
    if size <= 0:
        return ""
    if begin + size > end:
        raise MalformedError(f"it has no room for a client id of {size} bytes")
    return str(view[begin : begin + size], "utf-8", "replace")


def _then(first: OnReply | None, second: OnReply) -> OnReply:
    return second if first is None else lambda reply: second(first(reply))


def _told(key: int, version: int, throttle_ms: int, reply: Reply | None) -> Reply | None:
    """The packed reply with the time to wait, where its API and version have a place for it."""
    if type(reply) is list and key == PRODUCE:
        before, *after = reply
        return [bytes(before)[: -_I32.size] + _I32.pack(throttle_ms), *after]  # type: ignore[arg-type]
    if type(reply) is not bytes:
        return reply
    if key == PRODUCE:
        at = len(reply) - _I32.size - (version >= FIRST_FLEXIBLE_PRODUCE)
    elif key == OFFSET_COMMIT and version >= _FIRST_COMMIT_WITH_THROTTLE:
        at = 2 * _I32.size + (version >= _FIRST_FLEXIBLE_COMMIT)
    else:
        return reply
    return reply[:at] + _I32.pack(throttle_ms) + reply[at + _I32.size :]
