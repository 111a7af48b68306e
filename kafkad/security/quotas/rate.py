"""Amounts over the last seconds, measured as Kafka measures them: clients are written for its throttle times."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """`quota.window.num` and `quota.window.size.seconds`, or those of the controller's quotas."""

    number: int = 11
    size_ms: float = 1000.0

    @property
    def all_ms(self) -> float:
        return self.number * self.size_ms


class _Sample:
    """What came in one window."""

    __slots__ = ("amount", "count", "last_ms", "start_ms")

    def __init__(self, now_ms: float) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: float) -> None:
        self.start_ms = self.last_ms = now_ms
        self.amount = 0.0
        self.count = 0


class Sampled:
    """Amounts in samples. A new sample begins with the first amount after the last one is a window old; there is one
    more of them than there are windows. One whose last amount is older than all windows together begins anew."""

    __slots__ = ("_at", "_samples", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self._samples: list[_Sample] = []
        self._at = 0

    def add(self, amount: float, now_ms: float) -> None:
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._at]
        if now_ms - sample.start_ms >= self.windows.size_ms:
            self._at = (self._at + 1) % (self.windows.number + 1)
            if self._at == len(samples):
                samples.append(_Sample(now_ms))
            else:
                samples[self._at].begin(now_ms)
            sample = samples[self._at]
        sample.amount += amount
        sample.count += 1
        sample.last_ms = now_ms

    def rate(self, now_ms: float) -> float:
        """Per second."""
        amount, _, window_ms = self._look(now_ms)
        return 1000 * amount / window_ms

    def mean(self, now_ms: float) -> float:
        """The mean of the amounts."""
        amount, count, _ = self._look(now_ms)
        return amount / count if count else 0.0

    def excess_ms(self, quota: float, now_ms: float) -> float:
        """The time after which the rate, if nothing more came, would be down at the quota; 0 if it is not over it."""
        amount, _, window_ms = self._look(now_ms)
        rate = 1000 * amount / window_ms
        if rate <= quota:
            return 0.0
        return (rate - quota) / quota * window_ms if quota > 0 else float("inf")

    def is_idle(self, now_ms: float) -> bool:
        return all(now_ms - sample.last_ms >= self.windows.all_ms for sample in self._samples)

    def _look(self, now_ms: float) -> tuple[float, int, float]:
        """The amounts together, their number, and the time that they count for."""
        all_ms = self.windows.all_ms
        amount, count, oldest_ms = 0.0, 0, now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= all_ms:
                sample.begin(now_ms)
            amount += sample.amount
            count += sample.count
            oldest_ms = min(oldest_ms, sample.start_ms)
        return amount, count, _counted_ms(self.windows, now_ms - oldest_ms)


def _counted_ms(windows: Windows, elapsed_ms: float) -> float:
    """The time that something counts for which began so long ago: at least that of all windows but one."""
    missing = windows.number - 1 - elapsed_ms // windows.size_ms
    return (elapsed_ms + max(missing, 0) * windows.size_ms) or windows.size_ms


class Steady:
    """A rate that holds in the long run, after a first burst of as much as all windows but one have.

    Kafka's own measure forgets that once it is a few windows old, and lets as much through again: 1.6 times the quota
    on and on with a hundred connections that send a megabyte each.
    """

    __slots__ = ("_amount", "_begin_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._begin_ms = float("-inf")
        self._amount = 0.0

    def add(self, amount: float, quota: float, now_ms: float) -> None:
        """Begins anew once it may be as much at once again as at the beginning."""
        if now_ms - self._begin_ms >= self._due_ms(quota) + _counted_ms(self._windows, 0.0):
            self._begin_ms, self._amount = now_ms, 0.0
        self._amount += amount

    def excess_ms(self, quota: float, now_ms: float) -> float:
        """The time after which what came is no more than the quota allows since it began."""
        return max(self._due_ms(quota) - _counted_ms(self._windows, now_ms - self._begin_ms), 0.0)

    def _due_ms(self, quota: float) -> float:
        """The time that the amount takes at the quota."""
        if quota > 0:
            return 1000 * self._amount / quota
        return float("inf") if self._amount > 0 else 0.0


class TokenBucket:
    """Fills at a rate, up to what all windows bring. While any token is left, more may be taken than there are."""

    __slots__ = ("_at_ms", "_tokens", "rate", "windows")

    def __init__(self, windows: Windows, rate: float) -> None:
        self.windows = windows
        self.rate = rate
        self._tokens = float("inf")
        self._at_ms = 0.0

    def take(self, count: float, now_ms: float) -> None:
        self._tokens = self.left(now_ms) - count
        self._at_ms = now_ms

    def wait_ms(self, now_ms: float) -> float:
        """The time until there is nothing owed any more."""
        owed = -self.left(now_ms)
        if owed <= 0:
            return 0.0
        return 1000 * owed / self.rate if self.rate > 0 else float("inf")

    def is_idle(self, now_ms: float) -> bool:
        return self.left(now_ms) >= self._most

    @property
    def _most(self) -> float:
        return self.rate * self.windows.all_ms / 1000

    def left(self, now_ms: float) -> float:
        return min(self._tokens + self.rate * (now_ms - self._at_ms) / 1000, self._most)
