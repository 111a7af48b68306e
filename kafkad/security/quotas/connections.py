"""How fast connections may come: to the broker, to each listener, from each address. Pure: times come from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkad.security.quotas.clients import Meter
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.levels import Sharers
from kafkad.security.quotas.rate import Windows
from kafkad.security.quotas.remembered import Remembered


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The most connections per second. None, or not being named, is unlimited."""

    broker: float | None = None
    listeners: Mapping[str, float] = field(default_factory=dict)
    addresses: Mapping[str, float] = field(default_factory=dict)
    other_addresses: float | None = None
    exempt: str | None = None
    """The listener of brokers, where it is one of several: only its own limit counts there."""

    @property
    def any(self) -> bool:
        broker_wide = (self.broker, self.other_addresses)
        return bool(self.listeners or self.addresses or any(rate is not None for rate in broker_wide))


class ConnectionRates:
    """At most one window is waited for at once, as in Kafka: then one more comes, however many have come before."""

    def __init__(self, rates: Rates, windows: Windows) -> None:
        self._rates = rates
        self._windows = windows
        self._broker = self._meter("", rates.broker)
        self._listeners = {name: self._meter(name, rate) for name, rate in rates.listeners.items()}
        self._addresses = Remembered[str, Meter](lambda host: True)

    def wait_ms(self, listener: str, now_ms: float) -> int:
        """A connection has been accepted: the time until the next one may be."""
        of_broker = self._broker if listener != self._rates.exempt else None
        meters = [of_broker, self._listeners.get(listener)]
        return max((meter.take(1, now_ms) for meter in meters if meter is not None), default=0)

    def hold_ms(self, listener: str, host: str, now_ms: float) -> int:
        """The time after which a connection from this address is to be turned away; 0 if it is welcome."""
        if listener == self._rates.exempt:
            return 0
        meter = self._of_address(host, now_ms)
        hold_ms = 0 if meter is None else meter.take(1, now_ms)
        if meter is not None and hold_ms:
            meter.give_back(1, now_ms)
        return hold_ms

    def _of_address(self, host: str, now_ms: float) -> Meter | None:
        meter = self._addresses.get(host)
        if meter is None:
            meter = self._meter(host, self._rates.addresses.get(host, self._rates.other_addresses))
            if meter is not None:
                self._addresses.make_room(now_ms)
                self._addresses.put(host, meter)
        return meter

    def _meter(self, whose: str, rate: float | None) -> Meter | None:
        if rate is None:
            return None
        meter = Meter(Quota.CONNECTION, Sharers(whose, ""), self._windows)
        meter.limit(rate)
        return meter
