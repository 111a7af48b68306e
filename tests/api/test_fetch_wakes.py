"""Large fetch sessions: what wakes one, and what a wake costs. Counted, not timed."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkad.api.fetch import FetchApi, _Attempt
from kafkad.api.fetch_session import NO_SESSION, SESSIONLESS_EPOCH, FetchSessions, Session
from kafkad.config import LogConfig
from kafkad.errors import ErrorCode
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.metrics import RequestProbe, TopicProbe
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.net.connection import Connection
from kafkad.net.reply import PENDING, Reply
from kafkad.replica.durable import Durable
from kafkad.replica.leading import IsrChange
from kafkad.replica.manager import ReplicaManager
from kafkad.replica.partition import Partition, ReplicaParts, Role
from kafkad.replica.waits import Waits
from kafkad.security.authorizer import ALLOW_ALL, ANONYMOUS
from kafkad.timers import Timers
from kafkad.turns import Jobs, Lane, Pieces, at_once
from kafkad.wire.fetch import FetchFrame
from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from kafkad.wire.schema import decode
from tests.fakes import FakeClock, HeldDisk, turns

VERSION = 11
FOLLOWER, CONSUMER = 2, -1


class Peer:
    listener = "PLAINTEXT"
    on_close: Callable[[], None] | None = None
    identity = ALLOW_ALL.identity(ANONYMOUS, "a-test")

    def prepare(self, *answer: object) -> None:
        """Nothing here is asked twice by the same bytes."""


class Client:
    """As much of a connection as a fetch looks at."""

    address = "a-test:1"
    host = "a-test"

    def __init__(self) -> None:
        self.closed = False
        self.peer = Peer()
        self.replies: list[Reply] = []

    def own(self, view: memoryview) -> memoryview:
        return view

    def reply(self, reply: Reply) -> None:
        self.replies.append(reply)

    def end(self) -> None:
        self.closed = True
        if self.peer.on_close is not None:
            self.peer.on_close()


class Made:
    """Partitions of one topic, all of them over one empty log but for the first two."""

    def __init__(self, directory: Path, count: int) -> None:
        self.clock = FakeClock()
        call_soon = asyncio.get_running_loop().call_soon
        self.parts = ReplicaParts(
            broker_id=1,
            clock=self.clock,
            waits=Waits(Timers(), self.clock, call_soon),
            durable=cast(Durable, HeldDisk()),
        )
        self.logs = [self._log(directory, name) for name in ("t-0", "t-1", "t-2")]
        role = Role(leader=1, leader_epoch=0, isr=(1, FOLLOWER), replicas=(1, FOLLOWER))
        self.partitions = []
        for index in range(count):
            log = self.logs[min(index, 2)]
            partition = Partition(TopicPartition("t", index), log, self.parts, TopicProbe(), 0)
            partition.become(role)
            self.partitions.append(partition)
        replicas = SimpleNamespace(
            parts=self.parts,
            waits=self.parts.waits,
            get=lambda topic, index: self.partitions[index],
            find=lambda topic, index: self.partitions[index],
        )
        sessions = FetchSessions(10, 120_000, Random(1), at_once)
        self.api = FetchApi(
            cast(ReplicaManager, replicas),
            sessions,
            self.clock,
            RequestProbe("Fetch"),
            Jobs(Lane(call_soon, clock=lambda: 0.0)),
        )
        self.client = Client()
        self.session = 0
        self.epoch = 0

    def _log(self, directory: Path, name: str) -> Log:
        tp = TopicPartition("t", 0)
        return Log.open(str(directory / name), LogConfig(), Files(), self.clock, topic_partition=tp)

    def append(self, index: int) -> None:
        batch = memoryview(build_batch([Record(0, 1_000, None, b"v")]))
        self.partitions[index].append(batch, 0, len(batch), BATCH_HEADER.unpack_from(batch))

    def begin(
        self,
        replica: int,
        wanted: dict[int, int],
        max_wait_ms: int = 500,
        log_start_offset: int = -1,
        leader_epoch: int = -1,
    ) -> Reply | None:
        partitions = [
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=offset,
                log_start_offset=log_start_offset,
                partition_max_bytes=1000,
            )
            for index, offset in wanted.items()
        ]
        message = FetchRequest(
            replica_id=replica,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self.session,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic="t", partitions=partitions)] if wanted else [],
        )
        frame = memoryview(encode_request(RequestHeader(1, VERSION, 1, "x"), message))[4:]
        reply = self.api.serve(cast(Connection, self.client), frame, VERSION, 1)
        self.epoch += 1
        return None if reply is PENDING else cast(Reply, reply)

    async def fetch(self, replica: int, wanted: dict[int, int], max_wait_ms: int = 0) -> dict[int, Any]:
        reply = self.begin(replica, wanted, max_wait_ms)
        while reply is None:
            await asyncio.sleep(0)
            reply = self.client.replies.pop() if self.client.replies else None
        return self.read(reply)

    def read(self, reply: Reply) -> dict[int, Any]:
        parts = reply if isinstance(reply, list) else [reply]
        data = b"".join(bytes(p) if isinstance(p, bytes) else bytes(p.length) for p in parts)  # type: ignore[union-attr]
        response = decode(FetchResponse, VERSION, data[8:])
        self.session = response.session_id
        return {p.partition_index: p for topic in response.responses for p in topic.partitions}

    async def until_answered(self) -> dict[int, Any]:
        while not self.client.replies:
            await asyncio.sleep(0)
        return self.read(self.client.replies.pop())

    def close(self) -> None:
        for log in self.logs:
            log.close()


async def open_session(directory: Path, replica: int, count: int) -> Made:
    """A session that has been told everything and waits for news."""
    made = Made(directory, count)
    assert len(await made.fetch(replica, dict.fromkeys(range(count), 0))) == count
    assert await made.fetch(replica, {}) == {}
    return made


async def cost_of_a_wake(directory: Path, replica: int, count: int) -> int:
    """The number of function calls from an append to the answer of the fetch that waits for it."""
    made = await open_session(directory, replica, count)
    assert made.begin(replica, {}) is None
    await asyncio.sleep(0)
    calls = 0

    def count_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()
    sys.setprofile(count_call)
    try:
        made.append(1)
        if replica == CONSUMER:
            made.partitions[1].fetched_by(FOLLOWER, 1, 0)
        answered = await made.until_answered()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert list(answered) == [1]
    made.close()
    return calls


@pytest.mark.parametrize("replica", [FOLLOWER, CONSUMER])
def test_a_wake_costs_the_same_however_many_partitions_a_session_has(tmp_path: Path, replica: int) -> None:
    costs = {}
    for count in (10, 500, 10_000):
        directory = tmp_path / str(count)
        directory.mkdir()
        costs[count] = asyncio.run(cost_of_a_wake(directory, replica, count))
    assert costs[500] == costs[10_000]
    assert costs[10_000] <= costs[10] + 150, "it goes through the lane of large work, and that is all"


def test_a_request_that_names_nothing_looks_only_at_what_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    read = Partition.read

    def counted(self: Partition, *how: Any) -> Any:
        looks.append(self.tp.partition)
        return read(self, *how)

    async def scenario() -> None:
        made = await open_session(tmp_path, FOLLOWER, 1_000)
        monkeypatch.setattr(Partition, "read", counted)
        assert await made.fetch(FOLLOWER, {}) == {}
        assert looks == []
        made.append(0)
        made.append(1)
        assert sorted(await made.fetch(FOLLOWER, {})) == [0, 1]
        assert sorted(set(looks)) == [0, 1]
        looks.clear()
        assert list(await made.fetch(FOLLOWER, {0: 1})) == [0, 1], "its high watermark, and the other's records again"
        made.close()

    asyncio.run(scenario())


def test_a_follower_is_told_of_the_high_watermark_with_its_next_answer_and_not_woken_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = await open_session(tmp_path, FOLLOWER, 3)
        made.append(0)
        assert list(await made.fetch(FOLLOWER, {})) == [0]
        assert made.begin(FOLLOWER, {0: 1}) is None
        assert made.partitions[0].high_watermark == 1
        await turns(5)
        assert not made.client.replies
        made.append(1)
        answered = await made.until_answered()
        assert {index: answer.high_watermark for index, answer in answered.items()} == {0: 1, 1: 0}
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [2, 300])
def test_a_follower_that_waits_is_asked_whether_it_still_follows(tmp_path: Path, count: int) -> None:
    """Its fetch is answered early: only the next one can tell."""

    async def scenario() -> None:
        made = Made(tmp_path, count)
        partition = made.partitions[1]
        assert made.begin(FOLLOWER, dict.fromkeys(range(count), 0), 60_000, leader_epoch=0) is None
        made.clock.advance(10_000)
        partition.ask_followers(10_000)
        assert len(await made.until_answered()) == count
        assert not partition.is_followed(-1e9)
        made.clock.advance(1)
        assert made.begin(FOLLOWER, {}, 60_000) is None
        assert partition.is_followed(10_000)
        made.clock.advance(10_000)
        partition.ask_followers(10_000)
        await turns(5)
        assert not made.client.replies, "it is known"
        partition.ask_followers(10_001)
        assert await made.until_answered() == {}
        partition.ask_followers(10_001)
        made.clock.advance(1)
        assert made.begin(FOLLOWER, {}, 60_000) is None
        assert partition.is_followed(20_001)
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(("session", "leader_epoch"), [(SESSIONLESS_EPOCH, 0), (0, -1)])
def test_a_follower_whose_next_fetch_would_not_tell_goes_on_to_wait(
    tmp_path: Path, session: int, leader_epoch: int
) -> None:
    """It is without a session, or names no leader epoch."""

    async def scenario() -> None:
        made = Made(tmp_path, 2)
        made.epoch = session
        assert made.begin(FOLLOWER, {0: 0, 1: 0}, 60_000, leader_epoch=leader_epoch) is None
        made.partitions[1].ask_followers(1e9)
        await turns(5)
        assert not made.client.replies
        made.close()

    asyncio.run(scenario())


def test_a_follower_is_woken_for_records_whose_deletion_somebody_waits_for(tmp_path: Path) -> None:
    """Otherwise it would hear of it half a second later."""

    async def scenario() -> None:
        made = await open_session(tmp_path, FOLLOWER, 3)
        made.parts.metadata.brokers[FOLLOWER] = BrokerInfo(id=FOLLOWER, endpoints=())
        partition = made.partitions[0]
        made.append(0)
        await made.fetch(FOLLOWER, {})
        assert made.begin(FOLLOWER, {0: 1}) is None
        heard: list[object] = []
        assert partition.delete_records(1) == 1
        partition.when_deleted(1, heard.append)
        told = await made.until_answered()
        assert {index: answer.log_start_offset for index, answer in told.items()} == {0: 1}
        assert heard == []
        assert made.begin(FOLLOWER, {1: 0}) is None, "it has been told"
        partition.fetched_by(FOLLOWER, 1, 1)
        assert heard == [None]
        made.close()

    asyncio.run(scenario())


def test_a_follower_that_has_deleted_waits_while_another_one_has_not(tmp_path: Path) -> None:
    """It says so itself where it has no session that remembers what it was told."""

    async def scenario() -> None:
        made = Made(tmp_path, 1)
        partition = made.partitions[0]
        others = FOLLOWER, FOLLOWER + 1
        partition.become(Role(leader=1, leader_epoch=1, isr=(1, *others), replicas=(1, *others)))
        made.append(0)
        for other in others:
            made.parts.metadata.brokers[other] = BrokerInfo(id=other, endpoints=())
            partition.fetched_by(other, 1, 0)
        assert partition.delete_records(1) == 1
        partition.when_deleted(1, lambda *_: None)
        assert partition.deletion_waits
        at_once_answered = []
        for known in (0, 1):
            made.session, made.epoch = NO_SESSION, SESSIONLESS_EPOCH
            at_once_answered.append(made.begin(FOLLOWER, {0: 1}, log_start_offset=known) is not None)
        assert at_once_answered == [True, False]
        made.close()

    asyncio.run(scenario())


def test_a_follower_that_is_not_in_sync_is_looked_at_with_every_fetch_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its first fetch the leader may not know yet that it is alive, or may have nobody to ask."""

    async def scenario() -> None:
        made = Made(tmp_path, 2)
        asked: list[tuple[int, ...]] = []
        answers = [False, True]
        made.parts.on_isr_change = lambda partition, change: asked.append(change.isr) or answers.pop(0)  # type: ignore[func-returns-value]
        partition = made.partitions[0]
        partition.become(Role(leader=1, leader_epoch=1, isr=(1,), replicas=(1, FOLLOWER)))
        await made.fetch(FOLLOWER, {0: 0, 1: 0})
        assert await made.fetch(FOLLOWER, {}) == {}
        assert asked == []
        made.parts.metadata.brokers[FOLLOWER] = BrokerInfo(id=FOLLOWER, endpoints=())
        for times in (1, 2, 2):
            assert await made.fetch(FOLLOWER, {}) == {}
            assert asked == [(1, FOLLOWER)] * times
        partition.isr_altered((1, FOLLOWER), 1, 1)
        looks: list[int] = []
        monkeypatch.setattr(Partition, "fetched_by", lambda self, *how: looks.append(self.tp.partition))
        for _ in range(3):
            assert await made.fetch(FOLLOWER, {}) == {}
        assert looks == [0], "once more, and then no more"
        made.close()

    asyncio.run(scenario())


