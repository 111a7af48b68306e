"""Whether a shard may be answered from: by its followers, or else by a metadata store that a test holds back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from math import inf
from typing import Any, TypeVar, cast

import pytest

from kafkad.meta.store import ConnectionLoss, MetaStore, NoNode, Stat
from kafkad.meta.znodes import Partition as PartitionNode
from kafkad.model import PartitionState
from kafkad.names import TopicPartition
from kafkad.shard import Shard
from kafkad.shard.leadership import SURE_MS, Leadership
from kafkad.timers import Timers
from tests.fakes import FakeClock, turns

T = TypeVar("T")
TP = TopicPartition("__consumer_offsets", 7)
ME, OTHER = 1, 2


class FakePartition:
    tp = TP
    broker_id = ME

    def __init__(self) -> None:
        self.leader_epoch = 4
        self.is_leader = True
        self.followed_ms = -inf
        self.asked_since: list[float] = []

    def ask_followers(self, since_ms: float) -> None:
        self.asked_since.append(since_ms)

    def is_followed(self, since_ms: float) -> bool:
        return self.followed_ms >= since_ms


class FakeShard:
    def __init__(self) -> None:
        self.partition = FakePartition()
        self.serves = True


class HeldStore:
    """Reads wait until a test answers them."""

    def __init__(self) -> None:
        self.reads: list[asyncio.Future[tuple[bytes, Stat]]] = []

    async def get(self, path: str) -> tuple[bytes, Stat]:
        assert path == PartitionNode.path(*TP)
        read: asyncio.Future[tuple[bytes, Stat]] = asyncio.get_running_loop().create_future()
        self.reads.append(read)
        return await read

    def says(self, leader: int, leader_epoch: int) -> None:
        state = PartitionState(leader=leader, leader_epoch=leader_epoch, isr=(ME, OTHER), controller_epoch=1)
        self.reads.pop().set_result((PartitionNode.encode(state), Stat(1, 1, 0, 0, 3, 0, 0, 0)))


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.clock.advance(100_000)
        self.timers = Timers()
        self.store = HeldStore()
        self._shard = FakeShard()
        self.partition = self._shard.partition
        self.leadership = Leadership(cast(MetaStore, self.store), self.clock, self.timers)
        self._runner = asyncio.Runner()

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(scenario)

    @property
    def shard(self) -> Shard[Any]:
        return cast("Shard[Any]", self._shard)

    @property
    def is_sure(self) -> bool:
        return self.leadership.is_sure(self.shard)

    def end(self) -> None:
        self._shard.serves = self.partition.is_leader = False

    def later(self, ms: int) -> Callable[[], None]:
        return lambda: self.clock.advance(ms)

    def follows(self) -> None:
        self.partition.followed_ms = self.clock.monotonic_ms()

    def confirmed(self, *then: Callable[[], object], together: int = 1) -> list[bool]:
        """What those hear who ask now, after each of these has happened in its turn."""

        async def ask() -> list[bool]:
            asking = [asyncio.ensure_future(self.leadership.confirm(self.shard)) for _ in range(together)]
            for happens in then:
                await turns(8)
                happens()
                self.timers.expire(self.clock.monotonic_ms())
            await turns(8)
            assert all(each.done() for each in asking)
            return [each.result() for each in asking]

        return self.run(ask())

    def close(self) -> None:
        self.run(self.leadership.stop())
        self._runner.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def test_as_long_as_all_in_sync_follow_nobody_is_asked(world: World) -> None:
    world.partition.followed_ms = world.clock.monotonic_ms()
    assert world.is_sure
    world.clock.advance(SURE_MS)
    assert world.is_sure
    world.clock.advance(1)
    assert not world.is_sure
    assert not world.store.reads


def test_when_one_has_died_the_store_is_asked_now_and_then(world: World) -> None:
    assert not world.is_sure
    assert world.confirmed(lambda: world.store.says(ME, 4)) == [True]
    world.clock.advance(499)
    assert world.is_sure
    world.clock.advance(1)
    assert not world.is_sure
    assert world.confirmed(lambda: world.store.says(ME, 4)) == [True]


def test_a_leader_that_keeps_its_role_may_not_have_heard_of_its_next_epoch(world: World) -> None:
    assert world.confirmed(lambda: world.store.says(ME, 5)) == [True]


def test_what_the_store_said_of_one_leader_epoch_says_nothing_of_another(world: World) -> None:
    assert world.confirmed(lambda: world.store.says(ME, 4)) == [True]
    world.partition.leader_epoch = 5
    assert not world.is_sure


def test_the_store_is_asked_once_for_all_who_wait(world: World) -> None:
    assert world.confirmed(lambda: world.store.says(ME, 4), together=3) == [True] * 3
    assert not world.store.reads


@pytest.mark.parametrize(("leader", "leader_epoch"), [(OTHER, 5), (ME, 6), (-1, 5)])
def test_who_is_deposed_by_the_store_leads_no_more(
    world: World, leader: int, leader_epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert world.confirmed(lambda: world.store.says(leader, leader_epoch)) == [False]
        assert not world.is_sure
    [told] = caplog.messages
    assert told.endswith(f"broker {leader} leads it in leader epoch {leader_epoch}, by the metadata store")


@pytest.mark.parametrize("error", [ConnectionLoss("/"), NoNode("/")])
def test_a_store_that_cannot_say_so_confirms_nothing(
    world: World, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.confirmed(lambda: world.store.reads.pop().set_exception(error), world.later(250)) == [False]
    assert f"cannot be asked: {error}" in caplog.text
    assert not world.store.reads


def test_where_the_store_cannot_be_asked_followers_have_some_time_to_tell(world: World) -> None:
    def refused() -> None:
        world.store.reads.pop().set_exception(ConnectionLoss("/"))

    assert world.confirmed(refused, world.later(220), world.follows, world.later(20)) == [True]


def test_followers_are_asked_and_looked_at_again_until_they_tell(world: World) -> None:
    assert world.confirmed(world.later(20), world.later(20), world.follows, world.later(20)) == [True]
    assert world.partition.asked_since == [100_000 - SURE_MS, 100_020 - SURE_MS, 100_040 - SURE_MS]
    [given_up] = world.store.reads
    assert given_up.cancelled()
    assert world.is_sure


def test_a_store_that_does_not_answer_is_waited_for_some_seconds(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.confirmed(world.later(4_980), world.later(20)) == [False]
    assert caplog.text.endswith("the metadata store does not answer in time\n")
    [given_up] = world.store.reads
    assert given_up.cancelled()
    world.store.reads.clear()
    assert world.confirmed(lambda: world.store.says(ME, 4)) == [True], "it is asked again"


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_a_late_answer_is_good_for_who_had_read_before_the_question(world: World, leader: int) -> None:
    """Others wait for the next one."""

    async def ask() -> None:
        first = asyncio.ensure_future(world.leadership.confirm(world.shard))
        await turns(8)
        world.clock.advance(1)
        second = asyncio.ensure_future(world.leadership.confirm(world.shard))
        await turns(8)
        assert len(world.store.reads) == 1
        world.clock.advance(4_000)
        world.store.says(leader, 4)
        await turns(8)
        assert first.done()
        assert first.result() == (leader == ME)
        assert not world.is_sure
        assert not second.done()
        world.clock.advance(500)
        world.store.says(ME, 4)
        await turns(8)
        assert second.done()
        assert second.result()

    world.run(ask())


def test_a_store_that_answers_late_does_not_wait_for_those_who_come_meanwhile(world: World) -> None:
    """Each has its own time."""

    async def ask() -> list[bool]:
        asking = []
        for _ in range(2):
            asking.append(asyncio.ensure_future(world.leadership.confirm(world.shard)))
            await turns(8)
            world.clock.advance(3_000)
            world.timers.expire(world.clock.monotonic_ms())
            await turns(8)
        assert [each.done() for each in asking] == [True, False]
        world.store.says(ME, 4)
        await turns(8)
        world.store.says(ME, 4)
        await turns(8)
        return [each.result() for each in asking]

    assert world.run(ask()) == [False, True]


def test_an_answer_from_before_this_process_stood_still_is_too_old(world: World) -> None:
    def answered_and_stopped() -> None:
        world.store.says(ME, 4)
        world.clock.advance(60_000)

    assert world.confirmed(answered_and_stopped) == [False]


def test_who_is_told_of_another_leader_need_not_wait_for_the_store(world: World) -> None:
    assert world.confirmed(world.end, world.later(20)) == [False]


def test_who_hears_meanwhile_that_another_leads_goes_by_that(world: World) -> None:
    def told() -> None:
        world.store.says(ME, 4)
        world.end()

    assert world.confirmed(told) == [False]
    assert not world.is_sure
    assert world.confirmed() == [False]
    assert not world.store.reads


def test_who_is_sure_is_called_back_at_once(world: World) -> None:
    told: list[bool] = []
    world.partition.followed_ms = world.clock.monotonic_ms()
    world.leadership.when_sure(world.shard, told.append)
    assert told == [True]


@pytest.mark.parametrize("leader", [ME, OTHER])
def test_who_is_not_sure_is_called_back_when_the_store_has_said(world: World, leader: int) -> None:
    told: list[bool] = []

    async def ask() -> None:
        world.leadership.when_sure(world.shard, told.append)
        await turns(8)
        assert not told
        world.store.says(leader, 4)
        await turns(8)

    world.run(ask())
    assert told == [leader == ME]


def test_who_waits_as_the_broker_stops_is_sent_elsewhere(world: World) -> None:
    told: list[bool] = []

    async def ask() -> None:
        world.leadership.when_sure(world.shard, told.append)
        await turns(8)
        await world.leadership.stop()
        await turns(8)

    world.run(ask())
    assert told == [False]


def test_who_waits_is_answered_although_the_question_meets_an_error_of_ours(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[bool] = []

    async def fail(path: str) -> tuple[bytes, Stat]:
        await asyncio.sleep(0)
        raise ZeroDivisionError("ours")

    async def ask() -> None:
        for _ in range(2):
            world.leadership.when_sure(world.shard, told.append)
            await turns(8)

    monkeypatch.setattr(world.store, "get", fail)
    world.run(ask())
    assert told == [False, False]
    assert [bool(record.exc_info) for record in caplog.records] == [True]


def test_who_asks_when_memory_was_too_short_for_the_one_before_is_answered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    begin, short = asyncio.ensure_future, [True]

    def begun(what: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        if short:
            short.pop()
            what.close()
            raise MemoryError
        return begin(what)

    async def ask() -> None:
        with pytest.raises(MemoryError):
            world.leadership.when_sure(world.shard, told.append)
        world.leadership.when_sure(world.shard, told.append)
        world.partition.followed_ms = world.clock.monotonic_ms()
        await turns(8)
        world.clock.advance(100)
        world.timers.expire(world.clock.monotonic_ms())
        await turns(8)

    monkeypatch.setattr(asyncio, "ensure_future", begun)
    world.run(ask())
    assert told == [True]


def test_who_asks_in_the_turn_of_the_stop_is_answered(world: World) -> None:
    async def ask() -> bool:
        asking = asyncio.ensure_future(world.leadership.confirm(world.shard))
        await asyncio.sleep(0)
        await world.leadership.stop()
        return await asyncio.wait_for(asking, 10)

    assert not world.run(ask())
