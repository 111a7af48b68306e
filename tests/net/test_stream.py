"""A stream over a transport that says what the kernel would not."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from kafkad.net.stream import Stream
from kafkad.net.transport import PlainTransport, Transport


class Layered:
    """A layer that still has to open what it holds, or to say something that the peer does not take yet. `said` is what
    it answers to each read; None for "not now"."""

    def __init__(self, *said: bytes | None, flushes: tuple[bool, ...] = ()) -> None:
        self._said = list(said)
        self._flushes = list(flushes)
        self._here, self.there = socket.socketpair()
        self.pending = True

    def recv_into(self, view: memoryview) -> int:
        said = self._said.pop(0)
        if said is None:
            raise BlockingIOError
        view[: len(said)] = said
        return len(said)

    def flush(self) -> bool:
        return self._flushes.pop(0) if self._flushes else True

    def fileno(self) -> int:
        return self._here.fileno()

    def close(self) -> None:
        self._here.close()
        self.there.close()


@pytest.mark.parametrize("flushes", [(), (False, False)], ids=["it opens later", "it has to say something first"])
def test_what_the_kernel_does_not_report_is_read(flushes: tuple[bool, ...]) -> None:
    async def scenario() -> None:
        layered = Layered(None, None, b"some", b"", flushes=flushes)
        stream = Stream(cast(Transport, layered))
        await asyncio.wait_for(stream.receive(), 10)
        assert stream.received == b"some"
        with pytest.raises(EOFError):
            await stream.receive()
        layered.close()

    asyncio.run(scenario())


def test_what_finds_no_room_is_sent_when_there_is_some() -> None:
    async def scenario() -> None:
        here, there = socket.socketpair()
        there.setblocking(False)
        with there, PlainTransport.over(here) as transport:
            sending = asyncio.create_task(Stream(transport).send(b"a" * 3_000_000))
            received = 0
            while received < 3_000_000:
                received += len(await asyncio.get_running_loop().sock_recv(there, 1 << 20))
            await asyncio.wait_for(sending, 10)

    asyncio.run(scenario())
