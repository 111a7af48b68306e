"""Streams that are no requests: the connection is closed, nothing is kept for them, and nobody else notices."""

from __future__ import annotations

import asyncio
import logging
import struct
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkad.api.routes import BY_KEY
from kafkad.wire import apis
from kafkad.wire.messages.metadata import MetadataRequest
from tests.fuzz.running import API_VERSIONS, SECONDS, RunningBroker, framed, request, sentinel

_SOME = settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
BUDGETS = [
    pytest.param(_SOME, id="some"),
    pytest.param(settings(_SOME, max_examples=1000), id="many", marks=pytest.mark.slow),
]
MOST_BYTES = 100 << 20
"""socket.request.max.bytes"""


@pytest.mark.parametrize("budget", BUDGETS)
def test_random_bytes(broker: RunningBroker, budget: settings) -> None:
    @budget
    @given(st.lists(st.binary(max_size=200), max_size=4))
    def converse(pieces: list[bytes]) -> None:
        broker.converse(*pieces)

    converse()


@pytest.mark.parametrize("budget", BUDGETS)
def test_random_frames_of_known_apis(broker: RunningBroker, budget: settings) -> None:
    keys = st.sampled_from(sorted(BY_KEY)) | st.integers(-(2**15), 2**15 - 1)

    @budget
    @given(st.lists(st.tuples(keys, st.integers(-1, 14), st.binary(max_size=60)), min_size=1, max_size=3))
    def converse(frames: list[tuple[int, int, bytes]]) -> None:
        broker.converse(*(framed(struct.pack(">hhi", key, version, 7) + rest) for key, version, rest in frames))

    converse()


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7, MOST_BYTES + 1, 2**31 - 1])
def test_lengths_that_no_frame_has(broker: RunningBroker, size: int) -> None:
    talk = broker.converse(sentinel(), struct.pack(">i", size), bytes(100), sentinel())
    assert len(talk.answers) <= 1


def test_a_frame_cut_off_anywhere(broker: RunningBroker) -> None:
    frame = framed(request(MetadataRequest(topics=None), 12))
    for end in range(len(frame)):
        assert broker.converse(frame[:end]).answers == []


def unserved() -> list[tuple[int, int]]:
    """(key, version) of all that this broker does not answer, and what no Kafka has."""
    wrong = [(key, version) for key in (-1, 2**15 - 1, -(2**15), 500) for version in (0, 1, 2**15 - 1)]
    for key in apis.APIS:
        route = BY_KEY.get(key)
        outside = (-1, 0, 50, -(2**15)) if route is None else (-1, route.first - 1, route.last + 1, 2**15 - 1)
        wrong += [(key, version) for version in outside]
    return wrong


def test_apis_and_versions_nobody_has(broker: RunningBroker) -> None:
    for key, version in unserved():
        talk = broker.converse(framed(struct.pack(">hhih", key, version, 9, -1) + bytes(40)), sentinel())
        assert [answer.key for answer in talk.answers] in ([], [API_VERSIONS, API_VERSIONS])
        assert talk.survived == (key == API_VERSIONS)


def test_connections_that_promise_much_cost_what_they_sent(broker: RunningBroker) -> None:
    """40 peers announce 100 MB each and send 4 KB of it; others send large frames that nobody can read."""

    async def promise() -> int:
        tracemalloc.start()
        try:
            peers = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(40)]
            for _, writer in peers:
                writer.write(struct.pack(">i", MOST_BYTES) + bytes(4096))
            await asyncio.wait_for(_answered(), SECONDS)
            held = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        for _, writer in peers:
            writer.close()
        return held

    async def _answered() -> None:
        for _ in range(50):
            await broker.ask_healthy()

    assert broker.run(promise()) < 60 << 20
    broker.check_health()


def test_what_large_frames_took_is_given_back(broker: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    """Frames of 20 MB that say nothing sensible: their buffers do not pile up."""
    caplog.set_level(logging.ERROR, "kafkad")  # pytest keeps what was logged, and with it the error and its frame
    frame = framed(struct.pack(">hhih", 3, 9, 1, -1) + b"\0" + b"\xff" * (20 << 20))
    tracemalloc.start()  # after the frame is made: the client's own memory is not the broker's
    try:
        for _ in range(4):
            assert not broker.converse(frame).answers
        now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert now < 24 << 20
    assert most < 150 << 20
