"""Progress of the copies of a move: amounts, rates, time left and stalls, computed from timed samples. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from kafkad.names import TopicPartition
from kctl.texts.output import duration_text, size_text

STALLED_AFTER_SECONDS = 60.0
_WINDOW_SECONDS = 30.0
"""Over which the rate is taken: Kafka's throttle lets a second pass in bursts."""


class Copying(NamedTuple):
    """A new replica that is being filled."""

    partition: TopicPartition
    target: int

    def __str__(self) -> str:
        return f"{self.partition} -> {self.target}"


class Amount(NamedTuple):
    """Bytes that the new replica has, of those that its leader has; either may be unknown while a broker is down."""

    copied: int
    size: int

    @property
    def percent(self) -> int:
        """Never 100 while it is still copying: what is written meanwhile has to be copied too."""
        return min(99, self.copied * 100 // self.size) if self.size else 0


def by_partition(amounts: Mapping[Copying, Amount]) -> dict[TopicPartition, Amount]:
    """The sums over the new replicas of each partition."""
    sums: dict[TopicPartition, Amount] = {}
    for copy, amount in amounts.items():
        copied, size = sums.get(copy.partition, (0, 0))
        sums[copy.partition] = Amount(copied + amount.copied, size + amount.size)
    return sums


class Report(NamedTuple):
    """`rate` is None before there are two looks; `eta_seconds` is None while nothing moves."""

    copied: int
    size: int
    rate: float | None
    eta_seconds: float | None
    slowest: Copying | None
    slowest_percent: int
    stalled: tuple[Copying, ...]


class CopyProgress:
    """Remembers what was seen of a reassignment."""

    def __init__(self) -> None:
        self._amounts: dict[Copying, Amount] = {}
        self._grew: dict[Copying, float] = {}
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, now: float, copying: Mapping[Copying, Amount], to_come: int = 0) -> Report:
        """`copying` has what is not finished; what was seen in it before and is no longer there has been copied.
        `to_come` are the bytes of copies that have not begun."""
        for copy, before in self._amounts.items():
            if copy not in copying:
                self._amounts[copy] = Amount(before.size, before.size)
        for copy, amount in copying.items():
            before_copied = self._amounts[copy].copied if copy in self._amounts else -1
            if amount.copied != before_copied:
                self._grew[copy] = now
        self._amounts.update(copying)
        copied = sum(min(amount.copied, amount.size) for amount in self._amounts.values())
        size = sum(amount.size for amount in self._amounts.values()) + to_come
        rate = self._rate(now, copied)
        slowest = min(copying, key=lambda copy: (copying[copy].percent, copy), default=None)
        return Report(
            copied,
            size,
            rate,
            (size - copied) / rate if rate else None,
            slowest,
            copying[slowest].percent if slowest else 100,
            tuple(sorted(copy for copy in copying if now - self._grew[copy] >= STALLED_AFTER_SECONDS)),
        )

    def _rate(self, now: float, copied: int) -> float | None:
        self._seen.append((now, copied))
        while len(self._seen) > 2 and now - self._seen[0][0] > _WINDOW_SECONDS:
            self._seen.popleft()
        since, had = self._seen[0]
        return max(copied - had, 0) / (now - since) if now > since else None


def progress_line(report: Report, batch: str, moving: int, done: int, throttle: int | None) -> str:
    """`batch 2/3  7 moving, 6 done  23.1 MB of 40.6 MB  …`"""
    parts = [batch, f"{moving} moving, {done} done", f"{size_text(report.copied)} of {size_text(report.size)}"]
    if report.rate is not None:
        limit = f" of {size_text(throttle)}/s throttled" if throttle else ""
        parts.append(f"{size_text(int(report.rate))}/s{limit}")
    if report.eta_seconds is not None and report.copied < report.size:
        parts.append(f"ETA {duration_text(int(report.eta_seconds * 1000))}")
    if report.slowest:
        parts.append(f"slowest {report.slowest} ({report.slowest_percent}%)")
    return "  ".join(part for part in parts if part)


def stall_reason(target_alive: bool, leader: int | None, amount: Amount, throttle: int | None) -> str:
    """The reason that a copy may have stopped growing, as far as the cluster shows it."""
    if not target_alive:
        return "its new broker is down"
    if leader is None:
        return "the partition has no leader to copy from"
    if amount.size and amount.copied >= amount.size:
        return "it has everything, but is not in sync yet"
    if throttle:
        return f"the throttle of {size_text(throttle)}/s may be less than what producers write"
    return "nothing arrives at its new broker: see that broker's log"
