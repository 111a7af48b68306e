"""A handler may answer at once, later, or when something else has happened."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkad.api import dispatch
from kafkad.api.audit import Audit
from kafkad.api.context import Context
from kafkad.api.dispatch import Dispatcher
from kafkad.api.permissions import NONE
from kafkad.api.routes import BETWEEN_BROKERS, ROUTES, Route
from kafkad.errors import ErrorCode, KafkaError
from kafkad.metrics import RequestProbe
from kafkad.net.connection import Connection, Ending
from kafkad.net.reply import PENDING
from kafkad.turns import Jobs, Pieces, at_once
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from kafkad.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkad.wire.primitives import MalformedError
from kafkad.wire.schema import decode
from tests.api.frames import jobs
from tests.fakes import turns

KEY, VERSION = 12, 4


class FakeConnection:
    subject = None

    address = "somebody"
    host = "1.2.3.4"
    listener = SimpleNamespace(name="PLAINTEXT")
    waited_us = 0

    def __init__(self) -> None:
        self.peer: Any = None
        self.replies: list[Any] = []
        self.closed = False

    def reply(self, reply: Any) -> None:
        self.replies.append(reply)

    def end(self) -> None:
        self.closed = True


class Asked:
    """A dispatcher with one API, whose handler gives `answer`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        route = Route(KEY, "Heartbeat", 0, 4, NONE, "tests.api.test_dispatch:unused")
        monkeypatch.setitem(dispatch.BY_KEY, KEY, route)  # type: ignore[attr-defined]
        self.probe = RequestProbe(route.name)
        self.connection = FakeConnection()
        replicas = SimpleNamespace(on_topic_changed=[], waits=SimpleNamespace(soon=None))
        audit = Audit(lambda: 0.0, lambda at, action: None)
        parts = SimpleNamespace(audit=audit, between_brokers=(), replicas=replicas)
        context = cast(Context, parts)
        self.dispatcher = Dispatcher(context, cast(Any, None), cast(Any, None), {KEY: self.probe}, jobs())
        self.dispatcher._handlers[KEY] = lambda context, request, message: answer
        message = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
        self.frame = frame = encode_request(RequestHeader(KEY, VERSION, 77, "c"), message)[4:]
        connection = cast(Connection, self.connection)
        connection.peer = self.dispatcher.peer(connection)
        self.returned = self.dispatcher(connection, memoryview(frame), 0, len(frame))

    @property
    def code(self) -> int:
        [reply] = self.connection.replies
        data = reply if isinstance(reply, bytes | bytearray) else b"".join(reply)
        correlation_id, at = read_response_header(KEY, VERSION, data[4:])
        assert correlation_id == 77
        return cast(int, decode(HeartbeatResponse, VERSION, data[4 + at :]).error_code)


class LoginsEverywhere:
    def __contains__(self, listener: str) -> bool:
        return True

    def welcome(self, connection: Connection, dispatcher: Dispatcher) -> None:
        pass


@pytest.mark.parametrize("login", [False, True])
def test_a_certificate_says_who_a_peer_is_unless_it_has_to_log_in(monkeypatch: pytest.MonkeyPatch, login: bool) -> None:
    asked = Asked(monkeypatch, HeartbeatResponse())
    connection = FakeConnection()
    connection.subject = "CN=alice"  # type: ignore[assignment]
    if login:
        asked.dispatcher._logins = cast(Any, LoginsEverywhere())
    peer = asked.dispatcher.peer(cast(Connection, connection))
    assert (str(peer.principal), peer.authenticated) == (
        ("User:ANONYMOUS", False) if login else ("User:CN=alice", True)
    )


@pytest.mark.parametrize(
    ("frame", "error", "told"),
    [
        (struct.pack(">hhi", 999, 0, 1), None, "refused: there is no API 999"),
        (struct.pack(">hhi", KEY, 9, 1), None, "refused: Heartbeat is served in versions 0 to 4, not 9"),
        (struct.pack(">hhih", KEY, 3, 1, -1), None, "Heartbeat v3 is malformed: HeartbeatRequest v3: "),
        (None, MemoryError(), "not enough memory for Heartbeat v4"),
        (None, ZeroDivisionError("ours"), "internal error while handling Heartbeat v4"),
        (None, IndexError("ours"), "internal error while handling Heartbeat v4"),
        (
            struct.pack(">hhihb", KEY, 3, 1, -1, 0),
            struct.error("theirs"),
            "Heartbeat v3 is malformed: HeartbeatRequest",
        ),
    ],
    ids=["unknown", "version", "malformed", "memory", "bug", "bug in reading", "read in place"],
)
def test_why_a_request_ends_its_connection_is_told_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    frame: bytes | None,
    error: Exception | None,
    told: str,
) -> None:
    def handle(context: Any, request: Any, message: Any) -> HeartbeatResponse:
        if error is not None:
            raise error
        return HeartbeatResponse()

    asked = Asked(monkeypatch, HeartbeatResponse())
    asked.dispatcher._handlers[KEY] = handle
    data = frame or asked.frame
    with pytest.raises(Ending) as ending:
        asked.dispatcher(cast(Connection, asked.connection), memoryview(data), 0, len(data))
    assert ending.value.__context__ is None, "it would keep what the request takes in memory"
    [record] = caplog.records
    assert record.getMessage().startswith(f"closing somebody: {told}")


