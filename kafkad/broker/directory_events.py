"""The controller hears of log directories that fail: partitions without another replica have no leader any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from kafkad.clock import Clock
from kafkad.meta.retrying import until_answered
from kafkad.meta.store import MetaStore
from kafkad.meta.znodes import LogDirEvent
from kafkad.timers import Timers


def reporter(
    loop: asyncio.AbstractEventLoop, store: MetaStore, broker: int, clock: Clock, timers: Timers
) -> Callable[[], None]:
    """A function to call, in any thread, when a directory of `broker` has failed."""
    reports: set[asyncio.Task[None]] = set()

    note = partial(store.create, LogDirEvent.PREFIX, LogDirEvent.encode(broker), sequential=True)

    async def report() -> None:
        await until_answered(note, "tell the controller of a log directory", clock, timers)

    def begin() -> None:
        task = loop.create_task(report())
        reports.add(task)
        task.add_done_callback(reports.discard)

    def tell() -> None:
        loop.call_soon_threadsafe(begin)

    return tell
