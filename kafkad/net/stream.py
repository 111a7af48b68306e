"""A transport that one coroutine reads and writes, for what is not worth a connection of Kafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafkad.net.reply import Bytes
from kafkad.net.transport import Transport

_AT_ONCE = 16 * 1024


class Stream:
    """`received` is what has arrived, and has not been taken out. Whoever made the transport closes it."""

    def __init__(self, transport: Transport) -> None:
        self.received = bytearray()
        self._transport = transport
        self._loop = asyncio.get_running_loop()

    async def receive(self) -> None:
        """Waits for more. EOFError if nothing follows."""
        view = memoryview(bytearray(_AT_ONCE))
        while True:
            try:
                got = self._transport.recv_into(view)
            except BlockingIOError:
                await self._until_there_is_more()
                continue
            if not got:
                raise EOFError
            self.received += view[:got]
            return

    async def send(self, data: Bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[self._transport.send(left) :]
            except BlockingIOError:
                await self._until_writable()

    async def _until_there_is_more(self) -> None:
        if not self._transport.flush():
            await self._until_writable()
        elif self._transport.pending:
            await asyncio.sleep(0)
        else:
            await self._until(self._loop.add_reader, self._loop.remove_reader)

    async def _until_writable(self) -> None:
        await self._until(self._loop.add_writer, self._loop.remove_writer)

    async def _until(self, add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object]) -> None:
        told, fd = asyncio.Event(), self._transport.fileno()
        add(fd, told.set)
        try:
            await told.wait()
        finally:
            remove(fd)
