"""A broker's membership in its cluster: its registration in the metadata store, and a new one after a lost session.

A session that expires takes the registration with it, and the controller elects other leaders. The broker keeps its
replicas as they are, gets a new session, registers again under a new broker epoch, and then everybody who follows the
store reads it anew: watches are gone with the old session, and changes made without one were not heard of.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kafkad.clock import Clock
from kafkad.controller.registration import Occupied, refuse_other_cluster, register
from kafkad.meta.store import MetaError, MetaStore, NoNode, OutOfReach, SessionState
from kafkad.meta.znodes import Broker as Registration
from kafkad.timers import Pauses, Timers, sleep

log = logging.getLogger(__name__)

_RETRY_MS = 1_000


class DuplicateBroker(Exception):
    """Another process holds this broker id in the store and keeps it."""


class Follower(Protocol):
    """A part that keeps in memory what the store says."""

    async def session_renewed(self) -> None:
        """Read again and set watches again. May raise ConnectionLoss or SessionExpired; it is called again then."""


class Membership:
    def __init__(
        self,
        store: MetaStore,
        registration: Callable[[], Registration],
        *,
        clock: Clock,
        timers: Timers,
        patience_ms: int,
        before_registering: Callable[[], Awaitable[None]],
        on_epoch: Callable[[int], None],
        followers: Sequence[Follower],
        cluster_id: str,
        halt: Callable[[str], None],
    ) -> None:
        """`patience_ms` is how long to wait for a registration that this broker's last process left behind: longer
        than a session outlives its process, and 0 where this broker cannot have been here before. `before_registering`
        writes what has to be in the store ahead of each registration."""
        self._store = store
        self._registration = registration
        self._clock = clock
        self._timers = timers
        self._patience_ms = patience_ms
        self._before_registering = before_registering
        self._on_epoch = on_epoch
        self._followers = followers
        self._cluster_id = cluster_id
        self._halt = halt
        self._session = 0
        """That of the last registration; 0 before the first."""
        self._expired = False
        self._has_joined = False
        self._rejoining: asyncio.Task[None] | None = None
        self._stopped = False

    async def join(self) -> None:
        """Register. DuplicateBroker when another process holds the id."""
        self._store.listen(self._session_changed)
        try:
            await self._register()
        except OutOfReach:  # the session may have expired while logs were loaded
            self._expired = True
        await self._register_again()
        self._has_joined = True

    async def stop(self) -> None:
        self._stopped = True
        if self._rejoining is not None:
            self._rejoining.cancel()
            await asyncio.wait([self._rejoining])

    async def _register(self) -> None:
        wanted = self._registration()
        deadline_ms = self._clock.monotonic_ms() + self._patience_ms
        while isinstance(found := await self._try(wanted), Occupied):
            if found.session == self._session:
                await self._delete(found)
            else:
                await self._wait_for_end(found, wanted, deadline_ms)
        self._session = self._store.session_id
        self._on_epoch(found)

    async def _try(self, wanted: Registration) -> int | Occupied:
        await self._before_registering()
        return await register(self._store, wanted)

    async def _delete(self, old: Occupied) -> None:
        """ZooKeeper may keep an ephemeral node of an expired session for a while (ZOOKEEPER-2985)."""
        with contextlib.suppress(NoNode):
            await self._store.delete(old.path, old.version)

    async def _wait_for_end(self, old: Occupied, wanted: Registration, deadline_ms: float) -> None:
        """A broker that starts faster than its last session ends finds itself registered; so does a duplicate."""
        remaining_ms = deadline_ms - self._clock.monotonic_ms()
        was_mine = old.registration is not None and old.registration.broker.endpoints == wanted.broker.endpoints
        if not was_mine or remaining_ms <= 0:
            raise DuplicateBroker(
                f"{old.path} belongs to another live process{_address(old)}: is the same broker.id used twice?"
            )
        log.info("waiting for the session of this broker's previous process to expire: %s", old.path)
        timer = self._timers.at(deadline_ms, old.gone.set)
        try:
            await old.gone.wait()
        finally:
            timer.cancel()

    # -- a lost session --------------------------------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._expired = True
            if self._has_joined and not self._stopped and (self._rejoining is None or self._rejoining.done()):
                self._rejoining = asyncio.get_running_loop().create_task(self._rejoin())

    async def _rejoin(self) -> None:
        log.warning("the session with the metadata store has expired; this broker registers again")
        try:
            await self._register_again()
        except DuplicateBroker as error:
            self._halt(str(error))
        else:
            log.info("registered again")

    async def _register_again(self) -> None:
        """In a new session if the old one has expired. Returns when all who follow the store have read it again."""
        pauses = Pauses(_RETRY_MS)
        while self._expired:
            pause_ms: float = _RETRY_MS
            what = "register again" if self._session else "register"
            try:
                await self._store.renew()
                self._expired = False
                await refuse_other_cluster(self._store, self._cluster_id)
                await self._register()
                for follower in self._followers:
                    await follower.session_renewed()
            except MetaError as error:
                log.warning("this broker could not %s; retrying: %s", what, error)
            except DuplicateBroker:
                raise
            except Exception as error:
                pause_ms, is_news = pauses.after(error)
                if is_news:
                    log.exception("internal error: this broker could not %s; retrying", what)
            else:
                continue  # unless the new session has expired meanwhile
            self._expired = True
            await sleep(pause_ms, self._clock, self._timers)


def _address(registered: Occupied) -> str:
    if registered.registration is None:
        return ""
    endpoint = registered.registration.broker.endpoints[0]
    return f", at {endpoint.host}:{endpoint.port}"
