"""Leaders are asked for what a log lost beside each other, and only so many at once; a damaged leader gives way."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kafkad.log.indexed import Hole
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.replica.mending import LEADERS_AT_ONCE, LOOK_MS, Mender
from kafkad.timers import Timers
from tests.fakes import FakeClock


def followed(leader: int) -> Any:
    hole = Hole(start=0, end=100, first=0, next=10)
    log = SimpleNamespace(is_damaged=True, damage=[(SimpleNamespace(path=str), hole)], topic_id=bytes(16))
    tp = TopicPartition("t", leader)
    role = SimpleNamespace(leader=leader)
    return SimpleNamespace(tp=tp, role=role, log=log, following=object(), is_leader=False, leader_epoch=1)


class Replicas(list[Any]):
    def __init__(self, leaders: range) -> None:
        super().__init__(followed(leader) for leader in leaders)
        self.on_replicas_changed: Any = None
        self.metadata = SimpleNamespace(brokers={id_: BrokerInfo(id=id_, endpoints=()) for id_ in leaders})


class Silent:
    """A leader that is asked and says nothing; `asked` has all that were."""

    def __init__(self, leader: int, asked: list[int]) -> None:
        self._leader, self._asked = leader, asked

    async def call(self, request: object, *, timeout_ms: int) -> object:
        self._asked.append(self._leader)
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        pass


def test_a_silent_leader_holds_up_no_other_and_not_all_are_asked_at_once() -> None:
    async def run() -> list[int]:
        asked: list[int] = []
        clock = FakeClock()
        timers = Timers()
        replicas = Replicas(range(LEADERS_AT_ONCE + 2))
        mender = Mender(replicas, lambda broker: Silent(broker.id, asked), clock, timers)  # type: ignore[arg-type]
        mender.start()
        await asyncio.sleep(0)
        clock.advance(LOOK_MS)
        timers.expire(clock.monotonic_ms())
        for _ in range(20):
            await asyncio.sleep(0)
        await mender.stop()
        return asked

    assert asyncio.run(run()) == list(range(LEADERS_AT_ONCE))


def test_a_damaged_log_is_to_be_led_elsewhere_whenever_it_is_led_here_again() -> None:
    led = followed(leader=1)
    led.following, led.is_leader, led.role.isr = None, True, (1, 2)
    asked: list[int] = []
    replicas = Replicas(range(0))
    replicas.append(led)
    replicas.on_replicas_changed = lambda: asked.append(led.leader_epoch)

    async def run() -> None:
        clock, timers = FakeClock(), Timers()
        mender = Mender(replicas, lambda broker: Silent(broker.id, []), clock, timers)  # type: ignore[arg-type]
        mender.start()
        for led.leader_epoch in (1, 1, 3, 3):
            await asyncio.sleep(0)
            clock.advance(LOOK_MS)
            timers.expire(clock.monotonic_ms())
            for _ in range(10):
                await asyncio.sleep(0)
        await mender.stop()

    asyncio.run(run())
    assert asked == [1, 3]
