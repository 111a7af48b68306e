"""Controlled shutdown: a broker that is told to stop first hands its leaderships over to brokers that stay.

It goes on serving meanwhile. A producer is refused as soon as this broker follows, and goes to the new leader, which it
can find out here: that is why nobody has to wait for a timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.controller.controller import Controller
from kafkad.controller.link import ControllerLink
from kafkad.errors import KafkaError
from kafkad.meta.store import MetaStore
from kafkad.names import some
from kafkad.replica.manager import ReplicaManager
from kafkad.timers import Timers, sleep

log = logging.getLogger(__name__)

_LOOK_MS = 5
_LONGEST_FOLLOW_UP_MS = 2_000
"""The controller has written the elections; the brokers still have to hear of them."""


class ControlledShutdown:
    """`run` once. Gives up after the tries that the settings allow: the broker stops in any case."""

    def __init__(
        self,
        link: ControllerLink,
        own_controller: Controller,
        replicas: ReplicaManager,
        store: MetaStore,
        config: Config,
        *,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._link = link
        self._own_controller = own_controller
        self._replicas = replicas
        self._store = store
        self._me = replicas.broker_id
        self._tries = config.int("controlled.shutdown.max.retries")
        self._timeout_ms = config.int("controller.socket.timeout.ms")
        self._backoff_ms = config.long("controlled.shutdown.retry.backoff.ms")
        self._clock = clock
        self._timers = timers

    async def run(self) -> None:
        if (problem := self._store.problem) is not None and self._own_controller.active and not self._is_last:
            log.warning("nothing can be handed over before the metadata store answers: %s", problem)
        for attempt in range(1, self._tries + 1):
            if self._is_last:
                return
            asked = self._own_controller.controller_id
            problem = await self._ask()
            if problem is None:
                await self._until(self._followed_up(), _LONGEST_FOLLOW_UP_MS)
                return
            log.warning("controlled shutdown, attempt %d of %d: %s", attempt, self._tries, problem)
            if attempt < self._tries:
                await self._until(partial(self._is_worth_another_try, asked), self._backoff_ms)
        log.warning("stopping without handing everything over; the cluster elects leaders when this broker is gone")

    async def _ask(self) -> str | None:
        """Why not everything is handed over."""
        asking = asyncio.ensure_future(self._link.controlled_shutdown())
        late = self._timers.at(self._clock.monotonic_ms() + self._timeout_ms, lambda: _cancel(asking))
        try:
            await asyncio.wait([asking])
            left = asking.result()
        except KafkaError as error:
            return self._with_store(str(error))
        except asyncio.CancelledError:
            if not asking.cancelled():
                raise
            return self._with_store("the controller does not answer in time")
        finally:
            late.cancel()
            asking.cancel()
        return f"no other broker is in sync for {some(sorted(left))}" if left else None

    def _with_store(self, problem: str) -> str:
        """With why this broker cannot reach the store, which another controller may be waiting for, too."""
        own = self._store.problem
        if own is None:
            return problem
        return own if self._own_controller.active else f"{problem}; this broker has {own}"

    def _is_worth_another_try(self, asked: int | None) -> bool:
        """Without a wait: another broker has become the controller, as when all are told to stop, or none is left."""
        return self._is_last or self._own_controller.controller_id not in (None, asked)

    @property
    def _is_last(self) -> bool:
        """True if no other broker lives, to the knowledge of this one."""
        return self._replicas.metadata.brokers.keys() <= {self._me}

    def _followed_up(self) -> Callable[[], bool]:
        """True once this broker leads nothing that others hold, and can tell clients who does."""
        led = [partition for partition in self._replicas if partition.is_leader and len(partition.role.replicas) > 1]

        def followed_up() -> bool:
            while led and not led[-1].is_leader and not self._replicas.metadata.is_led_by(led[-1].tp, self._me):
                led.pop()
            return not led and not self._own_controller.is_telling

        return followed_up

    async def _until(self, condition: Callable[[], bool], limit_ms: float) -> None:
        deadline_ms = self._clock.monotonic_ms() + limit_ms
        while not condition() and self._clock.monotonic_ms() < deadline_ms:
            await sleep(_LOOK_MS, self._clock, self._timers)


def _cancel(task: asyncio.Future[Any]) -> None:
    task.cancel()
