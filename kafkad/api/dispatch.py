"""From a frame to its handler. Produce and Fetch are served in place; everything else is decoded and routed."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from importlib import import_module
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

from kafkad.api.answering import LARGE_FRAME, LARGEST_VERSIONS, Refused, or_close, tell_of
from kafkad.api.context import Context, Request
from kafkad.api.fetch import FetchApi
from kafkad.api.peer import Peer
from kafkad.api.permissions import Handler, check_unread, guarded
from kafkad.api.prepared import NO_REPLY, Grounds
from kafkad.api.produce import ProduceApi
from kafkad.api.routes import API_NAMES, API_VERSIONS, BY_KEY, FETCH, PRODUCE, Route
from kafkad.api.throttling import Throttle, Throttling, timed
from kafkad.errors import ErrorCode, KafkaError
from kafkad.metrics import RequestProbe
from kafkad.net.connection import Connection, DeferredReply, Ending
from kafkad.net.reply import PENDING, Pending, Reply
from kafkad.security.authorizer import ALLOW_ALL, Authorizer, Principal
from kafkad.together import cancelled
from kafkad.turns import Jobs, Pieces
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import encode_response, encode_response_in_pieces, read_request_header
from kafkad.wire.schema import (
    MalformedError,
    count_errors,
    count_errors_in_pieces,
    decode,
    decode_in_pieces,
)

if TYPE_CHECKING:
    from kafkad.api.logins import Logins

log = logging.getLogger(__name__)

_START = struct.Struct(">hhi")
_SMALL_IN_MEMORY = 64 * 1024
"""Larger ones are worked on one at a time: decoded, they take up to fifty times their size."""
_SMALL_ANSWER = 1024 * 1024
"""Larger ones are completed one at a time: 64 KB may ask for the documentation of all settings of 2,500 topics."""

T = TypeVar("T")

_Answer = Reply | DeferredReply | Pending | None


class Dispatcher:
    """Handed to the server: called once per frame, on the event loop."""

    def __init__(
        self,
        context: Context,
        produce: ProduceApi,
        fetch: FetchApi,
        probes: dict[int, RequestProbe],
        jobs: Jobs,
        authorizer: Authorizer = ALLOW_ALL,
        logins: Logins | None = None,
    ) -> None:
        """`probes` has one for every route; `logins` are for the listeners that ask for one."""
        self._context = context
        self._between_brokers = {route.key: route for route in context.between_brokers}
        self._produce = produce
        self._fetch = fetch
        self._handlers: dict[int, Handler] = {}
        self._waiting: set[asyncio.Future[Any]] = set()
        self._probes = probes
        self._jobs = jobs
        self._authorizer = authorizer
        self._logins = logins
        self.throttling: Throttling | None = None
        """None while no client has a quota."""
        self._grounds = Grounds(context.replicas.waits.soon)
        context.replicas.on_topic_changed.append(self._grounds.topic_changed)

    def import_handlers(self) -> Pieces[dict[str, Exception]]:
        """What requests need, one module after the other: one that could not be imported when it is asked for, since
        the broker has no file, memory or disk left, would have its clients' connections closed. Returns the APIs that
        lack something, and why."""
        lacking: dict[str, Exception] = {}
        for route in (*BY_KEY.values(), *self._between_brokers.values()):
            try:
                request_class(route.key)
                yield
                if route.handler:
                    self._handler(route)
            except Exception as error:
                lacking[route.name] = error
            yield
        return lacking

    def peer(self, connection: Connection) -> Peer:
        name, logins = connection.listener.name, self._logins
        must_authenticate = logins is not None and name in logins
        peer = Peer(name, connection.host, self._authorizer, self._grounds, must_authenticate=must_authenticate)
        if logins is not None and must_authenticate:
            logins.welcome(connection, self)
        elif connection.subject is not None:
            peer.identify(Principal("User", connection.subject))
        return peer

    def permissions_changed(self) -> None:
        """Drops all prepared answers: the authorizer may decide differently from now on."""
        self._grounds.everything_changed()

    def throttle_by(self, throttling: Throttling | None) -> None:
        """Clients' quotas have changed; None if there are none. Answers that were prepared know nothing of them."""
        self.throttling = throttling
        self._grounds.everything_changed()

    @property
    def idle(self) -> bool:
        """True if no handler is at work, and no reply that one has promised is still due."""
        return not self._waiting

    async def stop(self) -> None:
        """Break off the handlers that are at work. Futures that others complete end with those."""
        await cancelled([each for each in self._waiting if isinstance(each, asyncio.Task)])

    def __call__(self, connection: Connection, view: memoryview, at: int, end: int) -> _Answer:
        """HOT. Ending, with a line in the log, where that is the answer."""
        started = perf_counter_ns()
        key, version, correlation_id = _START.unpack_from(view, at)
        try:
            peer: Peer = connection.peer
            throttle = None if self.throttling is None else self.throttling.of(connection, view, at, end)
            prepared = peer.prepared.get(key)
            answer = None if prepared is None else prepared.answer(view, at, end)
            if answer is not None:
                reply: _Answer = None if answer is NO_REPLY else answer
            else:
                route = self._admitted(peer, key)
                if key == PRODUCE and version >= route.first:
                    reply = self._produce.serve(connection, view[at:end], version, throttle)
                elif not route.first <= version <= route.last:
                    reply = self._refuse_version(route, version, correlation_id)
                elif key == FETCH:
                    reply = self._fetch.serve(connection, view[at:end], version, correlation_id, throttle)
                else:
                    return self._route(connection, route, view[at:end], started, throttle)
            probe, now = self._probes[key], perf_counter_ns()
            if connection.waited_us:
                probe.record_queued(connection.waited_us)
            if reply is PENDING:
                connection.on_reply = partial(_record_wait, probe, started, now)
            elif type(reply) is DeferredReply:
                reply.on_reply = partial(_record_wait, probe, started, now)
            else:
                probe.record((now - started) // 1000)
            return reply if throttle is None else throttle.served(key, version, end - at, reply)
        except Exception as error:
            ending = _ending(connection, view[at:end], key, version, error)
        raise ending

    def _admitted(self, peer: Peer, key: int) -> Route:
        route = BY_KEY.get(key) or self._between_brokers.get(key)
        if route is None:
            raise Refused(f"there is no API {key}")
        if not peer.authenticated and key != API_VERSIONS:
            raise Refused(f"{route.name} comes before its sender has authenticated itself")
        return route

    def _refuse_version(self, route: Route, version: int, correlation_id: int) -> Reply:
        """ApiVersions answers any version, in version 0, so that the client can try again lower; others end here."""
        if route.key != API_VERSIONS:
            raise Refused(f"{route.name} is served in versions {route.first} to {route.last}, not {version}")
        from kafkad.api.api_versions import unsupported

        return encode_response(API_VERSIONS, 0, correlation_id, unsupported(route))

    def _route(
        self, connection: Connection, route: Route, frame: memoryview, started: int, throttle: Throttle | None
    ) -> Reply | Pending:
        header, body_at = read_request_header(frame, 0)
        if connection.waited_us:
            self._probes[route.key].record_queued(connection.waited_us)
        if len(frame) > (LARGEST_VERSIONS if route.key == API_VERSIONS else LARGE_FRAME):
            request = Request(header, connection, connection.own(frame), throttle)
            asked = _Asked(route, request, None, started)
            return self._in_pieces(asked, self._read_and_handled(asked, body_at))
        message = decode(request_class(route.key), header.api_version, frame[body_at:])
        asked = _Asked(route, Request(header, connection, frame, throttle), message, started)
        try:
            return self._settle(asked, self._handler(route)(self._context, asked.request, message))
        except KafkaError as error:
            return self._encode(asked, _refusal(asked, error))

    def _handler(self, route: Route) -> Handler:
        handler = self._handlers.get(route.key)
        if handler is None:
            module, _, name = route.handler.partition(":")
            handler = getattr(import_module(module), name)
            if self._authorizer is not ALLOW_ALL:
                handler = guarded(handler, route.permissions)
            self._handlers[route.key] = handler
        return handler

    def _settle(self, asked: _Asked, response: Any) -> Reply | Pending:
        """Turn the handler's result into the reply, now or later."""
        throttle = asked.request.throttle
        if throttle is not None:
            throttle.rest()
        if isinstance(response, Generator):
            return self._in_pieces(asked, response)
        if isinstance(response, Coroutine):
            response = asyncio.ensure_future(response if throttle is None else throttle.timed_turns(response))
        if isinstance(response, asyncio.Future):
            self._wait(response, partial(self._handled, asked))
            return PENDING
        return self._encode(asked, response)

    def _wait(self, future: asyncio.Future[Any], then: Callable[[asyncio.Future[Any]], None]) -> None:
        self._waiting.add(future)
        future.add_done_callback(then)

    # -- large requests, and those whose answers may be --------------------------------------------------------------

    def _read_and_handled(self, asked: _Asked, body_at: int) -> Pieces[Any]:
        request, route = asked.request, asked.route
        if _own_refusal(route) is None:
            check_unread(request, route.permissions)
        body = request.frame[body_at:]
        asked.message = yield from decode_in_pieces(request_class(route.key), request.version, body, route.items)
        response = self._handler(route)(self._context, request, asked.message)
        return (yield from response) if isinstance(response, Generator) else response

    def _in_pieces(self, asked: _Asked, handled: Pieces[Any]) -> Reply | Pending:
        size = len(asked.request.frame)
        throttle = asked.request.throttle
        if throttle is not None:
            throttle.rest()
        job = self._jobs.do(
            timed(throttle, self._answered(asked, handled)),
            alone=size > _SMALL_IN_MEMORY,
            size=size,
            host=asked.request.connection.host,
            has_grown=asked.has_grown,
        )
        if not job.done():
            self._wait(job, partial(self._answer, asked))
            return PENDING
        answer = job.result()
        return self._settle(asked, answer) if isinstance(answer, Awaitable) else answer

    def _answered(self, asked: _Asked, handled: Pieces[Any]) -> Pieces[Any]:
        """The reply; or what a handler has to wait for."""
        try:
            response = yield from handled
        except KafkaError as error:
            response = _refusal(asked, error)
        return response if isinstance(response, Awaitable) else (yield from self._encoded(asked, response))

    def _encoded(self, asked: _Asked, response: Any) -> Pieces[Reply]:
        header, throttle = asked.request.header, asked.request.throttle
        if throttle is not None:
            throttle.answered(asked.message, response)
        reply = asked.reply
        yield from encode_response_in_pieces(reply, header.api_key, header.api_version, header.correlation_id, response)
        self._note(asked, response, (yield from count_errors_in_pieces(response)))
        return reply

    # -- answers that come later ---------------------------------------------------------------------------------------

    def _handled(self, asked: _Asked, done: asyncio.Future[Any]) -> None:
        """A handler has what it waited for: its response, or the rest of its work in pieces."""

        def reply() -> None:
            try:
                response = done.result()
            except KafkaError as error:
                response = _refusal(asked, error)
            answer = self._in_pieces(asked, response if isinstance(response, Generator) else _told(response))
            if not isinstance(answer, Pending):
                asked.request.connection.reply(answer)

        self._end_wait(asked, done, reply)

    def _answer(self, asked: _Asked, done: asyncio.Future[Any]) -> None:
        """A job is done."""

        def reply() -> None:
            answer = done.result()
            if isinstance(answer, Awaitable):
                self._settle(asked, answer)
            else:
                asked.request.connection.reply(answer)

        self._end_wait(asked, done, reply)

    def _end_wait(self, asked: _Asked, done: asyncio.Future[Any], reply: Callable[[], None]) -> None:
        self._waiting.discard(done)
        or_close(asked.request.connection, asked.route.name, asked.request.version, reply)

    def _encode(self, asked: _Asked, response: Any) -> Reply:
        header, throttle = asked.request.header, asked.request.throttle
        if throttle is not None:
            throttle.work()
            throttle.answered(asked.message, response)
        reply = encode_response(header.api_key, header.api_version, header.correlation_id, response)
        self._note(asked, response, count_errors(response))
        if throttle is not None:
            throttle.rest()
        return reply

    def _note(self, asked: _Asked, response: Any, errors: dict[int, int]) -> None:
        if asked.message is not None:
            self._context.audit.note(asked.request, asked.message, response)
        probe = self._probes[asked.route.key]
        probe.record((perf_counter_ns() - asked.started) // 1000)
        for code, count in errors.items():
            probe.error(ErrorCode(code).name, count)


class _Asked:
    """One request on its way through its handler."""

    __slots__ = ("message", "reply", "request", "route", "started")

    def __init__(self, route: Route, request: Request, message: Any, started: int) -> None:
        self.route = route
        self.request = request
        self.message = message
        """None until it is read; for ever if it is refused unread."""
        self.started = started
        self.reply = bytearray()
        """As far as it has been encoded, where that is done in pieces."""

    def has_grown(self) -> bool:
        return len(self.reply) > _SMALL_ANSWER


def _ending(connection: Connection, frame: memoryview, key: int, version: int, error: Exception) -> Ending:
    """Of an error while a frame was handled; to be called where it is handled."""
    if isinstance(error, Ending):
        return error
    if isinstance(error, IndexError | struct.error):  # by what is read in place, or by us
        error = _malformed(frame, key, version) or error
    tell_of(connection, f"{API_NAMES.get(key, f'API {key}')} v{version}", error)
    return Ending()


def _malformed(frame: memoryview, key: int, version: int) -> MalformedError | None:
    """What is wrong with a frame, if anything is."""
    try:
        _, body_at = read_request_header(frame)
        decode(request_class(key), version, frame[body_at:])
    except MalformedError as error:
        return error
    return None


def _told(response: T) -> Pieces[T]:
    yield from ()
    return response


def _record_wait(probe: RequestProbe, started: int, local_end: int, reply: Reply | None) -> Reply | None:
    """The answer is there to a request whose handler was done with it at `local_end`."""
    probe.record_wait((local_end - started) // 1000, (perf_counter_ns() - local_end) // 1000)
    return reply


def _own_refusal(route: Route) -> Callable[[Request, Any, KafkaError], Any] | None:
    """Of the API's own module, where a refusal names what was asked for."""
    refused: Callable[[Request, Any, KafkaError], Any] | None = getattr(
        import_module(route.handler.partition(":")[0]), "refused", None
    )
    return refused


def _refusal(asked: _Asked, error: KafkaError) -> Any:
    """A refusal of the request as a whole: where the API's own module says, or in the response's only place for it."""
    route = asked.route
    refused = _own_refusal(route)
    if refused is not None:
        return refused(asked.request, asked.message, error)
    response = response_class(route.key)()
    if not hasattr(response, "error_code"):
        raise Refused(f"the response to {route.name} has no field for the error {error.code.name}: {error}")
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response
