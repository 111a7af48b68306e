"""What a supervisor waits for at its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafkad.clock import SystemClock
from kafkad.config import load
from kafkad.meta.embedded import EmbeddedStore
from kafkad.supervisor.supervisor import Supervisor
from tests.fakes import turns


class Broker:
    bad_configuration = failed_at_stop = False

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.has_stopped = asyncio.Event()

    async def keep_running(self) -> None:
        if self.broker_id == 0:
            raise RuntimeError("a bug")
        await self.has_stopped.wait()

    def stop(self) -> None:
        pass


def supervised(monkeypatch: pytest.MonkeyPatch) -> tuple[Supervisor, list[Any], asyncio.Task[int]]:
    """A supervisor of three brokers, which are none."""
    brokers: list[Any] = []

    def process(store: object, index: int, first_id: int) -> Any:
        brokers.append(Broker(first_id + index))
        return brokers[-1]

    config = load(None, ["kafkad.brokers=3"], {})
    supervisor = Supervisor(config, lambda: config, [])
    monkeypatch.setattr(supervisor, "_process", process)
    supervising = asyncio.create_task(supervisor._supervise(EmbeddedStore.in_memory(SystemClock()), 0))
    return supervisor, brokers, supervising


def test_an_internal_error_about_one_broker_takes_the_metadata_store_from_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is closed when this returns."""

    async def scenario() -> None:
        supervisor, brokers, supervising = supervised(monkeypatch)
        supervisor._stopping.set()
        await asyncio.sleep(0)
        for stopping in (None, *brokers[1:]):
            if stopping is not None:
                stopping.has_stopped.set()
            await turns(10)
            assert supervising.done() == (stopping is not None and stopping is brokers[-1])
        with pytest.raises(RuntimeError, match="a bug"):
            await supervising

    asyncio.run(scenario())


def test_a_file_that_is_still_being_judged_is_given_to_nobody_who_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        supervisor, brokers, supervising = supervised(monkeypatch)
        waits = asyncio.Event()

        async def judge() -> None:
            await waits.wait()

        monkeypatch.setattr(supervisor, "_judge", judge)
        await turns(10)
        supervisor._reload()
        judging = supervisor._judging
        assert judging is not None
        await turns(10)
        supervisor._stopping.set()
        await turns(10)
        assert judging.cancelled()
        supervisor._reload()
        assert supervisor._judging is judging
        for broker in brokers:
            broker.has_stopped.set()
        with pytest.raises(RuntimeError, match="a bug"):
            await supervising

    asyncio.run(scenario())
