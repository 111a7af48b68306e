"""Long work on the event loop, cut into turns so that nobody else has to wait for more than a few milliseconds."""

from __future__ import annotations

import asyncio
from time import monotonic

_TURN_S = 0.005


class Turns:
    """Made when the work begins; `give_way` stands between its pieces, and costs nothing until a turn is over."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = monotonic() + _TURN_S

    async def give_way(self) -> None:
        if monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = monotonic() + _TURN_S
