"""Requests that real clients sent to a real Kafka: as they were, spoiled, cut up and mixed."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from kafkad.api.routes import BY_KEY
from tests.fuzz.damage import spoiled
from tests.fuzz.running import RunningBroker, framed, hurried, sentinel
from tests.wire.recorded import exchanges

APIS = sorted(exchanges())
PER_FRAME = 2
TOGETHER = 12


def requests(api: str) -> list[bytes]:
    return [exchange.request for exchange in exchanges()[api]]


def served(api: str) -> list[bytes]:
    """Those whose version this broker has."""
    return [
        exchange.request
        for exchange in exchanges()[api]
        if (route := BY_KEY.get(exchange.key)) is not None and route.first <= exchange.version <= route.last
    ]


@pytest.mark.parametrize("api", APIS)
def test_as_they_were(broker: RunningBroker, api: str) -> None:
    for request in map(hurried, served(api)):
        talk = broker.converse(framed(request), sentinel())
        quiet = request[:2] == b"\0\0" and not talk.survived  # a Produce with acks=0 that failed
        assert talk.survived or quiet, request.hex()


@pytest.mark.parametrize("api", APIS)
def test_spoiled(broker: RunningBroker, api: str) -> None:
    spoil(broker, api, PER_FRAME)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("api", APIS)
def test_spoiled_at_length(broker: RunningBroker, api: str) -> None:
    spoil(broker, api, 30)


def spoil(broker: RunningBroker, api: str, times: int) -> None:
    dice = random.Random(api)
    for request in requests(api):
        for _ in range(times):
            broker.converse(framed(hurried(spoiled(request, dice, spare=4))), sentinel())


@pytest.mark.parametrize(
    "seed",
    [
        *range(10),
        *(pytest.param(seed, marks=pytest.mark.slow if seed < 30 else pytest.mark.long) for seed in range(10, 60)),
    ],
)
def test_a_mixture_cut_up_anywhere(broker: RunningBroker, seed: int) -> None:
    """Pipelined, of all APIs that are served, with something spoiled in most of them."""
    dice = random.Random(seed)
    pool = [request for api in APIS for request in served(api)]
    mixture = [hurried(request) for request in dice.choices(pool, k=TOGETHER)]
    for _ in range(dice.randrange(3)):
        place = dice.randrange(TOGETHER)
        mixture[place] = hurried(spoiled(mixture[place], dice, spare=4))
    stream = b"".join(map(framed, mixture)) + sentinel()
    cuts = sorted(dice.choices(range(len(stream)), k=dice.randrange(40)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    broker.converse(*pieces)


def test_a_byte_at_a_time(broker: RunningBroker) -> None:
    dice = random.Random(0)
    pool = [request for api in APIS for request in served(api) if len(request) < 300]
    for request in islice(dice.sample(pool, len(pool)), 15):
        stream = framed(hurried(request)) + sentinel()
        broker.converse(*(stream[at : at + 1] for at in range(len(stream))))
