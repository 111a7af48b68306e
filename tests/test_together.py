"""What goes on side by side, and how it ends."""

from __future__ import annotations

import asyncio

import pytest

from kafkad.together import together


async def turns(count: int) -> int:
    for _ in range(count):
        await asyncio.sleep(0)
    return count


def test_the_results_are_in_the_order_of_the_coroutines() -> None:
    assert asyncio.run(together(map(turns, (3, 1, 2)))) == [3, 1, 2]
    assert asyncio.run(together([])) == []


def test_an_error_is_raised_when_the_others_have_ended() -> None:
    ended: list[int] = []

    async def end(number: int) -> None:
        await turns(number)
        ended.append(number)
        if number != 3:
            raise ValueError(number)

    with pytest.raises(ValueError, match="2"):
        asyncio.run(together(map(end, (2, 1, 3))))
    assert ended == [1, 2, 3]


def test_who_is_cancelled_has_all_of_them_end() -> None:
    ended: list[int] = []

    async def end(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await turns(number)
            ended.append(number)

    async def scenario() -> None:
        waiting = asyncio.create_task(together(map(end, (2, 1, 3))))
        await turns(2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert ended == [1, 2, 3]

    asyncio.run(scenario())
