"""Long work on the event loop, cut into turns so that nobody else has to wait for more than a few milliseconds."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

log = logging.getLogger(__name__)

TURN_S: Final = 0.005
LEAST_S: Final = 0.0001
"""The least time of a step, however many wait, and of a job that begins in a turn that others have used up: small ones
need no more, and below it, switching would cost more than the work."""

SMALL: Final = 4 * 1024
TOGETHER: Final = 512 * 1024
"""Bytes of requests: what they take in memory while they are worked on is up to fifty times that."""

_AT_ONCE_S: Final = 0.001
"""The time that a new job gets at first, which is enough for most."""

Step = Callable[[float], None]
"""Works until about the given time, and adds itself again when it is not through."""


class _Shared:
    """What all coroutines of the event loop that give way have together."""

    __slots__ = ("_resetting", "left", "waiting")

    def __init__(self) -> None:
        self.left = TURN_S
        """Seconds that may still be begun with in this turn of the loop."""
        self.waiting = 0
        """Those that have given way."""
        self._resetting: asyncio.AbstractEventLoop | None = None

    def take(self) -> float:
        """The time of one that begins."""
        taken = min(max(self.left, LEAST_S), _AT_ONCE_S)
        self.left -= taken
        loop = asyncio.get_running_loop()
        if self._resetting is not loop:
            self._resetting = loop
            loop.call_soon(self._reset)
        return taken

    def _reset(self) -> None:
        self.left = TURN_S
        self._resetting = None


_shared = _Shared()


class Turns:
    """The turns of one piece of long work; call `give_way` between its parts: it costs nothing until a turn is over.
    Hundreds that work so at the same time share the turns of the loop."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end = monotonic() + _shared.take()

    async def give_way(self) -> None:
        if monotonic() >= self._end:
            _shared.waiting += 1
            try:
                await asyncio.sleep(0)
            finally:
                share = TURN_S / _shared.waiting
                _shared.waiting -= 1
            self._end = monotonic() + max(share, LEAST_S)


class Lane:
    """Work that may wait, of all connections of one event loop: together it gets 5 ms of each of its turns,
    in equal shares, one after the other."""

    __slots__ = ("_call_soon", "_going", "_steps", "clock", "left")

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], clock: Callable[[], float] = monotonic
    ) -> None:
        self.clock = clock
        self.left = TURN_S
        """Seconds that may be worked beside the lane until the loop has turned; who does takes them from it."""
        self._call_soon = call_soon
        self._steps: deque[Step] = deque()
        self._going = False

    def add(self, step: Step) -> None:
        """It is called in a later turn of the loop."""
        self._steps.append(step)
        if not self._going:
            self._going = True
            self._call_soon(self._turn)

    def at_once(self) -> float:
        """Seconds that a new job may take beside the lane."""
        if self.left < _AT_ONCE_S and not self._going:
            self._going = True
            self._call_soon(self._turn)  # after which there is more
        return min(max(self.left, LEAST_S), _AT_ONCE_S)

    def _turn(self) -> None:
        steps, clock = self._steps, self.clock
        now = clock()
        end = now + TURN_S
        try:
            for waiting in range(len(steps), 0, -1):
                if now >= end:
                    break
                steps.popleft()(now + max((end - now) / waiting, LEAST_S))
                now = clock()
        finally:
            self.left = max(end - now, 0.0)
            self._going = bool(steps)
            if steps:
                self._call_soon(self._turn)


T = TypeVar("T")
A = TypeVar("A")
Pieces = Generator[Any, None, T]
"""Work that can stop wherever it yields, and be taken up again in a later turn; where it yields `LONG`, it is."""
LONG: Final = True
"""The next piece takes long: hundreds may begin in one turn, and are not to get to it in that."""


def each(make: Callable[[A], T], items: Iterable[A]) -> Pieces[list[T]]:
    """Apply `make` to every item, one piece of work for each. For no items there is none: a loop around it yields."""
    made = []
    for item in items:
        made.append(make(item))
        yield
    return made


def at_once(pieces: Pieces[T]) -> T:
    """All of it, without giving way to anybody."""
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(pieces: Pieces[T]) -> T:
    """All of it, giving way to everybody else when a turn is over."""
    turns = Turns()
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            result: T = end.value
            return result
        await turns.give_way()


