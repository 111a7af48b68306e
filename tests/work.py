"""How much work a call is, in measures that do not depend on the machine, nor on what other tests have left."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Trace = Callable[[FrameType, str, Any], Any]


def lines(action: Callable[..., object], *args: Any) -> int:
    """Lines of Python."""
    return _counted("line", action, args)


def instructions(action: Callable[..., object], *args: Any) -> int:
    """Bytecode instructions."""
    return _counted("opcode", action, args)


def calls(action: Callable[..., object], *args: Any) -> int:
    """Calls of Python functions, and steps of generators."""
    return _counted("call", action, args)


def _counted(counts: str, action: Callable[..., object], args: tuple[Any, ...]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = counts == "opcode"
        count += event == counts
        return None if counts == "call" else trace

    with _traced(trace):
        action(*args)
    return count


async def counting_turns(work: Callable[[Callable[[], int]], Coroutine[Any, Any, object]]) -> int:
    """The turns of the loop while `work` goes on, which is given the number of the present one."""
    turned = 0

    async def turn() -> None:
        nonlocal turned
        while True:
            turned += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(turn())
    await work(lambda: turned)
    others.cancel()
    return turned


@contextmanager
def _traced(trace: Trace) -> Iterator[None]:
    """Finalizers of others' garbage would count as well."""
    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()


def is_linear(call_for: Callable[[int], Callable[[], object]], size: int = 100) -> bool:
    """True if the call for four times as many things is hardly more than four times the work."""
    return lines(call_for(4 * size)) < 6 * lines(call_for(size))
