"""Several coroutines side by side, and their end. However that comes, none of them runs on when the caller goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Their results, in their order. If some fail, the error of the first of these, when the others have ended as well:
    each is carried out whole, as it is without the one that failed. If the caller is cancelled, so are all of them."""
    ended = await asyncio.gather(*coroutines, return_exceptions=True)
    results: list[T] = []
    for one in ended:
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results


async def cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel these, and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)
