"""The attacks: each a function of the broker's port that returns when it is over."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Sequence

from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker import RawClient
from tests.clients.asker import Asker

METADATA = 3


def metadata(*topics: str, version: int = 9) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic) for topic in topics])
    return encode_request(RequestHeader(METADATA, version, 1, "attacker"), request)


def pour(port: int, streams: Sequence[bytes], seconds: float, *, read: bool) -> None:
    """Each stream over a connection of its own, as fast as the broker takes it, for so long at most."""
    end = time.monotonic() + seconds
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for stream in streams:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.setblocking(False)
            events = selectors.EVENT_WRITE | (selectors.EVENT_READ if read else 0)
            selector.register(sock, events, memoryview(stream))
        while time.monotonic() < end:
            for key, ready in selector.select(0.1):
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    _move_on(selector, key, ready)


def _move_on(selector: selectors.BaseSelector, key: selectors.SelectorKey, ready: int) -> None:
    sock = key.fileobj
    assert isinstance(sock, socket.socket)
    if ready & selectors.EVENT_READ and not sock.recv(1 << 20):
        selector.unregister(sock)
    elif ready & selectors.EVENT_WRITE:
        left = key.data[sock.send(key.data[: 1 << 20]) :]
        events = key.events if left else key.events & ~selectors.EVENT_WRITE
        if events:
            selector.modify(sock, events, left)
        else:
            selector.unregister(sock)


def at_once(port: int, request: bytes, connections: int, rounds: int) -> None:
    """One request over each of many new connections, all in the same moment, and again when all are answered."""
    for _ in range(rounds):
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(RawClient(port, timeout=60)) for _ in range(connections)]
            for client in clients:
                client.send(request)
            for client in clients:
                client.receive_frame()


def create(port: int, topic: str, partitions: int) -> None:
    asker = Asker(port)
    new = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    answer = asker.ask("CreateTopics", 4, {"topics": [new], "timeout_ms": 60_000})
    assert not answer.topics[0].error_code, answer
    asker.client.close()
