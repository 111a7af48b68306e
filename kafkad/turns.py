"""Long work on the event loop, cut into turns so that nobody else has to wait for more than a few milliseconds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final

TURN_S: Final = 0.005
_LEAST_S: Final = 0.0002
"""What a step gets at least, however many wait: less is spent on going round."""

Step = Callable[[float], None]
"""Works until about the given time, and adds itself again when it is not through."""


class Turns:
    """Made when the work begins; `give_way` stands between its pieces, and costs nothing until a turn is over."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = monotonic() + TURN_S

    async def give_way(self) -> None:
        if monotonic() >= self._end:
            await asyncio.sleep(0)
            self._end = monotonic() + TURN_S


class Lane:
    """What need not be done at once, of all connections of one event loop: together it gets 5 ms of each of its turns,
    in equal shares, one after the other."""

    __slots__ = ("_call_soon", "_going", "_steps", "clock", "left")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float] = monotonic
    ) -> None:
        self.clock = clock
        self.left = TURN_S
        """Seconds that may be worked beside the lane until the loop has turned; who does takes them from it."""
        self._call_soon = call_soon
        self._steps: deque[Step] = deque()
        self._going = False

    def add(self, step: Step) -> None:
        """It is called in a later turn of the loop."""
        self._steps.append(step)
        if not self._going:
            self._going = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        steps, clock = self._steps, self.clock
        now = clock()
        end = now + TURN_S
        for waiting in range(len(steps), 0, -1):
            if now >= end:
                break
            steps.popleft()(now + max((end - now) / waiting, _LEAST_S))
            now = clock()
        self.left = max(end - now, 0.0)
        self._going = bool(steps)
        if steps:
            self._call_soon(self._turn)
