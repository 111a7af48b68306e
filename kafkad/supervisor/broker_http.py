"""Asks a broker over its private HTTP listener."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from kafkad.net.http import DAMAGED, EXPOSED

ANSWER_S = 2.0
"""For a broker to say how it is. Who asks the supervisor does not wait long either."""
PAGE_S = 7.0
"""For its page of metrics, which may be long; Prometheus waits 10 s for all of this."""


class HttpAnswer(NamedTuple):
    good: bool
    text: str


async def ask(port: int, path: str, token: str | None, within_s: float = ANSWER_S) -> HttpAnswer | None:
    """The answer to a GET by who shows the token, if any; None when there is none in time."""
    try:
        async with asyncio.timeout(within_s):
            whole = await _exchange(port, path, token)
    except (OSError, TimeoutError):
        return None
    head, separator, body = whole.partition(b"\r\n\r\n")
    return HttpAnswer(b" 200 " in head.partition(b"\r\n")[0], body.decode()) if separator else None


async def _exchange(port: int, path: str, token: str | None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        shown = f"Authorization: Bearer {token}\r\n" if token is not None else ""
        headers = f"Host: localhost\r\n{shown}Connection: close\r\n"
        writer.write(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
        return await reader.read()
    finally:
        writer.close()


def told_of(broker: int, text: str) -> list[str]:
    """The lines of a broker's /health as the supervisor tells them; none of a broker that is well. Those that somebody
    looks for keep their beginning."""
    return [
        f"{line} (broker {broker})" if line.startswith((DAMAGED, EXPOSED)) else f"broker {broker}: {line}"
        for line in text.removesuffix("\n").split("\n")
        if line != "ok"
    ]
