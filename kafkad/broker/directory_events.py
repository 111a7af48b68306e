"""The controller hears of log directories that fail: partitions without another replica have no leader any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kafkad.meta.store import ConnectionLoss, MetaStore, SessionExpired
from kafkad.meta.znodes import LogDirEvent

log = logging.getLogger(__name__)


def reporter(loop: asyncio.AbstractEventLoop, store: MetaStore, broker: int) -> Callable[[], None]:
    """A function to call, in any thread, when a directory of `broker` has failed."""
    reports: set[asyncio.Task[None]] = set()

    async def report() -> None:
        try:
            await store.create(LogDirEvent.PREFIX, LogDirEvent.encode(broker), sequential=True)
        except (ConnectionLoss, SessionExpired) as error:
            log.warning("the controller does not hear of the log directory: %s", error)

    def begin() -> None:
        task = loop.create_task(report())
        reports.add(task)
        task.add_done_callback(reports.discard)

    def tell() -> None:
        loop.call_soon_threadsafe(begin)

    return tell
