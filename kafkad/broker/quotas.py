"""Puts the quotas of clients in force at this broker, once any client has one.

A broker without quotas has none of this in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from kafkad.api.dispatch import Dispatcher
from kafkad.api.throttling import Throttling
from kafkad.broker.partition_metrics import READ_AT_ONCE
from kafkad.clock import Clock
from kafkad.cluster.entities import EntityConfigs, Overrides
from kafkad.config import INT_MAX, Config
from kafkad.metrics import GAUGE, PAUSE, Family, Labels
from kafkad.model import Entity
from kafkad.net.server import Server
from kafkad.timers import Timers

if TYPE_CHECKING:
    from kafkad.broker.address_quotas import AddressRates
    from kafkad.security.quotas.clients import ClientQuotas
    from kafkad.security.quotas.connections import Rates
    from kafkad.security.quotas.rate import Windows


class QuotasInForce:
    """`follow` is to be called once all parts are there, `settings_changed` when those of the broker are others."""

    def __init__(
        self,
        entities: EntityConfigs,
        dispatcher: Dispatcher,
        server: Server,
        config: Callable[[], Config],
        *,
        clock: Clock,
        timers: Timers,
        blocking_calls: Executor,
    ) -> None:
        """The addresses of names are asked for in `blocking_calls`."""
        self._entities = entities
        self._dispatcher = dispatcher
        self._server = server
        self._config = config
        self._clock = clock
        self._timers = timers
        self._blocking_calls = blocking_calls
        self.clients: ClientQuotas | None = None
        self._limited: dict[Entity, Overrides] = {}
        """Users and clients that have a quota: few beside those that have credentials."""
        self._rates: Rates | None = None
        self._addresses: AddressRates | None = None

    def follow(self) -> None:
        self._entities.listen(self._changed)
        for entity, overrides in self._entities.all.items():
            if entity.ip is None:
                self._keep_quotas(entity, overrides)
            else:
                self._keep_rate(entity, overrides)
        self._hold_clients()
        self._pace()

    def settings_changed(self) -> None:
        if self.clients is not None:
            self.clients.resize(*self._windows())
        self._pace()

    def _changed(self, entity: Entity, overrides: Overrides) -> None:
        if entity.ip is not None:
            self._keep_rate(entity, overrides)
            self._pace()
        elif self._keep_quotas(entity, overrides):
            self._hold_clients()

    def _keep_quotas(self, entity: Entity, overrides: Overrides) -> bool:
        """True if the user or client has a quota, or had one until now."""
        from kafkad.security.quotas.keys import OF_USERS_AND_CLIENTS

        had = self._limited.pop(entity, None)
        if any(quota in overrides for quota in OF_USERS_AND_CLIENTS):
            self._limited[entity] = overrides
        return had is not None or entity in self._limited

    def _keep_rate(self, entity: Entity, overrides: Overrides) -> None:
        if self._addresses is None:
            from kafkad.broker.address_quotas import AddressRates

            self._addresses = AddressRates(self._blocking_calls, self._clock, self._timers, self._pace)
        self._addresses.put(entity, overrides)

    def _hold_clients(self) -> None:
        if self.clients is None:
            if not self._limited:
                return
            from kafkad.security.quotas.clients import ClientQuotas

            self.clients = ClientQuotas(self._limited, *self._windows())
        self.clients.changed()
        if self._limited:
            self._dispatcher.throttle_by(Throttling(self.clients, self._clock))
        elif self._dispatcher.throttling is not None:
            self._dispatcher.throttle_by(None)

    def _pace(self) -> None:
        """What came before still counts where no rate has changed."""
        broker, listeners = self._configured_rates()
        if self._addresses is None and broker is None and not listeners:
            self._rates = self._server.pace = None
            return
        from kafkad.security.quotas.connections import ConnectionRates, Rates

        config = self._config()
        rates = Rates(
            broker=broker,
            listeners=listeners,
            addresses={} if self._addresses is None else self._addresses.by_address(),
            other_addresses=None if self._addresses is None else self._addresses.others,
            exempt=config.protected_listener,
        )
        if rates != self._rates:
            self._rates = rates
            self._server.pace = ConnectionRates(rates, self._windows()[0]) if rates.any else None

    def _configured_rates(self) -> tuple[float | None, dict[str, float]]:
        """Of the broker and of its listeners, where they are limited: each by its own, or by the broker's."""
        config, name = self._config(), "max.connection.creation.rate"
        broker = config.int(name)
        listeners = {e.listener: config.int_for_listener(e.listener, name) for e in config.listeners}
        return (
            None if broker == INT_MAX else float(broker),
            {listener: float(rate) for listener, rate in listeners.items() if rate != INT_MAX},
        )

    def _windows(self) -> tuple[Windows, Windows]:
        from kafkad.security.quotas.rate import Windows

        config = self._config()
        return (
            Windows(config.int("quota.window.num"), 1000 * config.int("quota.window.size.seconds")),
            Windows(
                config.int("controller.quota.window.num"), 1000 * config.int("controller.quota.window.size.seconds")
            ),
        )

    def collect(self, *, with_users: bool) -> Iterator[Family | None]:
        """What clients with a quota took of late, under the names that rules of the JMX exporter give it. Clients may
        have made up thousands of ids, each with what it took of the same quota. Without users there is nothing of
        quotas that are theirs."""
        if self.clients is None:
            return
        samples: dict[str, list[tuple[Labels | str, float]]] = {}
        for number, meter in enumerate(list(self.clients.meters()), 1):
            now_ms = self._clock.monotonic_ms()
            if not meter.is_idle(now_ms):
                resource, sharers, values = meter.measured(now_ms)
                labels = (("resource", resource), ("user", sharers.user), ("clientId", sharers.client))
                for name, value in values.items() if with_users or not sharers.user else ():
                    samples.setdefault(name, []).append((labels, value))
            if not number % READ_AT_ONCE:
                yield PAUSE
        for name, text in (
            ("byte_rate", "Bytes per second of a client with a quota."),
            ("request_time", "Percent of the serving thread that a client with a quota takes."),
            ("tokens", "Partitions that a client with a quota may create and delete at once."),
            ("throttle_time", "Milliseconds for which a client was made to wait, on average of those times."),
        ):
            if name in samples:
                yield Family(f"kafka_server_quota_{name}", GAUGE, text, samples[name])
