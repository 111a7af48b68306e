"""The rates of a group, and when it will have caught up: arithmetic on samples. Pure.

Groups commit now and then, clients by default every 5 seconds: between two commits nothing is known. So rates are taken
from commit to commit, of what is read and of what is written over the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

HISTORY_S = 60.0
LEAST_SAMPLES = 5
"""Samples are kept for so long, and so many at the least."""
STALLED_AFTER = 3
"""Samples without a commit, while there is something to read."""
_AUTO_COMMIT_S = 5.0
"""The interval at which clients commit by default (auto.commit.interval.ms)."""
_STEADY = 0.05
"""Rates that differ by less than this part of the larger one keep the lag as it is."""

IDLE, STEADY, SHRINKING, GROWING, UNEVEN, STALLED = "idle", "steady", "shrinking", "growing", "uneven", "stalled"


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
    """`consumed` is None before two commits were seen. `eta` in seconds: None if it will never be, or is not known."""

    lag: int
    consumed: float | None = None
    produced: float | None = None
    trend: str = ""
    eta: float | None = None


def kept(samples: Sequence[Sample]) -> list[Sample]:
    """Those that still count, the newest last."""
    recent = [sample for sample in samples if samples[-1].at - sample.at <= HISTORY_S]
    return recent if len(recent) >= LEAST_SAMPLES else list(samples[-LEAST_SAMPLES:])


_Seen = list[tuple[float, Point]]


def partition_pace(samples: Sequence[Sample], key: Key) -> Pace | None:
    """Of the samples that have it, the oldest first; None where the last one has not."""
    if key not in samples[-1].points:
        return None
    seen = _since_it_was_set_back([(sample.at, sample.points[key]) for sample in samples if key in sample.points])
    (begin, first), (now, last) = seen[0], seen[-1]
    if now <= begin:
        return Pace(last.lag)
    commits = [after for before, after in pairwise(seen) if after[1].committed != before[1].committed]
    gap = max((after[0] - before[0] for before, after in pairwise(commits)), default=_AUTO_COMMIT_S)
    since = commits[-1][0] if commits else begin
    is_quiet = now - since > 2 * gap and sum(at > since for at, _ in seen) >= STALLED_AFTER
    produced = (last.end - first.end) / (now - begin)
    if is_quiet or not (commits or last.lag or produced):
        return _pace(last.lag, 0.0, produced, gap, is_stalled=is_quiet)
    if len(commits) < 2:
        return Pace(last.lag, None, produced)
    (begin, first), (end, there) = commits[0], commits[-1]
    consumed, produced = (there.committed - first.committed) / (end - begin), (there.end - first.end) / (end - begin)
    return _pace(last.lag, consumed, produced, gap, is_stalled=False)


def _since_it_was_set_back(seen: _Seen) -> _Seen:
    """Offsets that went back were reset, or the topic is another one of that name."""
    start = 0
    for at, ((_, before), (_, after)) in enumerate(pairwise(seen), 1):
        if after.committed < before.committed or after.end < before.end:
            start = at
    return seen[start:]


def _pace(lag: int, consumed: float, produced: float, gap: float, *, is_stalled: bool) -> Pace:
    """The pace of a group. Lag that its next commits will take anyway neither grows nor shrinks."""
    if is_stalled and lag:
        return Pace(lag, consumed, produced, STALLED)
    keeps_up = bool(consumed) and lag <= 2 * gap * consumed
    trend = STEADY if lag and keeps_up else _trend(lag, consumed, produced)
    eta = 0.0 if not lag else lag / (consumed - produced) if trend == SHRINKING else None
    return Pace(lag, consumed, produced, trend, eta)


def _trend(lag: int, consumed: float, produced: float) -> str:
    if not lag and not consumed and not produced:
        return IDLE
    if not lag or abs(consumed - produced) <= _STEADY * max(consumed, produced):
        return STEADY
    return SHRINKING if consumed > produced else GROWING


def together(paces: Sequence[Pace]) -> Pace:
    """Of several partitions: the sums, but the time of the slowest. Stalled are they only if all that lag are; uneven
    if the sum shrinks, and some of them do not."""
    lag = sum(pace.lag for pace in paces)
    known = [pace.consumed for pace in paces if pace.consumed is not None]
    if any(pace.produced is None for pace in paces) or not paces:
        return Pace(lag)
    produced = sum(pace.produced or 0.0 for pace in paces)
    if len(known) < len(paces):
        return Pace(lag, None, produced)
    consumed = sum(known)
    behind = [pace for pace in paces if _is_behind(pace)]
    if behind and all(pace.trend == STALLED for pace in behind):
        return Pace(lag, consumed, produced, STALLED)
    times = [pace.eta for pace in behind if pace.eta is not None]
    if len(times) < len(behind):
        return Pace(lag, consumed, produced, GROWING if produced > consumed else UNEVEN)
    if behind:
        return Pace(lag, consumed, produced, SHRINKING, max(times))
    return Pace(lag, consumed, produced, STEADY if lag or consumed or produced else IDLE, None if lag else 0.0)


def _is_behind(pace: Pace) -> bool:
    return bool(pace.lag) and pace.trend != STEADY


def slowest(paces: Mapping[Key, Pace]) -> Key | None:
    """The partition that everybody will have to wait for: one that never comes to its end before all others."""
    lagging = [
        (pace.trend in (STALLED, GROWING), pace.eta or 0.0, pace.lag, key)
        for key, pace in paces.items()
        if _is_behind(pace)
    ]
    return max(lagging)[3] if lagging else None


def urgency(pace: Pace) -> tuple[bool, float, int]:
    """Larger is worse: what never ends, then what takes longest, then what has most to read."""
    return pace.trend in (STALLED, GROWING, UNEVEN), pace.eta or 0.0, pace.lag
