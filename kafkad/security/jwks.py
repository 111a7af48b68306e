"""The keys of an issuer of tokens, read from a file or over HTTPS: at the start, each hour, and when one is missing.

They are read in a thread: no login waits for the issuer but those that come before it was asked for the first time.
While it cannot be reached, the keys read last stay in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from http.client import HTTPException
from typing import Final, NamedTuple

from kafkad.clock import Clock
from kafkad.security.issuer import answer_of, checked
from kafkad.security.oauth_token import Key, keys_of
from kafkad.timers import Timers, sleep

log = logging.getLogger(__name__)

_SOONEST_MS: Final = 10_000
"""The least time between two requests: tokens with made-up key ids must not make the broker ask all the time."""
_SHORTEST_MS: Final = 100
"""Shorter times of the settings count as this."""

Read = Callable[[], bytes]


class JwksSettings(NamedTuple):
    """`trusted` is a file with the certificates in PEM that vouch for the issuer; None: those of the system do."""

    url: str
    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    retry_max_ms: int = 10_000
    trusted: str | None = None


class Jwks:
    """Keeps the keys of one issuer up to date, in `keys`."""

    def __init__(
        self,
        settings: JwksSettings,
        read: Read,
        threads: Executor,
        clock: Clock,
        timers: Timers,
        on_asked: Callable[[], None] = lambda: None,
    ) -> None:
        """`read` is called in one of `threads`; `on_asked` once, when `asked` is set."""
        self.keys: list[Key] = []
        self.failure: str | None = None
        """Why the last attempt to read them failed."""
        self._settings = settings
        self._read = read
        self._threads = threads
        self._clock = clock
        self._timers = timers
        self._on_asked = on_asked
        self.asked = asyncio.Event()
        """Set once they have been read for the first time, or could not be, or are not to be any more."""
        self._wanted = asyncio.Event()
        self._problems: list[str] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_reading())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def retire(self) -> None:
        """They are read no more. A login that has begun goes by those that there are."""
        if self._task is not None:
            self._task.cancel()
        self._say_asked()

    def missed(self) -> None:
        """A key that is not among `keys` was asked for. It may be a new one."""
        self._wanted.set()

    async def _keep_reading(self) -> None:
        settings = self._settings
        refresh_ms, retry_ms, retry_max_ms = (
            max(ms, _SHORTEST_MS) for ms in (settings.refresh_ms, settings.retry_ms, settings.retry_max_ms)
        )
        pause_ms = retry_ms
        while True:
            read = await self._refresh()
            self._say_asked()
            if read:
                pause_ms = retry_ms
                await self._rest(refresh_ms)
            else:
                await sleep(pause_ms, self._clock, self._timers)
                pause_ms = min(pause_ms * 2, retry_max_ms)

    def _say_asked(self) -> None:
        if not self.asked.is_set():
            self.asked.set()
            self._on_asked()

    async def _rest(self, ms: float) -> None:
        """Until it is time, or a key is missed, but always for a while."""
        least_ms = min(ms, _SOONEST_MS)
        await sleep(least_ms, self._clock, self._timers)
        timer = self._timers.at(self._clock.monotonic_ms() + ms - least_ms, self._wanted.set)
        await self._wanted.wait()
        timer.cancel()

    async def _refresh(self) -> bool:
        self._wanted.clear()
        try:
            read = asyncio.get_running_loop().run_in_executor(self._threads, lambda: keys_of(self._read()))
            keys, problems = await read
        except (OSError, HTTPException, ValueError) as error:
            self._failed(str(error))
            return False
        if problems != self._problems:
            self._problems = problems
            for problem in problems:
                log.warning("%s: %s", self._settings.url, problem)
        if [key.kid for key in keys] != [key.kid for key in self.keys] or self.failure is not None:
            log.info("%d keys for OAUTHBEARER from %s", len(keys), self._settings.url)
        self.keys, self.failure = keys, None
        return True

    def _failed(self, why: str) -> None:
        if self.failure != why:
            still = f"the {len(self.keys)} keys of before are used" if self.keys else "nobody logs in by OAUTHBEARER"
            log.error("cannot read the keys of %s: %s; %s until they are there", self._settings.url, why, still)
        self.failure = why


def reader(settings: JwksSettings) -> Read:
    """For a URL that is a file's or https. ValueError for any other."""
    checked(settings.url)
    return lambda: answer_of(settings.url, trusted=settings.trusted)
