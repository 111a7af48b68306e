"""How much work a call is, in a measure that does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_executed(call: Callable[[], object]) -> int:
    """Lines of Python."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return lines


def is_linear(call_for: Callable[[int], Callable[[], object]], size: int = 100) -> bool:
    """True if the call for four times as many things is hardly more than four times the work."""
    return lines_executed(call_for(4 * size)) < 6 * lines_executed(call_for(size))
