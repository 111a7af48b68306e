"""A running broker under bytes that no client would send: it closes that connection and stays as it was."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.measured import memory_mb
from tests.broker import API_VERSIONS_V0, KafkadProcess, RawClient
from tests.clients.asker import Asker

GROWTH_MB = 24


@pytest.fixture(scope="module")
def kafkad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    with KafkadProcess(tmp_path_factory.mktemp("bad-input")) as kafkad:
        yield kafkad


@pytest.fixture(autouse=True)
def unharmed(kafkad: KafkadProcess) -> Iterator[None]:
    """After each test the broker serves, has not grown and has logged no traceback."""
    serve(kafkad)
    before = memory_mb(kafkad.pid)
    yield
    serve(kafkad)
    assert memory_mb(kafkad.pid) - before < GROWTH_MB
    assert "Traceback" not in kafkad.log


def serve(kafkad: KafkadProcess) -> None:
    with RawClient(kafkad.port) as client:
        assert client.exchange(API_VERSIONS_V0)[:4] == struct.pack(">i", 7)


def test_random_bytes(kafkad: KafkadProcess) -> None:
    chance = random.Random(1)
    for _ in range(200):
        with RawClient(kafkad.port) as client, contextlib.suppress(ConnectionError):
            client.send(chance.randbytes(chance.randint(1, 3000)))


def test_random_frames(kafkad: KafkadProcess) -> None:
    """Well-framed, with a served API's key and version, and noise as the body."""
    asker = Asker(kafkad.port)
    asker.client.close()
    chance = random.Random(2)
    for key, (first, last) in asker.served.items():
        for version in range(first, last + 1):
            with RawClient(kafkad.port, timeout=2) as client, contextlib.suppress(ConnectionError, TimeoutError):
                body = chance.randbytes(chance.randint(0, 200))
                client.exchange(struct.pack(">hhih", key, version, 7, -1) + body)


def test_truncated_frames(kafkad: KafkadProcess) -> None:
    whole = struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0
    for length in range(len(whole)):
        with RawClient(kafkad.port) as client:
            client.send(whole[:length])


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0x7F000000, -1, -0x80000000])
def test_absurd_length(kafkad: KafkadProcess, length: int) -> None:
    with RawClient(kafkad.port) as client:
        client.send(struct.pack(">i", length) + b"x" * 100)
        assert client.closed_by_peer()


def test_large_claims_get_no_memory(kafkad: KafkadProcess) -> None:
    """A hundred peers announce frames of the largest size allowed and send a few bytes of them."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(RawClient(kafkad.port)) for _ in range(100)]
        before = memory_mb(kafkad.pid)
        for client in clients:
            client.send(struct.pack(">ihhih", 100_000_000, 0, 9, 1, -1) + b"x" * 1000)
        serve(kafkad)
        assert memory_mb(kafkad.pid) - before < GROWTH_MB


def test_a_byte_at_a_time(kafkad: KafkadProcess) -> None:
    with RawClient(kafkad.port) as client:
        for byte in struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0:
            client.send(bytes([byte]))
        assert client.receive_frame()[:4] == struct.pack(">i", 7)


@pytest.mark.parametrize("key", [-1, 99, 1000, 0x7FFF, 4, 5, 6])
def test_unknown_api(kafkad: KafkadProcess, key: int) -> None:
    with RawClient(kafkad.port) as client:
        client.send_frame(struct.pack(">hhih", key, 0, 7, -1))
        assert client.closed_by_peer()


def test_unknown_version(kafkad: KafkadProcess) -> None:
    with RawClient(kafkad.port) as client:
        client.send_frame(struct.pack(">hhih", 3, 99, 7, -1))
        assert client.closed_by_peer()


def test_unknown_version_of_api_versions(kafkad: KafkadProcess) -> None:
    """Answered in v0 with UNSUPPORTED_VERSION and the one range a client needs to ask again."""
    with RawClient(kafkad.port) as client:
        answer = client.exchange(struct.pack(">hhih", 18, 99, 7, -1))
        correlation, error, count, key, first, last = struct.unpack_from(">ihihhh", answer)
        assert (correlation, error, count, key, first) == (7, 35, 1, 18, 0)
        assert last >= 4
        assert client.exchange(API_VERSIONS_V0)


def test_peer_that_does_not_read(kafkad: KafkadProcess) -> None:
    """Asks for far more than it takes: the broker holds a bounded part of it, and serves others meanwhile."""
    with RawClient(kafkad.port) as client:
        client.socket.settimeout(1)
        ask = struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0
        with contextlib.suppress(TimeoutError):
            for _ in range(2000):
                client.send(ask * 100)
        serve(kafkad)


def test_reset_connections(kafkad: KafkadProcess, tmp_path: Path) -> None:
    for _ in range(100):
        with RawClient(kafkad.port) as client:
            client.send(struct.pack(">i", len(API_VERSIONS_V0)) + API_VERSIONS_V0)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
