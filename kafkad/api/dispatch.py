"""From a frame to its handler. Produce and Fetch are served in place; everything else is decoded and routed."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine
from functools import partial
from importlib import import_module
from time import perf_counter_ns
from typing import Any

from kafkad.api.context import Context, Request
from kafkad.api.fetch import FetchApi
from kafkad.api.produce import ProduceApi
from kafkad.api.routes import API_VERSIONS, BY_KEY, FETCH, OFFSET_COMMIT, PRODUCE, Route
from kafkad.errors import ErrorCode, KafkaError
from kafkad.metrics import RequestProbe
from kafkad.net.connection import Connection, Later
from kafkad.net.reply import PENDING, Pending, Reply
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import encode_response, read_request_header
from kafkad.wire.schema import MalformedError, decode

log = logging.getLogger(__name__)

_START = struct.Struct(">hhi")

_Answer = Reply | Later | Pending | None
Handler = Callable[[Context, Request, Any], Any]


class Dispatcher:
    """Handed to the server: called once per frame, on the event loop."""

    def __init__(self, context: Context, produce: ProduceApi, fetch: FetchApi, probes: dict[int, RequestProbe]) -> None:
        """`probes` has one for every route."""
        self._context = context
        self._produce = produce
        self._fetch = fetch
        self._handlers: dict[int, Handler] = {}
        self._waiting: set[asyncio.Future[Any]] = set()
        self._probes = probes

    @property
    def idle(self) -> bool:
        """No handler is at work, and nobody waits for what one promised."""
        return not self._waiting

    def __call__(self, connection: Connection, view: memoryview, at: int, end: int) -> _Answer:
        key, version, correlation_id = _START.unpack_from(view, at)
        route = BY_KEY.get(key)
        if route is None:
            raise MalformedError(f"there is no API {key}")
        started = perf_counter_ns()
        if key == PRODUCE and version >= route.first:
            reply: _Answer = self._produce.serve(connection, view, at, end, version, correlation_id)
        elif not route.first <= version <= route.last:
            reply = self._refuse_version(route, version, correlation_id)
        elif key == FETCH:
            reply = self._fetch.serve(connection, view, at, end, version, correlation_id)
        else:
            repeated = connection.repeated_commits if key == OFFSET_COMMIT else None
            answer = repeated and repeated.answer(view, at, end, version, correlation_id)
            if not answer:
                return self._route(connection, route, view[at:end], started)
            reply = answer
        probe, now = self._probes[key], perf_counter_ns()
        if reply is PENDING:
            connection.on_reply = partial(_record_wait, probe, started, now)
        elif type(reply) is Later:
            reply.on_reply = partial(_record_wait, probe, started, now)
        else:
            probe.record((now - started) // 1000)
        return reply

    def _refuse_version(self, route: Route, version: int, correlation_id: int) -> Reply:
        """ApiVersions answers any version, in version 0, so that the client can try again lower; others end here."""
        if route.key != API_VERSIONS:
            raise MalformedError(f"{route.name} is served in versions {route.first} to {route.last}, not {version}")
        from kafkad.api.api_versions import unsupported

        return encode_response(API_VERSIONS, 0, correlation_id, unsupported(route))

    def _route(self, connection: Connection, route: Route, frame: memoryview, started: int) -> Reply | Pending:
        header, body_at = read_request_header(frame, 0)
        message = decode(request_class(route.key), header.api_version, frame[body_at:])
        request = Request(header, connection, frame)
        handler = self._handlers.get(route.key)
        if handler is None:
            module, _, name = route.handler.partition(":")
            handler = self._handlers[route.key] = getattr(import_module(module), name)
        try:
            response = handler(self._context, request, message)
        except KafkaError as error:
            response = _error_response(route, error)
        if isinstance(response, Coroutine):
            response = asyncio.ensure_future(response)
        if isinstance(response, asyncio.Future):
            self._waiting.add(response)
            response.add_done_callback(partial(self._answer, connection, route, request, message, started))
            return PENDING
        return self._encode(route, request, message, response, started)

    def _answer(
        self,
        connection: Connection,
        route: Route,
        request: Request,
        message: Any,
        started: int,
        done: asyncio.Future[Any],
    ) -> None:
        self._waiting.discard(done)
        if done.cancelled():
            connection.close()
            return
        try:
            try:
                response = done.result()
            except KafkaError as error:
                response = _error_response(route, error)
            connection.reply(self._encode(route, request, message, response, started))
        except MalformedError as error:
            log.warning("closing %s: its %s cannot be read: %s", connection.peer, route.name, error)
            connection.close()
        except Exception:
            log.exception("closing %s: its %s met an error of ours", connection.peer, route.name)
            connection.close()

    def _encode(self, route: Route, request: Request, message: Any, response: Any, started: int) -> Reply:
        self._context.audit.note(request, message, response)
        header = request.header
        reply = encode_response(route.key, header.api_version, header.correlation_id, response)
        probe = self._probes[route.key]
        probe.record((perf_counter_ns() - started) // 1000)
        code = getattr(response, "error_code", 0)
        if code:
            probe.error(ErrorCode(code).name)
        return reply


def _record_wait(probe: RequestProbe, started: int, local_end: int) -> None:
    """The answer is there to a request whose handler was done with it at `local_end`."""
    probe.record_wait((local_end - started) // 1000, (perf_counter_ns() - local_end) // 1000)


def _error_response(route: Route, error: KafkaError) -> Any:
    """A refusal of the request as a whole, for the APIs that have a place for it."""
    response = response_class(route.key)()
    if not hasattr(response, "error_code"):
        log.error("%s has no place for %s: %s", route.name, error.code.name, error)
        raise MalformedError(f"{route.name} refused: {error}")
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message
    return response
