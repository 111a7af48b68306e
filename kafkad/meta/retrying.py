"""Operations that have to be carried out some time, however long the metadata store cannot be reached."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kafkad.clock import Clock
from kafkad.meta.store import MetaStore, OutOfReach, SessionExpired
from kafkad.timers import Timers, sleep

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_MS = 1_000


async def until_answered(operation: Callable[[], Awaitable[T]], purpose: str, clock: Clock, timers: Timers) -> T:
    """The result of `operation`, which is tried again each second while there is no connection or no session.

    It may have been carried out more than once. `purpose` completes "cannot …" in the log.
    """
    told = False
    while True:
        try:
            return await operation()
        except OutOfReach as error:
            if not told:
                log.warning(
                    "cannot %s while the metadata store is out of reach; retrying each second: %s", purpose, error
                )
                told = True
            await sleep(RETRY_MS, clock, timers)


async def in_any_session(
    store: MetaStore, operation: Callable[[], Awaitable[T]], purpose: str, clock: Clock, timers: Timers
) -> T:
    """The result of `operation`, which begins over in a new session as often as one expires. Only for what comes before
    anything that needs the session: watches and ephemeral nodes of the last one are gone."""
    while True:
        try:
            return await operation()
        except SessionExpired:
            log.warning("the session with the metadata store expired; trying to %s again in a new one", purpose)
            await sleep(RETRY_MS, clock, timers)
            await until_answered(store.renew, "begin a session", clock, timers)
