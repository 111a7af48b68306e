"""How fast a group reads, and when it will have caught up: arithmetic on samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

WINDOW = 5
"""Samples that rates are taken over."""
STALLED_AFTER = 3
"""Samples without a commit, while there is something to read."""
_STEADY = 0.05
"""Rates that differ by less than this part of the larger one keep the lag as it is."""

IDLE, SHRINKING, GROWING, STEADY_TREND, STALLED = "idle", "shrinking", "growing", "steady", "stalled"


class Point(NamedTuple):
    """One partition at one time. `committed` is where reading would begin, if nothing is committed."""

    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(self.end - self.committed, 0)


class Sample(NamedTuple):
    at: float
    """Seconds of a clock that never goes back."""
    points: Mapping[tuple[str, str, int], Point]
    """By group, topic and partition."""


Key = tuple[str, str, int]


class Pace(NamedTuple):
    """Rates are None before there are two samples. `eta` in seconds: None where it will never be, or is not known."""

    lag: int
    consumed: float | None = None
    produced: float | None = None
    trend: str = ""
    eta: float | None = None


def partition_pace(samples: Sequence[Sample], key: Key) -> Pace | None:
    """Of the samples that have it, the oldest first; None where the last one has not."""
    seen = [(sample.at, sample.points[key]) for sample in samples[-WINDOW:] if key in sample.points]
    if not seen or key not in samples[-1].points:
        return None
    (begin, first), (end, last) = seen[0], seen[-1]
    if end <= begin:
        return Pace(last.lag)
    consumed = (last.committed - first.committed) / (end - begin)
    produced = max(last.end - first.end, 0) / (end - begin)
    recent = [point.committed for _, point in seen[-STALLED_AFTER:]]
    stands = len(recent) == STALLED_AFTER and len(set(recent)) == 1
    trend = STALLED if last.lag and stands else _trend(last.lag, consumed, produced)
    eta = last.lag / (consumed - produced) if last.lag and consumed > produced else 0.0 if not last.lag else None
    return Pace(last.lag, consumed, produced, trend, eta)


def _trend(lag: int, consumed: float, produced: float) -> str:
    if not lag and not consumed and not produced:
        return IDLE
    if abs(consumed - produced) <= _STEADY * max(consumed, produced):
        return STEADY_TREND
    return SHRINKING if consumed > produced else GROWING


def together(paces: Sequence[Pace]) -> Pace:
    """Of several partitions: the sums, but the time of the slowest. Stalled are they only if all that lag are."""
    lag = sum(pace.lag for pace in paces)
    if not paces or any(pace.consumed is None for pace in paces):
        return Pace(lag)
    consumed = sum(pace.consumed or 0.0 for pace in paces)
    produced = sum(pace.produced or 0.0 for pace in paces)
    lagging = [pace for pace in paces if pace.lag]
    if lagging and all(pace.trend == STALLED for pace in lagging):
        return Pace(lag, consumed, produced, STALLED)
    times = [pace.eta for pace in lagging]
    known = [time for time in times if time is not None]
    eta = max(known, default=0.0) if len(known) == len(times) else None
    return Pace(lag, consumed, produced, _trend(lag, consumed, produced), eta)


def slowest(paces: Mapping[Key, Pace]) -> Key | None:
    """The partition that everybody will have to wait for: one that never comes to its end before all others."""
    lagging = [(pace.eta is None, pace.eta or 0.0, pace.lag, key) for key, pace in paces.items() if pace.lag]
    return max(lagging)[3] if lagging else None
