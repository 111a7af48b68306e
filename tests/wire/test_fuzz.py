"""Broken bytes give MalformedError and nothing else, whatever they claim."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import pytest

from kafkad.wire import apis, frames, schema
from tests.wire.recorded import exchanges
from tests.wire.values import versions_of

MUTATIONS_PER_FRAME = 12
EDGES = (b"\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff\xff", b"\0")


def mutated(raw: bytes, dice: random.Random) -> bytes:
    """Cut off, with a bit flipped, or with a length that claims too much written over it."""
    out = bytearray(raw)
    at = dice.randrange(len(out))
    match dice.randrange(3):
        case 0:
            del out[at:]
        case 1:
            out[at] ^= 1 << dice.randrange(8)
        case _:
            edge = dice.choice(EDGES)
            out[at : at + len(edge)] = edge
    return bytes(out)


def try_to_decode(cls: type, version: int, raw: bytes) -> None:
    with contextlib.suppress(schema.MalformedError):
        schema.decode(cls, version, raw)


@pytest.mark.parametrize("api", sorted(exchanges()))
def test_mutated_frames(api: str) -> None:
    dice = random.Random(api)
    for exchange in exchanges()[api]:
        _, at = frames.read_request_header(exchange.request)
        bodies = [(apis.request_class(exchange.key), exchange.request[at:])]
        if exchange.response:
            _, at = frames.read_response_header(exchange.key, exchange.version, exchange.response)
            bodies.append((apis.response_class(exchange.key), exchange.response[at:]))
        for cls, raw in bodies:
            for _ in range(MUTATIONS_PER_FRAME if raw else 0):
                try_to_decode(cls, exchange.version, mutated(raw, dice))


def test_mutated_headers() -> None:
    dice = random.Random(0)
    for frame in [exchange.request for some in exchanges().values() for exchange in some]:
        with contextlib.suppress(schema.MalformedError):
            frames.read_request_header(mutated(frame[:40], dice))


@pytest.mark.parametrize("key", apis.APIS, ids=lambda key: apis.APIS[key].name)
def test_random_bytes(key: int) -> None:
    dice = random.Random(key)
    for cls in (apis.request_class(key), apis.response_class(key)):
        for version in versions_of(cls):
            for size in (0, 1, 7, 60):
                try_to_decode(cls, version, dice.randbytes(size))


@pytest.mark.parametrize("key", apis.APIS, ids=lambda key: apis.APIS[key].name)
def test_a_claimed_length_gets_no_memory(key: int) -> None:
    claims = [b"\x7f\xff\xff\xff" * 20, b"\xff\xff\xff\xff\x07" * 16, b"\x00\x00\x00\x00\x7f\xff\xff\xff" * 10]
    for cls in (apis.request_class(key), apis.response_class(key)):
        versions = versions_of(cls)
        for version in {versions[0], versions[-1]}:
            try_to_decode(cls, version, b"")  # compiles
            tracemalloc.start()
            try:
                for claim in claims:
                    try_to_decode(cls, version, claim)
                assert tracemalloc.get_traced_memory()[1] < 100_000
            finally:
                tracemalloc.stop()
