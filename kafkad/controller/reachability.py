"""Watches that the brokers answer the controller: a network may be cut that the metadata store is not on.

A registered broker that leaves a request unanswered for too long, and a greeting beside it, counts as dead until it
answers: others lead what it led, and it is in no ISR. A broker that is only busy, such as one that creates thousands of
logs, still answers the greeting. That is as safe as with a session that ends while its broker lives. The broker may
think that it leads, but its high watermark stands, for its followers have left it, and its AlterPartition is refused.

A controller that reaches less than half of the registered brokers, itself included, is cut off itself. It raises
`CutOff` and has to leave the office to a broker that reaches more.

Before that, who is cut off may be the leader that wants others out of an ISR, or this controller itself. So nobody is
taken out of one for a leader that it does not hear, or while it does not hear half of all: whoever could lead in its
place would be taken out. Nor is anybody given up then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kafkad.controller.active import ActiveController
from kafkad.controller.brokers import Brokers
from kafkad.controller.settings import Patience
from kafkad.errors import ErrorCode, KafkaError
from kafkad.model import BrokerInfo

log = logging.getLogger(__name__)

_DOUBTED = 2
"""Checks without an answer after which a broker is not heard."""


def is_minority(reached: int, registered: int) -> bool:
    """Both counts include the controller's own broker."""
    return 2 * reached < registered


class CutOff(KafkaError):
    """This controller reaches too few brokers."""

    def __init__(self, silent: list[int], registered: int) -> None:
        self.silent = frozenset(silent)
        super().__init__(
            ErrorCode.NOT_CONTROLLER, f"{len(silent)} of {registered} registered brokers do not answer: {silent}"
        )


class Reachability:
    """The part of a controller's term that notices brokers which do not answer. `check` is called by a timer."""

    def __init__(
        self, active: ActiveController, brokers: Brokers, patience: Patience, on_return: Callable[[int], None]
    ) -> None:
        """`on_return` hears of a broker that answers again."""
        self.interval_ms = patience.look_ms
        self._active = active
        self._state = active.state
        self._brokers = brokers
        self._patience_ms = patience.silent_ms
        self._on_return = on_return
        self._checked_ms = self._awake_since_ms = active.parts.now_ms()
        self._greetings: dict[int, asyncio.Task[None]] = {}
        self._heard_ms: dict[int, tuple[int, float]] = {}
        """When brokers last answered a greeting, and in which epoch."""

    def hears(self, leader: int) -> bool:
        """Whether this controller hears half of all brokers, its own included, and this one among them."""
        heard = self._heard()
        return leader in heard and self._is_enough(heard)

    def _heard(self) -> set[int]:
        """The brokers that have answered in this term, and lately; and its own."""
        now_ms, own = self._active.parts.now_ms(), self._active.parts.settings.broker
        return {own, *(broker for broker in self._state.brokers.keys() - {own} if self._answers(broker, now_ms))}

    def _is_enough(self, heard: set[int]) -> bool:
        return not is_minority(len(heard), len(self._state.brokers) + len(self._state.unreachable))

    def _answers(self, broker: int, now_ms: float) -> bool:
        has_answered = self._active.has_answered(broker) or self._greeted_ms(broker) > 0
        return has_answered and not self._is_silent(broker, now_ms, _DOUBTED * self.interval_ms)

    def _greeted_ms(self, broker: int) -> float:
        epoch, ms = self._heard_ms.get(broker, (0, 0.0))
        return ms if epoch == self._state.brokers[broker].epoch else 0.0

    async def close(self) -> None:
        greetings = list(self._greetings.values())
        for greeting in greetings:
            greeting.cancel()
        await asyncio.gather(*greetings, return_exceptions=True)

    async def check(self) -> None:
        """Raises CutOff."""
        now_ms = self._active.parts.now_ms()
        if now_ms - self._checked_ms > 2 * self.interval_ms:
            self._awake_since_ms = now_ms  # this process did not run: answers may have come that were not read
        self._checked_ms = now_ms
        for broker, info in list(self._state.unreachable.items()):
            if self._active.unanswered_ms(broker) >= self._patience_ms:
                await self._active.probe(info, self._on_return)  # over a new connection
        others = self._state.brokers.keys() - {self._active.parts.settings.broker}
        self._greet(broker for broker in others if self._active.unanswered_ms(broker) >= self.interval_ms)
        silent = sorted(broker for broker in others if self._is_silent(broker, now_ms, self._patience_ms))
        await self._active.ask_idle(others, self.interval_ms)
        if silent:
            registered = len(self._state.brokers) + len(self._state.unreachable)
            if is_minority(len(self._state.brokers) - len(silent), registered):
                raise CutOff(sorted([*silent, *self._state.unreachable]), registered)
            if self._is_enough(self._heard()):  # or others turn out to be silent as well, and this one to be cut off
                await self._give_up(silent)

    def _greet(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            if broker not in self._greetings:
                greeting = self._until_greeted(self._state.brokers[broker])
                self._greetings[broker] = asyncio.get_running_loop().create_task(greeting)

    async def _until_greeted(self, info: BrokerInfo) -> None:
        try:
            await self._active.greet(info, self._patience_ms)
            self._heard_ms[info.id] = info.epoch, self._active.parts.now_ms()
        except (OSError, KafkaError):
            pass  # it is asked again at the next check
        finally:
            del self._greetings[info.id]

    def _is_silent(self, broker: int, now_ms: float, ms: float) -> bool:
        heard_ms = max(self._awake_since_ms, self._greeted_ms(broker))
        return min(self._active.unanswered_ms(broker), now_ms - heard_ms) >= ms

    async def _give_up(self, silent: list[int]) -> None:
        for broker in silent:
            log.error(
                "broker %d is registered but has not answered for %d ms: other replicas lead until it does",
                broker,
                self._patience_ms,
            )
        for broker in silent:
            info = self._state.brokers[broker]
            await self._active.remove_broker(broker)
            await self._active.probe(info, self._on_return)
            self._state.unreachable[broker] = info
        await self._brokers.removed(silent)

    async def returned(self, broker: int) -> bool:
        """False if it was registered anew meanwhile, or is gone."""
        info = self._state.unreachable.pop(broker, None)
        if info is None:
            return False
        log.info("broker %d answers again", broker)
        await self._active.remove_broker(broker)
        await self._brokers.came([info])
        return True