def test_an_unnamed_partition_was_caught_up_until_the_last_request(tmp_path: Path) -> None:
    """A follower at the end of an idle partition says nothing of it for hours; it has not lagged all that time."""

    async def scenario() -> None:
        made = await open_session(tmp_path, FOLLOWER, 2)
        made.clock.advance(3_600_000)
        assert await made.fetch(FOLLOWER, {}) == {}
        made.clock.advance(10)
        made.append(0)
        leading = made.partitions[0].leading
        assert leading is not None
        assert leading.followers[FOLLOWER].caught_up_ms == 3_600_000
        assert leading.left_by(1, made.clock.monotonic_ms()) is None
        made.clock.advance(30_001)
        assert leading.left_by(1, made.clock.monotonic_ms()) == (1,)
        made.close()

    asyncio.run(scenario())


def test_a_session_that_is_given_up_watches_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = await open_session(tmp_path, FOLLOWER, 300)
        assert all(partition.end_watchers for partition in made.partitions)
        made.epoch = -1
        await made.fetch(FOLLOWER, {0: 0})
        assert not any(partition.end_watchers or partition.watchers for partition in made.partitions)
        made.close()

    asyncio.run(scenario())


def test_a_follower_whose_own_fetch_moved_the_high_watermark_is_told_when_it_moves_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = Made(tmp_path, 2)
        partition = made.partitions[0]
        partition.become(Role(leader=1, leader_epoch=1, isr=(1, FOLLOWER, 3), replicas=(1, FOLLOWER, 3)))
        made.append(0)
        made.append(0)
        partition.fetched_by(3, 1, 0)
        assert (await made.fetch(FOLLOWER, {0: 2, 1: 0}))[0].high_watermark == 1
        partition.fetched_by(3, 2, 0)
        assert {index: told.high_watermark for index, told in (await made.fetch(FOLLOWER, {})).items()} == {0: 2}
        assert await made.fetch(FOLLOWER, {}) == {}
        made.close()

    asyncio.run(scenario())


