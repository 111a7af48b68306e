"""Frames in, frames out, through the real dispatcher: everything of a connection but its socket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any, cast

import pytest

from kafkad.api.dispatch import Dispatcher
from kafkad.api.fetch import FetchApi
from kafkad.api.fetch_session import FetchSessions
from kafkad.api.logins import Logins
from kafkad.api.peer import Peer
from kafkad.api.produce import ProduceApi
from kafkad.api.routes import FETCH, PRODUCE, ROUTES
from kafkad.api.verifier import Verifier
from kafkad.clock import SystemClock
from kafkad.log.batch_workers import BatchWorkers
from kafkad.metrics import RequestProbe
from kafkad.net.connection import Connection, DeferredReply, OnReply
from kafkad.net.reply import PENDING, Reply
from kafkad.security.authorizer import ALLOW_ALL, Authorizer
from kafkad.turns import Jobs, Lane, at_once
from kafkad.wire.apis import response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.schema import decode
from tests.fakes import FakeTransactions
from tests.one_broker import OneBroker

_CORRELATION_ID = 77


class FakeConnection:
    """As much of a connection as the dispatcher and its handlers look at."""

    subject = None

    address = "a-test:1"
    host = "a-test"
    waited_us = 0

    def __init__(self, broker: OneBroker) -> None:
        self.listener = broker.connection.listener
        self.peer: Peer
        self.closed = False
        self.replies: list[Reply | None] = []
        self.later: DeferredReply | None = None
        self.on_reply: OnReply | None = None
        self.muted_ms: list[float] = []
        self.spent: Callable[[int], None] | None = None

    def measure(self, spent: Callable[[int], None] | None) -> None:
        self.spent = spent

    def mute(self, ms: float) -> None:
        self.muted_ms.append(ms)

    def reply(self, reply: Reply | None) -> None:
        on_reply, self.on_reply = self.on_reply, None
        self.replies.append(reply if on_reply is None else on_reply(reply))

    def settled(self) -> None:
        assert self.later is not None
        self.replies.append(self.later.reply)

    def end(self) -> None:
        self.closed = True

    def close(self) -> None:
        self.end()

    def has_lost_client(self) -> bool:
        return self.closed

    def own(self, frame: memoryview) -> memoryview:
        return memoryview(bytearray(frame))


def jobs() -> Jobs:
    return Jobs(Lane(lambda callback: asyncio.get_running_loop().call_soon(callback)))


class Frames:
    """One client's connection to a broker."""

    def __init__(self, broker: OneBroker, authorizer: Authorizer = ALLOW_ALL, logins: Logins | None = None) -> None:
        self.broker = broker
        self.probes = {route.key: RequestProbe(route.name) for route in ROUTES}
        self.batch_workers = BatchWorkers()
        clock = SystemClock()
        self.transactions = FakeTransactions()
        verifier = Verifier(lambda: self.transactions, 1, None, clock, broker.timers, lambda: 1_000)
        self.produce = ProduceApi(
            *(broker.replicas, clock, broker.timers, self.batch_workers, self.probes[PRODUCE], jobs(), verifier)
        )
        sessions = FetchSessions(10, 120_000, Random(1), at_once)
        self.fetch = FetchApi(broker.replicas, sessions, clock, self.probes[FETCH], jobs())
        self.dispatcher = Dispatcher(
            broker.context,
            self.produce,
            self.fetch,
            self.probes,
            jobs(),
            authorizer=authorizer,
            logins=logins,
        )
        self.connection = self.connect()

    def connect(self) -> FakeConnection:
        connection = FakeConnection(self.broker)
        connection.peer = self.dispatcher.peer(cast(Connection, connection))
        return connection

    def close(self) -> None:
        self.batch_workers.close()

    @contextmanager
    def handled(self, api: ModuleType) -> Iterator[list[Any]]:
        """The requests that come to the handler of an API: those that are not answered on a quicker way."""
        came: list[Any] = []
        handle = api.handle

        def counted(context: Any, request: Any, message: Any) -> Any:
            came.append(message)
            return handle(context, request, message)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(api, "handle", counted)
            self.dispatcher._handlers.clear()
            yield came
        self.dispatcher._handlers.clear()

    def begin(
        self,
        message: Any,
        version: int,
        client_id: str | None = "test",
        left_over: bytes = b"",
        damage: tuple[bytes, bytes] = (b"", b""),
        then: Callable[[], object] = lambda: None,
    ) -> Reply | None:
        """Dispatch one request; what it answers at once, None if nothing or not yet. `damage` replaces some bytes;
        `then` is called in the same turn."""
        key = message.__schema__.key
        frame = encode_request(RequestHeader(key, version, _CORRELATION_ID, client_id), message) + left_over
        if damage[0]:
            frame = frame.replace(*damage)
        view = memoryview(bytearray(frame))

        async def dispatch() -> Any:
            reply = self.dispatcher(cast(Connection, self.connection), view, 4, len(view))
            then()
            return reply

        reply = self.broker.run(dispatch())
        view[:] = bytes(len(view))  # the receive buffer is used again at once
        if isinstance(reply, DeferredReply):
            self.connection.later = reply
            return None
        return None if reply is PENDING else cast("Reply | None", reply)

    def ask(self, message: Any, version: int, client_id: str | None = "test") -> Any:
        """The response message; waits for one that comes later."""
        reply = self.begin(message, version, client_id)
        if reply is None and not self.connection.closed:
            self.broker.run(self._until_answered())
            reply = self.connection.replies.pop(0)
        assert reply is not None
        return self.decode(reply, message.__schema__.key, version)

    async def _until_answered(self) -> None:
        while not self.connection.replies:
            await asyncio.sleep(0.001)

    def decode(self, reply: Reply, key: int, version: int) -> Any:
        parts = reply if isinstance(reply, list) else [reply]
        data = b"".join(
            bytes(p) if isinstance(p, bytes | bytearray) else os.pread(p.file.fd, p.length, p.position) for p in parts
        )
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        correlation_id, at = read_response_header(key, version, data, 4)
        assert correlation_id == _CORRELATION_ID
        return decode(response_class(key), version, data[at:])
