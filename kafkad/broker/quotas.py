"""The quotas of clients in force at this broker: set up with the first that any of them has.

A broker without quotas has none of this in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kafkad.api.dispatch import Dispatcher
from kafkad.api.throttling import Throttling
from kafkad.clock import Clock
from kafkad.cluster.entities import EntityConfigs
from kafkad.config import Config
from kafkad.metrics import GAUGE, Family, Labels

if TYPE_CHECKING:
    from kafkad.security.quotas.clients import ClientQuotas
    from kafkad.security.quotas.rate import Windows


class QuotasInForce:
    """`follow` is to be called once all parts are there, `settings_changed` when those of the broker are others."""

    def __init__(
        self, entities: EntityConfigs, dispatcher: Dispatcher, config: Callable[[], Config], clock: Clock
    ) -> None:
        self._entities = entities
        self._dispatcher = dispatcher
        self._config = config
        self._clock = clock
        self.clients: ClientQuotas | None = None

    def follow(self) -> None:
        self._entities.listen(lambda entity, overrides: self._changed())
        self._changed()

    def settings_changed(self) -> None:
        if self.clients is not None:
            self.clients.resize(*self._windows())

    def _changed(self) -> None:
        if self.clients is None:
            if not self._entities.all:
                return
            from kafkad.security.quotas.clients import ClientQuotas

            self.clients = ClientQuotas(self._entities.all, *self._windows())
        self.clients.changed()
        self._dispatcher.throttle_by(Throttling(self.clients, self._clock) if self.clients.any else None)

    def _windows(self) -> tuple[Windows, Windows]:
        from kafkad.security.quotas.rate import Windows

        config = self._config()
        return (
            Windows(config.int("quota.window.num"), 1000 * config.int("quota.window.size.seconds")),
            Windows(
                config.int("controller.quota.window.num"), 1000 * config.int("controller.quota.window.size.seconds")
            ),
        )

    def collect(self) -> Iterator[Family]:
        """What clients with a quota took of late, under the names that rules of the JMX exporter give it."""
        if self.clients is None:
            return
        now_ms = self._clock.monotonic_ms()
        measured = [meter.measured(now_ms) for meter in self.clients.meters() if not meter.is_idle(now_ms)]
        for name, text in (
            ("byte_rate", "Bytes per second of a client with a quota."),
            ("request_time", "Percent of the serving thread that a client with a quota takes."),
            ("tokens", "Partitions that a client with a quota may create and delete at once."),
            ("throttle_time", "Milliseconds for which a client was made to wait, on average of those times."),
        ):
            samples: list[tuple[Labels | str, float]] = [
                ((("resource", m.resource), ("user", m.sharers.user), ("clientId", m.sharers.client)), m.values[name])
                for m in measured
                if name in m.values
            ]
            if samples:
                yield Family(f"kafka_server_quota_{name}", GAUGE, text, samples)
