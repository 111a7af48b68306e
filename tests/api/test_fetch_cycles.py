"""A fetch that is over has left nothing in cycles, however it ended: there are thousands in a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.api.fetch_session import FIRST_EPOCH, SESSIONLESS_EPOCH
from tests.api.follower_side import Side, append
from tests.api.frames import Frames
from tests.api.test_fetch import fetch, fill
from tests.api.test_fetch_wakes import CONSUMER, FOLLOWER, Client, Made
from tests.cycles import none_left
from tests.fakes import turns
from tests.one_broker import OneBroker

WAIT_MS = 500


def records_come(made: Made) -> None:
    made.append(1)
    made.partitions[1].fetched_by(FOLLOWER, 1, 0)


def time_is_up(made: Made) -> None:
    made.clock.advance(WAIT_MS)
    made.parts.waits.timers.expire(made.clock.monotonic_ms())


def client_goes(made: Made) -> None:
    made.client.end()


@pytest.mark.parametrize("end", [records_come, time_is_up, client_goes])
@pytest.mark.parametrize("replica", [CONSUMER, FOLLOWER])
@pytest.mark.parametrize("count", [2, 300], ids=["small", "large"])
@pytest.mark.parametrize("epoch", [FIRST_EPOCH, SESSIONLESS_EPOCH])
def test_one_that_has_waited(tmp_path: Path, end: Callable[[Made], None], replica: int, count: int, epoch: int) -> None:
    async def scenario() -> None:
        made = Made(tmp_path, count)
        wanted = dict.fromkeys(range(count), 0)
        made.epoch = epoch
        if epoch == FIRST_EPOCH:
            await made.fetch(replica, wanted)
        with none_left():
            assert made.begin(replica, {} if made.session else wanted, WAIT_MS) is None
            await turns(5)
            end(made)
            await turns(10)
            assert made.client.replies or made.client.closed
            made.client = Client()
            assert made.parts.waits.fetches == 0
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [2, 300], ids=["small", "large"])
@pytest.mark.parametrize("replica", [CONSUMER, FOLLOWER])
def test_one_without_a_session_that_is_answered_at_once(tmp_path: Path, replica: int, count: int) -> None:
    async def scenario() -> None:
        made = Made(tmp_path, count)
        with none_left():
            for _ in range(2):
                made.epoch = SESSIONLESS_EPOCH
                assert len(await made.fetch(replica, dict.fromkeys(range(count), 0))) == count
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("epoch", [FIRST_EPOCH, SESSIONLESS_EPOCH])
def test_one_that_was_repeated(broker: OneBroker, epoch: int) -> None:
    """What was prepared for the next one, too, goes with the connection."""
    broker.create("t")
    frames = Frames(broker)
    fill(frames)
    with none_left():
        for _ in range(3):
            fetch(frames, 11, {0: 0}, session_epoch=epoch)
        if epoch == SESSIONLESS_EPOCH:
            assert frames.connection.peer.prepared
        frames.connection.peer.closed()
        frames.connection = frames.connect()
        broker.settle()
    frames.close()


@pytest.fixture
def side(side: Side) -> Side:
    """A follower whose fetches go the quick way."""
    side.fetch(0)
    append(side, 0, 10)
    side.answers()
    return side


def test_one_of_a_follower_that_keeps_up(side: Side) -> None:
    with none_left():
        side.fetch(0)
        append(side, 0, 10)
        assert side.answers()
        side.fetch(0)
        side.expire()
        assert side.answers()


def test_one_of_a_follower_that_goes_while_it_waits(side: Side) -> None:
    side.fetch(0)
    assert side.waits
    with none_left():
        side.frames.connection.peer.closed()
        side.frames.connection = side.frames.connect()
        side.broker.settle()
