"""Counts failed logins by address and by user name, and says how long the next one that fails has to wait.

Neither an address nor a name keeps anybody out. Only the two together have a login wait for others: by a name that has
failed from an address where much has.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from kafkad.clock import Clock

_WINDOW_MS: Final = 60_000
_FREE: Final = 9
"""Failures in the window that cost nothing but the usual delay."""
_FIRST_MS: Final = 100
_LONGEST_MS: Final = 10_000
_MOST_KEPT: Final = 32
"""Failures of one address or name that are remembered: by then the delay is long since at its longest."""
_MOST_SOURCES: Final = 20_000


class Attempts:
    """Counts failed logins, over all listeners together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()
        """The times by address, by name after an `@`, and by both; those that failed last at the end."""

    def failed(self, address: str, name: str | None, usual_ms: int) -> int:
        """Notes a failure; the milliseconds for which its answer waits."""
        count = self._note(address)
        if name is not None:
            self._note(_pair(address, name))
            count = max(count, self._note(_pair("", name)))
        if count <= _FREE:
            return usual_ms
        return min(max(usual_ms, _FIRST_MS) << min(count - _FREE, 16), _LONGEST_MS)

    def suspects(self, address: str, name: str) -> bool:
        """True if much has failed from there, and this name has: its logins are told a few at a time how they ended."""
        return len(self._recent(address)) > _FREE and bool(self._recent(_pair(address, name)))

    def _note(self, source: str) -> int:
        recent = self._recent(source)
        recent.append(self._clock.monotonic_ms())
        self._failures[source] = recent
        self._failures.move_to_end(source)
        while len(self._failures) > _MOST_SOURCES:
            self._failures.popitem(last=False)
        return len(recent)

    def _recent(self, source: str) -> deque[float]:
        times = self._failures.get(source)
        if times is None:
            return deque(maxlen=_MOST_KEPT)
        after = self._clock.monotonic_ms() - _WINDOW_MS
        while times and times[0] <= after:
            times.popleft()
        return times


def _pair(address: str, name: str) -> str:
    return f"{address}@{name[:256]}"