def test_handlers_are_imported_before_they_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be imported keeps no other from it, and is told of."""
    dispatcher = Asked(monkeypatch, HeartbeatResponse()).dispatcher
    dispatcher._between_brokers = {route.key: route for route in BETWEEN_BROKERS}

    def no_file(module: str) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def no_file_for_one(module: str) -> object:
        return no_file(module) if module == "kafkad.api.delete_topics" else import_module(module)

    monkeypatch.setattr(dispatch, "import_module", no_file_for_one)
    [(name, error)] = at_once(dispatcher.import_handlers()).items()
    assert (name, str(error)) == ("DeleteTopics", str(OSError(errno.EMFILE, os.strerror(errno.EMFILE))))
    monkeypatch.setattr(dispatch, "import_module", no_file)
    left = set()
    for route in (*ROUTES, *BETWEEN_BROKERS):
        try:
            if route.handler:
                dispatcher._handler(route)
        except OSError:
            left.add(route.name)
    assert left == {"DeleteTopics"}


def test_a_stop_breaks_off_the_handlers_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        may_go_on, done = asyncio.Event(), False

        async def answer() -> HeartbeatResponse:
            nonlocal done
            await may_go_on.wait()
            done = True
            return HeartbeatResponse()

        asked = Asked(monkeypatch, answer())
        await turns()
        assert not asked.dispatcher.idle
        await asked.dispatcher.stop()
        may_go_on.set()
        await turns()
        assert asked.dispatcher.idle
        assert asked.connection.closed
        assert not done

    asyncio.run(scenario())


@pytest.mark.parametrize("later", [False, True])
def test_each_error_within_an_answer_is_counted(monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    codes = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = DeleteTopicsResponse(responses=[DeletableTopicResult(error_code=code) for code in codes])

    async def answer() -> DeleteTopicsResponse:
        return response

    async def scenario() -> None:
        asked = Asked(monkeypatch, answer() if later else response)
        await turns()
        assert asked.probe.errors == {"UNKNOWN_TOPIC_OR_PARTITION": 2}

    asyncio.run(scenario())


@pytest.mark.parametrize(("topics", "alone"), [(5, False), (100, True)])
def test_a_large_answer_is_completed_alone(monkeypatch: pytest.MonkeyPatch, topics: int, alone: bool) -> None:
    monkeypatch.setattr(dispatch, "_SMALL_ANSWER", 1000)
    grown: list[Callable[[], bool]] = []
    do = Jobs.do

    def watched(jobs: Jobs, pieces: Any, *, has_grown: Callable[[], bool], **how: Any) -> Any:
        grown.append(has_grown)
        return do(jobs, pieces, has_grown=has_grown, **how)

    def answer() -> Pieces[DeleteTopicsResponse]:
        yield
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t" * 50) for _ in range(topics)])

    async def scenario() -> None:
        monkeypatch.setattr(Jobs, "do", watched)
        asked = Asked(monkeypatch, answer())
        await turns()
        assert len(asked.connection.replies or [asked.returned]) == 1
        assert [has_grown() for has_grown in grown] == [alone]

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["future", "coroutine"])
def test_what_is_promised_is_sent_when_it_comes(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    async def scenario() -> None:
        promise: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()

        async def wait() -> HeartbeatResponse:
            return await promise

        asked = Asked(monkeypatch, promise if kind == "future" else wait())
        assert asked.returned is PENDING
        await turns()
        assert not asked.connection.replies
        assert not asked.dispatcher.idle
        promise.set_result(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        await turns()
        assert asked.code == ErrorCode.REBALANCE_IN_PROGRESS
        assert asked.dispatcher.idle

    asyncio.run(scenario())


def test_a_refusal_that_comes_later_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        promise: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        asked = Asked(monkeypatch, promise)
        promise.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))
        await turns()
        assert asked.code == ErrorCode.NOT_COORDINATOR

    asyncio.run(scenario())


@pytest.mark.parametrize("end", [MalformedError("no"), ZeroDivisionError("ours"), None])
def test_what_never_comes_closes_the_connection(monkeypatch: pytest.MonkeyPatch, end: Exception | None) -> None:
    async def scenario() -> None:
        promise: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
        asked = Asked(monkeypatch, promise)
        if end is None:
            promise.cancel()
        else:
            promise.set_exception(end)
        await turns()
        assert asked.connection.closed
        assert not asked.connection.replies
        assert asked.dispatcher.idle

    asyncio.run(scenario())
