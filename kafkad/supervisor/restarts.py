"""Decides how soon a broker that ended is started again, and says how it ended. No I/O."""

from __future__ import annotations

import signal
from collections.abc import Sequence

_REMEMBERED_S = 60.0
_LONGEST_S = 30.0


def delay_s(ends: Sequence[float], now: float) -> float:
    """`ends` are the times at which the broker ended, this one included. At once after a good while, then 1, 2, 4, …
    seconds while it keeps ending, so that a broker that cannot start does not keep the host busy."""
    recent = sum(1 for end in ends if now - end < _REMEMBERED_S)
    return 0.0 if recent <= 1 else min(_LONGEST_S, 2.0 ** (recent - 2))


def how_it_ended(code: int) -> str:
    if code == 0:
        return "was told to stop"
    if code < 0:
        try:
            return f"was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"ended with exit code {code}"
