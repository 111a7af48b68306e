"""Producer ids handed out by this broker, from blocks that the controller gives to it alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kafkad.meta.znodes import ProducerIdBlock

Allocate = Callable[[], Awaitable[ProducerIdBlock]]


class ProducerIds:
    """The rest of a block is not handed out after the broker has stopped: ids are plentiful."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next = 0
        self._last = -1
        self._lock = asyncio.Lock()

    async def take(self) -> int:
        """Raises what the controller raises when it cannot give a block."""
        async with self._lock:
            if self._next > self._last:
                block = await self._allocate()
                self._next, self._last = block.first, block.last
            taken = self._next
            self._next += 1
            return taken