def test_a_follower_that_had_caught_up_by_the_time_it_left_the_isr_comes_back_with_its_next_fetch(
    tmp_path: Path,
) -> None:
    """There is nothing to read and nothing new to say: only that it fetches tells that it is there."""

    async def scenario() -> None:
        made = Made(tmp_path, 2)
        asked: list[IsrChange] = []
        made.parts.on_isr_change = lambda partition, change: not asked.append(change)  # type: ignore[func-returns-value]
        made.parts.metadata.brokers[FOLLOWER] = BrokerInfo(id=FOLLOWER, endpoints=())
        await made.fetch(FOLLOWER, {0: 0, 1: 0})
        await made.fetch(FOLLOWER, {})
        made.partitions[0].isr_altered((1,), 0, 0)
        await made.fetch(FOLLOWER, {})
        assert [change.isr for change in asked] == [(1, FOLLOWER)]
        made.close()

    asyncio.run(scenario())


def test_the_session_of_a_broker_that_has_died_does_not_bring_it_into_the_isr(tmp_path: Path) -> None:
    """It had everything once, and may come back with less: only a fetch in this leader epoch tells."""

    async def scenario() -> None:
        made = Made(tmp_path, 2)
        asked: list[IsrChange] = []
        made.parts.on_isr_change = lambda partition, change: not asked.append(change)  # type: ignore[func-returns-value]
        made.parts.metadata.brokers[FOLLOWER] = BrokerInfo(id=FOLLOWER, endpoints=())
        partition = made.partitions[0]
        partition.become(Role(leader=1, leader_epoch=1, isr=(1, FOLLOWER, 3), replicas=(1, FOLLOWER, 3)))
        await made.fetch(FOLLOWER, {0: 0, 1: 0})
        partition.become(Role(leader=1, leader_epoch=2, isr=(1, 3), replicas=(1, FOLLOWER, 3)))
        partition.fetched_by(3, 0, 0)
        assert asked == []
        partition.fetched_by(FOLLOWER, 0, 0)
        assert [change.isr for change in asked] == [(1, 3, FOLLOWER)]
        made.close()

    asyncio.run(scenario())


