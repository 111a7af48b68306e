"""The quotas of clients at one broker: what each may still take, and for how long it is not to be read.

All connections of those who share a quota use up the same. Pure: times come from outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from kafkad.model import Entity
from kafkad.security.quotas.keys import Quota
from kafkad.security.quotas.levels import Overrides, Sharers, level_of
from kafkad.security.quotas.line import Line
from kafkad.security.quotas.rate import Sampled, Steady, TokenBucket, Windows
from kafkad.security.quotas.remembered import Remembered

_MOST_BUDGETS: Final = 10_000
"""Clients whose quotas need not be looked for at each request."""
_LONGEST_ID: Final = 255
"""Of longer client ids a digest is remembered: clients choose them themselves, up to 32 KB."""
LONGEST_MS: Final = 2**31 - 1
_MEASURED: Final = {
    Quota.PRODUCE: ("Produce", "byte_rate"),
    Quota.FETCH: ("Fetch", "byte_rate"),
    Quota.REQUEST: ("Request", "request_time"),
}


class Measured(NamedTuple):
    """What metrics say of one quota: under Kafka's names of the resource and of the values."""

    resource: str
    sharers: Sharers
    values: Mapping[str, float]


class Meter:
    """What the sharers of one quota have taken of late, and how long they were made to wait for it."""

    __slots__ = (
        *("__weakref__", "_longest_ms", "_steady", "_taken", "_windows"),
        *("_line", "quota", "sharers", "throttled", "value"),
    )

    def __init__(self, quota: Quota, sharers: Sharers, windows: Windows) -> None:
        self.quota = quota
        self.sharers = sharers
        self.value = float("inf")
        self.throttled = Sampled(windows)
        self._windows = windows
        self._taken = Sampled(windows)
        self._steady = Steady(windows)
        self._line: Line | None = None
        self._longest_ms = windows.size_ms if quota in (Quota.REQUEST, Quota.CONNECTION) else LONGEST_MS

    def limit(self, value: float) -> None:
        """Another value begins anew; of what was taken before, that of the last windows counts, as with Kafka. Measured
        since the beginning, an hour at the old rate would be another hour of debt at half of it."""
        if value != self.value:
            if self._line is not None:
                self._line.dissolve()
            self.value = value
            self._steady = Steady(self._windows)

    @property
    def line(self) -> Line:
        """Of those whose fetches were refused."""
        if self._line is None:
            self._line = Line(self)
        return self._line

    def add(self, amount: float, now_ms: float) -> None:
        """It is taken, and waited for when more is."""
        self._taken.add(amount, now_ms)
        self._steady.add(amount, self.value, now_ms)

    def take(self, amount: float, now_ms: float) -> int:
        """The milliseconds for which whoever took this is not to be read; 0 if the quota is kept."""
        self.add(amount, now_ms)
        throttle_ms = self.owed_ms(now_ms)
        if throttle_ms > 0:
            self.throttled.add(throttle_ms, now_ms)
        return throttle_ms

    def owed_ms(self, now_ms: float) -> int:
        """The same for what was taken before."""
        excess_ms = max(self._taken.excess_ms(self.value, now_ms), self._steady.excess_ms(self.value, now_ms))
        return round(min(excess_ms, self._longest_ms))

    def give_back(self, amount: float, now_ms: float) -> None:
        """It was not taken after all."""
        self.add(-amount, now_ms)

    @property
    def patience_ms(self) -> float:
        """For so long a turn is kept for who does not come."""
        return self._windows.all_ms

    @property
    def most_at_once(self) -> int:
        """The most that can be taken at once without waiting for more than all windows."""
        windows = self._windows
        return int(min(self.value * (windows.number - 1) * windows.size_ms / 1000, LONGEST_MS))

    def measured(self, now_ms: float) -> Measured:
        resource, value = _MEASURED[self.quota]
        values = {value: max(self._taken.rate(now_ms), 0.0), "throttle_time": self.throttled.mean(now_ms)}
        return Measured(resource, self.sharers, values)

    def is_idle(self, now_ms: float) -> bool:
        return self._taken.is_idle(now_ms)


