"""What the supervisor makes of its brokers' answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kafkad.net.http import Condition, Endpoints, HttpServer
from kafkad.supervisor.broker_http import HttpAnswer, ask, told_of


@asynccontextmanager
async def serving(condition: Callable[[bool], Condition]) -> AsyncIterator[int]:
    server = HttpServer(Endpoints(lambda: ["a 1\n"], condition, condition), token=lambda: "shown")
    await server.listen_on(socket.create_server(("127.0.0.1", 0)))
    try:
        yield server.port
    finally:
        await server.close()


def test_asks_for_a_page() -> None:
    async def run() -> list[HttpAnswer | None]:
        async with serving(lambda in_full: Condition(False, "loading logs" if in_full else "loading")) as port:
            answers = [await ask(port, "/metrics", "shown"), await ask(port, "/ready", "shown")]
            answers.append(await ask(port, "/metrics", "guessed"))
            assert await ask(port, "/ready", None) == HttpAnswer(False, "loading\n")
        return [*answers, await ask(port, "/ready", "shown")]

    page, loading, refused, nothing = asyncio.run(run())
    assert (page, loading, nothing) == (HttpAnswer(True, "a 1\n"), HttpAnswer(False, "loading logs\n"), None)
    assert refused is not None and not refused.good


def test_one_that_takes_a_connection_and_says_nothing_has_no_answer() -> None:
    """The kernel takes connections for a process that is stopped."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert asyncio.run(ask(silent.getsockname()[1], "/ready", "shown", 0.0)) is None


def test_damaged_logs_and_open_listeners_stay_recognisable() -> None:
    assert told_of(1, "ok\n") == []
    assert told_of(1, "loading logs\ndamaged: orders-0: 7 bytes at 12\nexposed: listener A is PLAINTEXT\n") == [
        "broker 1: loading logs",
        "damaged: orders-0: 7 bytes at 12 (broker 1)",
        "exposed: listener A is PLAINTEXT (broker 1)",
    ]


def test_only_a_newline_ends_a_line() -> None:
    assert told_of(1, "no room in /a\u2028exposed: b\n") == ["broker 1: no room in /a\u2028exposed: b"]