def test_an_offset_out_of_range_is_told_once_there_is_room_for_a_look(tmp_path: Path) -> None:
    """The partition before it had filled the answer."""

    async def scenario() -> None:
        made = Made(tmp_path, 2)
        made.append(0)
        made.partitions[0].fetched_by(FOLLOWER, 1, 0)
        made.api.max_bytes = 1
        assert [told.error_code for told in (await made.fetch(CONSUMER, {0: 0, 1: 5})).values()] == [0, 0]
        told = await made.fetch(CONSUMER, {0: 1})
        assert told[1].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [2, 300])
def test_a_fetch_that_waits_is_woken_though_its_session_was_given_up(tmp_path: Path, count: int) -> None:
    async def scenario() -> None:
        made = await open_session(tmp_path, CONSUMER, count)
        assert made.begin(CONSUMER, {}) is None
        await turns(5)
        waiting, made.client = made.client, Client()
        made.epoch = 0
        assert await made.fetch(CONSUMER, {0: 0}) != {}, "with the id of the other, which ends with that"
        made.append(1)
        made.partitions[1].fetched_by(FOLLOWER, 1, 0)
        await turns(10)
        assert [list(made.read(reply)) for reply in waiting.replies] == [[1]]
        assert not any(partition.watchers for partition in made.partitions[1:])
        assert made.parts.waits.fetches == 0
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [2, 300])
def test_a_fetch_whose_session_was_given_up_watches_nothing_after_its_connection_closed(
    tmp_path: Path, count: int
) -> None:
    async def scenario() -> None:
        made = await open_session(tmp_path, CONSUMER, count)
        assert made.begin(CONSUMER, {}) is None
        await turns(5)
        waiting, made.client = made.client, Client()
        made.epoch = -1
        await made.fetch(CONSUMER, {0: 0})
        assert waiting.peer.on_close is not None
        waiting.peer.on_close()
        assert not any(partition.watchers for partition in made.partitions)
        assert made.parts.waits.fetches == 0
        made.close()

    asyncio.run(scenario())