class Mutations:
    """How many partitions the sharers of one quota may still create and delete."""

    __slots__ = ("bucket", "sharers", "throttled")

    def __init__(self, sharers: Sharers, windows: Windows) -> None:
        self.sharers = sharers
        self.bucket = TokenBucket(windows, 0.0)
        self.throttled = Sampled(windows)

    def take(self, partitions: int, now_ms: float) -> None:
        self.bucket.take(partitions, now_ms)

    def exceeded_ms(self, now_ms: float) -> int:
        """The time until more may be changed; 0 if it may be now."""
        wait_ms = self.bucket.wait_ms(now_ms)
        return max(round(min(wait_ms, LONGEST_MS)), 1) if wait_ms > 0 else 0

    def measured(self, now_ms: float) -> Measured:
        values = {"tokens": self.bucket.left(now_ms), "throttle_time": self.throttled.mean(now_ms)}
        return Measured("ControllerMutation", self.sharers, values)

    def is_idle(self, now_ms: float) -> bool:
        return self.bucket.is_idle(now_ms)


class Budget(NamedTuple):
    """The quotas of one client; None where it has none."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    mutations: Mutations | None


_UNLIMITED: Final = Budget(None, None, None, None)


class ClientQuotas:
    """`entities` says what each has; `changed` is to be called when it says something else about quotas."""

    def __init__(self, entities: Mapping[Entity, Overrides], windows: Windows, controller_windows: Windows) -> None:
        self._entities = entities
        self._windows = windows
        self._controller_windows = controller_windows
        self._budgets: dict[tuple[str, str], Budget | None] = {}
        self._named: frozenset[object] | None = None
        """Client ids that have a quota by name; None until somebody asks again."""
        self._meters = Remembered[tuple[Quota, Sharers], Meter | Mutations](self._is_made_up)

    def changed(self) -> None:
        """What has been taken still counts, for those who still have a quota."""
        self._budgets.clear()
        self._named = None

    def resize(self, windows: Windows, controller_windows: Windows) -> None:
        """Measuring begins anew if the windows are others."""
        if (windows, controller_windows) != (self._windows, self._controller_windows):
            self._windows, self._controller_windows = windows, controller_windows
            self._budgets.clear()
            self._meters.clear()

    def of(self, user: str, client: str, now_ms: float) -> Budget | None:
        """None for a client without a quota."""
        key = user, _short(client)
        try:
            return self._budgets[key]
        except KeyError:
            if self._meters.make_room(now_ms) or len(self._budgets) >= _MOST_BUDGETS:
                self._budgets.clear()
            budget = self._budgets[key] = self._found(user, client)
            return budget

    def budget(self, user: str, client: str, now_ms: float) -> Budget:
        """The same, of one that had a quota a moment ago."""
        return self.of(user, client, now_ms) or _UNLIMITED

    def meters(self) -> Iterator[Meter | Mutations]:
        yield from self._meters.values()

    def _found(self, user: str, client: str) -> Budget | None:
        budget = Budget(
            produce=self._meter(Quota.PRODUCE, user, client),
            fetch=self._meter(Quota.FETCH, user, client),
            request=self._meter(Quota.REQUEST, user, client),
            mutations=self._mutations(user, client),
        )
        return None if budget == _UNLIMITED else budget

    def _meter(self, quota: Quota, user: str, client: str) -> Meter | None:
        found = level_of(quota, user, client, self._entities)
        if found is None:
            return None
        value, (of_user, of_client) = found
        sharers = Sharers(of_user, _short(of_client))
        meter = self._meters.get((quota, sharers))
        if not isinstance(meter, Meter):
            meter = Meter(quota, sharers, self._windows)
            self._meters.put((quota, sharers), meter)
        meter.limit(value)
        return meter

    def _mutations(self, user: str, client: str) -> Mutations | None:
        found = level_of(Quota.MUTATION, user, client, self._entities)
        if found is None:
            return None
        value, (of_user, of_client) = found
        sharers = Sharers(of_user, _short(of_client))
        mutations = self._meters.get((Quota.MUTATION, sharers))
        if not isinstance(mutations, Mutations):
            mutations = Mutations(sharers, self._controller_windows)
            self._meters.put((Quota.MUTATION, sharers), mutations)
        mutations.bucket.rate = value
        return mutations

    def _is_made_up(self, key: tuple[Quota, Sharers]) -> bool:
        """True if anybody may have as many as these: a client id that no quota names."""
        client = key[1].client
        if self._named is None:
            self._named = frozenset(entity.client for entity in self._entities)
        return bool(client) and client not in self._named


def _short(client: str) -> str:
    return client if len(client) <= _LONGEST_ID else sha256(client.encode(errors="surrogatepass")).hexdigest()