class Backlog:
    """A queue of small actions, done one after the other in the lane."""

    __slots__ = ("_lane", "_waiting")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, action: Callable[[], None]) -> None:
        """It is done in a later turn of the loop."""
        self._waiting.append(action)
        if len(self._waiting) == 1:
            self._lane.add(self._work)

    def _work(self, until: float) -> None:
        waiting, clock = self._waiting, self._lane.clock
        while True:
            action = waiting[0]
            try:
                action()
            except Exception:
                function = getattr(action, "func", action)  # a partial is told with all that it is called with
                name = getattr(function, "__qualname__", type(function).__name__)
                log.exception("internal error in work that was put off (%s)", name)
            waiting.popleft()
            if not waiting or clock() >= until:
                break
        if waiting:
            self._lane.add(self._work)


class Jobs:
    """Large work in the lane. What takes little memory goes on side by side; what takes more does, too, as long as it
    is little together; of the rest one is done after the other, so that what it holds is gone before the next begins,
    or grows on."""

    __slots__ = ("_alone", "_lane", "_together")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._alone = _Bounded(lane, 1)
        self._together = _Bounded(lane, TOGETHER)

    @property
    def has_time(self) -> bool:
        """True if what begins now need not make do with the least."""
        return self._lane.at_once() > LEAST_S

    def do(
        self,
        pieces: Pieces[T],
        *,
        alone: bool = False,
        size: int = 0,
        host: str = "",
        has_grown: Callable[[], bool] = lambda: False,
    ) -> asyncio.Future[T]:
        """Its result, which is there at once if the work is short. `size`: the bytes of the request that is to be
        worked on, of which memory is taken many times. What is not done `alone` is from the moment that it `has_grown`,
        which is asked between its turns. `host`: who asked for it."""
        end: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        work = partial(_work, pieces, end, self._lane.clock)
        queue = self._alone if alone else self._together if size > SMALL else None
        if not (queue is not None and queue.is_full) and self._is_short(work):
            return end
        step = work if alone else partial(self._unless_grown, work, host, has_grown)
        if queue is None:
            self._lane.add(partial(self._go_on, step))
        else:
            queue.add(step, 1 if alone else size, host)
        return end

    def _is_short(self, work: Callable[[float], bool]) -> bool:
        lane = self._lane
        begun = lane.clock()
        is_through = work(begun + lane.at_once())
        lane.left -= lane.clock() - begun
        return is_through

    def _unless_grown(
        self, work: Callable[[float], bool], host: str, has_grown: Callable[[], bool], until: float
    ) -> bool:
        """True if it is through with it, or it has become one of those that are done alone."""
        if has_grown():
            self._alone.add(work, 1, host)
            return True
        return work(until)

    def _go_on(self, step: Callable[[float], bool], until: float) -> None:
        if not step(until):
            self._lane.add(partial(self._go_on, step))


class _Bounded:
    """Work in the lane, as much at a time as makes up `most` in size, or one that is larger. Hosts take turns at what
    waits, however many connections one of them has; what is of the same host begins in order."""

    __slots__ = ("_going", "_lane", "_last", "_most", "_waiting")

    def __init__(self, lane: Lane, most: int) -> None:
        self._lane = lane
        self._most = most
        self._going = 0
        """The size of what goes on."""
        self._waiting: dict[str, deque[tuple[Callable[[float], bool], int]]] = {}
        """By host, the next one first, but for the one whose work began last."""
        self._last = ""

    @property
    def is_full(self) -> bool:
        return bool(self._waiting) or self._going >= self._most

    def add(self, step: Callable[[float], bool], size: int, host: str) -> None:
        """`step` works until about the given time; True if it is through."""
        self._waiting.setdefault(host, deque()).append((step, size))
        self._begin()

    def _begin(self) -> None:
        while self._waiting:
            host = next((host for host in self._waiting if host != self._last), self._last)
            waiting = self._waiting[host]
            step, size = waiting[0]
            if self._going and self._going + size > self._most:
                break
            waiting.popleft()
            del self._waiting[host]
            if waiting:
                self._waiting[host] = waiting
            self._going += size
            self._last = host
            self._lane.add(partial(self._go_on, step, size))

    def _go_on(self, step: Callable[[float], bool], size: int, until: float) -> None:
        if not step(until):
            self._lane.add(partial(self._go_on, step, size))
            return
        self._going -= size
        self._begin()


def _work(pieces: Pieces[T], end: asyncio.Future[T], clock: Callable[[], float], until: float) -> bool:
    """True if it is through."""
    try:
        while True:
            if next(pieces) or clock() >= until:
                return False
    except StopIteration as stop:
        if not end.done():
            end.set_result(stop.value)
    except (Exception, asyncio.CancelledError) as error:
        if not end.done():
            end.set_exception(error)
    return True
