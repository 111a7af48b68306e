"""A whole broker inside the test's process, and what may never happen to it whatever it is sent."""

from __future__ import annotations

import asyncio
import logging
import signal
import struct
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kafkad.api.routes import BY_KEY
from kafkad.broker.daemon import Daemon
from kafkad.config import load
from kafkad.wire import apis, frames, schema
from kafkad.wire.fetch import read_fetch
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.join_group import JoinGroupRequest
from tests.oracle.kafka import free_port

T = TypeVar("T")
SECONDS = 20
"""Longer than anything here takes; who waits that long waits for an answer that never comes."""
PRODUCE, FETCH, JOIN_GROUP, API_VERSIONS = 0, 1, 11, 18
SENTINEL = 0x5E471E1

_SIZE = struct.Struct(">i")
_START = struct.Struct(">hhi")
_MAX_WAIT = struct.Struct(">i")


def framed(request: bytes) -> bytes:
    return _SIZE.pack(len(request)) + request


def request(message: Any, version: int, correlation_id: int = 1) -> bytes:
    """A request without its length."""
    key = message.__schema__.key
    return frames.encode_request(frames.RequestHeader(key, version, correlation_id, "fuzz"), message)[4:]


def sentinel() -> bytes:
    """A request sent after something wild: it is answered, or the connection was closed."""
    return framed(request(ApiVersionsRequest(), 0, SENTINEL))


class Answer(NamedTuple):
    key: int
    version: int
    correlation_id: int
    message: Any


class Conversation(NamedTuple):
    """All that came back until the broker closed the connection; `reset` when it did so with bytes of ours unread."""

    answers: list[Answer]
    reset: bool

    @property
    def survived(self) -> bool:
        return any(answer.correlation_id == SENTINEL for answer in self.answers)


class RunningBroker:
    """Everything that `kafkad` is, but for the process; the loop turns only while a test is in `run`."""

    def __init__(self, directories: Iterable[Path], *settings: str) -> None:
        self.port = free_port()
        self.directories = list(map(str, directories))
        self.complaints = Complaints()
        self._runner = asyncio.Runner()
        self._settings = [
            f"listeners=PLAINTEXT://127.0.0.1:{self.port}",
            f"log.dirs={','.join(self.directories)}",
            "broker.id=1",
            "kafkad.placement.start=0",
            *settings,
        ]
        logging.getLogger("kafkad").addHandler(self.complaints)
        self.run(self._start())

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(scenario)

    async def _start(self) -> None:
        config = load(None, self._settings, {})
        asyncio.get_running_loop().set_exception_handler(self.complaints.of_loop)
        self._served = asyncio.create_task(Daemon(config, lambda: config, None).serve())
        while not self._served.done():
            try:
                self._healthy = await asyncio.open_connection("127.0.0.1", self.port)
                return
            except ConnectionRefusedError:
                await asyncio.sleep(0.001)
        raise AssertionError(f"the broker did not start: {self._served.result()}")

    def stop(self) -> int:
        """As SIGTERM stops it; the exit status."""

        async def stop() -> int:
            self._healthy[1].close()
            signal.raise_signal(signal.SIGTERM)
            return await asyncio.wait_for(self._served, SECONDS)

        try:
            return self.run(stop())
        finally:
            logging.getLogger("kafkad").removeHandler(self.complaints)
            self._runner.close()

    def converse(self, *pieces: bytes) -> Conversation:
        """Send the pieces one by one on a new connection, then nothing more; what comes back has been checked."""
        sent = b"".join(pieces)
        received, reset = self.run(asyncio.wait_for(self._exchange(pieces), SECONDS))
        try:
            answers = list(_matched(sent, received, reset))
            assert self.complaints.seen == []
            self.check_health()
        except (AssertionError, schema.MalformedError) as error:
            seen, self.complaints.seen = self.complaints.seen, []
            raise AssertionError(f"{error}\nsent: {sent[:4000].hex()}\n" + "\n".join(seen)) from error
        return Conversation(answers, reset)

    async def _exchange(self, pieces: Iterable[bytes]) -> tuple[bytes, bool]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        sending = asyncio.create_task(_send(writer, pieces))
        received = bytearray()
        reset = False
        try:
            while part := await reader.read(1 << 20):
                received += part
        except ConnectionError:
            reset = True
        await sending
        writer.close()
        return bytes(received), reset

    def check_health(self) -> None:
        """Another connection is served as if nothing had happened."""
        answer = self.run(asyncio.wait_for(self.ask_healthy(), SECONDS))
        assert answer[:4] == _SIZE.pack(SENTINEL)

    async def ask_healthy(self) -> bytes:
        reader, writer = self._healthy
        writer.write(sentinel())
        (size,) = _SIZE.unpack(await reader.readexactly(4))
        return await reader.readexactly(size)


