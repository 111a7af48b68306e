"""Following notes of changes in the metadata store."""

from __future__ import annotations

import asyncio

import pytest

from kafkad.meta.notes import follow
from kafkad.timers import Timers
from tests.fakes import FakeClock


def test_an_error_of_ours_is_told_once_and_its_pauses_grow_until_a_change_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, timers, failing = FakeClock(), Timers(), [True]
    tried: list[float] = []
    begun_ms = clock.monotonic_ms()

    async def catch_up() -> None:
        tried.append(clock.monotonic_ms() - begun_ms)
        if failing:
            raise ZeroDivisionError("ours")

    async def seconds(count: int) -> None:
        for _ in range(count):
            clock.advance(1_000)
            timers.expire(clock.monotonic_ms())
            for _ in range(5):
                await asyncio.sleep(0)

    async def scenario() -> None:
        news = asyncio.Event()
        following = asyncio.create_task(follow(news, catch_up, "read changes of settings", clock, timers))
        news.set()
        await seconds(6)
        failing.clear()
        await seconds(2)
        failing.append(True)
        news.set()
        await seconds(2)
        following.cancel()

    asyncio.run(scenario())
    assert tried == [1_000, 2_000, 4_000, 8_000, 9_000, 10_000]
    assert caplog.messages == ["internal error: cannot read changes of settings; trying again"] * 2
