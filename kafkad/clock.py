"""Time as a parameter: code that needs to know the time is handed a Clock, so that a test can move it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970: what goes into records and files."""

    def monotonic_ms(self) -> float:
        """A clock that never jumps, for waits and time-outs."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0