class Complaints(logging.Handler):
    """Collects what the broker says when something happened that is its own fault."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.setFormatter(logging.Formatter())
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))

    def of_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.seen.append(f"{context}")


async def _send(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> None:
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)  # so that the broker may read this piece by itself
        writer.write_eof()
    except OSError:
        return  # the broker has closed the connection, as it may


def _matched(sent: bytes, received: bytes, reset: bool) -> Iterator[Answer]:
    """The answers in `received`, each decoded to its last byte, in the order of their requests in `sent`."""
    asked = split(sent)
    for reply in split(received, whole=not reset):
        (correlation_id,) = _SIZE.unpack_from(reply)
        for asking in asked:
            key, version, expected = _START.unpack_from(asking)
            if expected == correlation_id:
                break
        else:
            raise AssertionError(f"nothing that was asked has this answer: {reply[:200].hex()}")
        yield Answer(key, version, correlation_id, _decoded(key, version, reply))


def split(stream: bytes, *, whole: bool = False) -> Iterator[bytes]:
    """The frames of a stream; with `whole` it has to end with one."""
    at = 0
    while len(stream) - at >= 4:
        (size,) = _SIZE.unpack_from(stream, at)
        if size < 8 - 4 * whole or at + 4 + size > len(stream):
            break
        yield stream[at + 4 : at + 4 + size]
        at += 4 + size
    assert not whole or at == len(stream), f"{len(stream) - at} bytes after the last answer"


def _decoded(key: int, version: int, reply: bytes) -> Any:
    cls = apis.response_class(key)
    _, at = frames.read_response_header(key, version, reply)
    if key == API_VERSIONS and reply[at : at + 2] == b"\x00\x23":
        version = 0  # the answer to a version nobody knows
    message, end = schema.read(cls, version, memoryview(reply), at)
    assert end == len(reply), f"{len(reply) - end} bytes after the end of a {cls.__name__} v{version}"
    if key != PRODUCE:  # its counts are echoed as the client wrote them, which need not be the shortest way
        assert schema.encode(message, version) == reply[at:]
    return message


def hurried(request: bytes) -> bytes:
    """The same, but what would wait for data, or for other members, for longer than a test has does not."""
    if len(request) < 10:
        return request
    key, version, _ = _START.unpack_from(request)
    route = BY_KEY.get(key)
    if key not in (FETCH, JOIN_GROUP) or route is None or not route.first <= version <= route.last:
        return request
    try:
        header, at = frames.read_request_header(request)
        if key == JOIN_GROUP:
            return _hurried_join(header, request[at:])
        read_fetch(memoryview(request), at, version)
    except (schema.MalformedError, schema.EncodeError, struct.error, IndexError, UnicodeDecodeError):
        return request
    out = bytearray(request)
    _MAX_WAIT.pack_into(out, at + (0 if version >= 15 else 4), 2)
    return bytes(out)


def _hurried_join(header: frames.RequestHeader, body: bytes) -> bytes:
    """A group waits for as long as the most patient of its members allows; in version 0, that is its session."""
    message = schema.decode(JoinGroupRequest, header.api_version, body)
    if header.api_version == 0:
        message.session_timeout_ms = min(message.session_timeout_ms, 5)
    else:
        message.rebalance_timeout_ms = 2
    return frames.encode_request(header, message)[4:]
