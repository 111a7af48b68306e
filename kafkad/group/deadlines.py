"""The deadlines of a group: of its rebalance, its syncs and its members' sessions."""

from __future__ import annotations

from math import inf


class Deadlines:
    """Each in milliseconds on the caller's clock; infinity if there is none."""

    __slots__ = ("_grew", "_initial_delay_ms", "_initial_left_ms", "rebalance", "sessions", "sync")

    def __init__(self) -> None:
        self.rebalance = inf
        self.sync = inf
        self.sessions = inf
        """No session ends before this. Heartbeats only make it a guess that is too early: nothing is moved for them."""
        self._initial_delay_ms: int | None = None
        self._initial_left_ms = 0
        self._grew = False

    @property
    def next(self) -> float:
        return min(self.rebalance, self.sync, self.sessions)

    def watch(self, session_ends: float) -> None:
        if session_ends < self.sessions:
            self.sessions = session_ends

    @property
    def delaying(self) -> bool:
        """The first rebalance of an empty group does not end when all have joined, but when its delay is over."""
        return self._initial_delay_ms is not None

    def begin_rebalance(self, patience_ms: int, now_ms: float) -> None:
        self.rebalance = now_ms + patience_ms

    def begin_first_rebalance(self, delay_ms: int, patience_ms: int, now_ms: float) -> None:
        self._initial_delay_ms = delay_ms
        self._initial_left_ms = max(patience_ms - delay_ms, 0)
        self.rebalance = now_ms + delay_ms

    def somebody_came(self) -> None:
        self._grew = True

    def put_off(self, delay_ms: int, now_ms: float) -> bool:
        """The delay starts over if a member joined while it ran, within the members' rebalance timeout."""
        over_ms = self._initial_delay_ms
        if over_ms is None or not self._grew or not self._initial_left_ms:
            return False
        self._grew = False
        self._initial_delay_ms = min(delay_ms, self._initial_left_ms)
        self._initial_left_ms = max(self._initial_left_ms - over_ms, 0)
        self.rebalance = now_ms + self._initial_delay_ms
        return True

    def end_rebalance(self) -> None:
        self._initial_delay_ms = None
        self.rebalance = inf

    def stop(self) -> None:
        self.rebalance = self.sync = self.sessions = inf