def test_a_fetch_that_is_read_in_pieces_waits_as_long_as_it_may(tmp_path: Path) -> None:
    """Also where it has few partitions, and no session."""

    async def scenario() -> None:
        made = Made(tmp_path, 20)
        made.epoch = -1
        assert made.begin(CONSUMER, dict.fromkeys(range(20), 0)) is None
        await turns(5)
        assert made.client.replies == []
        made.append(1)
        made.partitions[1].fetched_by(FOLLOWER, 1, 0)
        await turns(10)
        assert [sorted(made.read(reply)) for reply in made.client.replies] == [list(range(20))]
        assert not any(partition.watchers for partition in made.partitions)
        assert made.parts.waits.fetches == 0
        made.close()

    asyncio.run(scenario())


def test_a_session_that_is_given_up_while_its_partitions_are_looked_at_leaves_none_watched(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = await open_session(tmp_path, CONSUMER, 300)
        read_all = made.api.read_all

        def given_up(frame: FetchFrame, session: Session, *how: Any) -> Pieces[Any]:
            looking = read_all(frame, session, *how)
            next(looking)
            session.busy -= 1  # as if the fetch had not begun yet
            at_once(session.close())
            session.busy += 1
            return (yield from looking)

        made.api.read_all = given_up  # type: ignore[method-assign]
        await made.fetch(CONSUMER, dict.fromkeys(range(300), 0))
        assert not any(partition.watchers for partition in made.partitions)
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [2, 300])
def test_a_session_is_not_busy_any_more_after_a_fetch_of_it_that_failed(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        made = await open_session(tmp_path, CONSUMER, count)
        kept: list[Session] = []
        assert made.begin(CONSUMER, {}) is None
        await turns(5)
        monkeypatch.setattr(_Attempt, "_pack", lambda attempt, found: kept.append(attempt._session) or 1 / 0)
        made.append(1)
        made.partitions[1].fetched_by(FOLLOWER, 1, 0)
        await turns(10)
        assert made.client.closed
        [session] = kept
        assert session.busy == 0
        made.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("count", [2, 300])
def test_a_fetch_is_woken_though_another_of_its_session_ends(tmp_path: Path, count: int) -> None:
    async def scenario() -> None:
        made = await open_session(tmp_path, CONSUMER, count)
        assert made.begin(CONSUMER, {}) is None
        first, made.client = made.client, Client()
        await turns(5)
        assert made.begin(CONSUMER, {}) is None
        await turns(5)
        first.end()
        made.append(1)
        made.partitions[1].fetched_by(FOLLOWER, 1, 0)
        await turns(10)
        assert [list(made.read(reply)) for reply in made.client.replies] == [[1]]
        made.close()

    asyncio.run(scenario())


def test_a_fetch_that_fails_when_it_is_woken_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        made = Made(tmp_path, 2)
        made.epoch = -1
        assert made.begin(CONSUMER, {0: 0}) is None
        failing, made.client, made.epoch = made.client, Client(), -1
        assert made.begin(CONSUMER, {1: 0}) is None
        read = Partition.read

        def broken(self: Partition, *how: Any) -> Any:
            if self.tp.partition == 0:
                raise AssertionError("an error of ours")
            return read(self, *how)

        monkeypatch.setattr(Partition, "read", broken)
        for index in (0, 1):
            made.append(index)
            made.partitions[index].fetched_by(FOLLOWER, 1, 0)
        await turns(5)
        assert failing.closed
        assert [list(made.read(reply)) for reply in made.client.replies] == [[1]]
        assert made.parts.waits.fetches == 0
        assert not any(partition.watchers for partition in made.partitions)
        made.close()

    asyncio.run(scenario())
