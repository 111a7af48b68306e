"""Simulated time and processes: an event loop for each process, and one scheduler that runs all of them by a seed.

One step is one callback of one process. Which process goes next is drawn; the callbacks of a process keep their order.
Time moves a little with every step, and jumps to the next timer when nobody has anything to do.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any
from unittest import mock

STEP_S = 10e-6
_DISK_S = 0.002
_KEPT_LINES = 400
_EPOCH_MS = 1_700_000_000_000


class World:
    """The scheduler. `now` is in seconds since the beginning."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.steps = 0
        self.lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.troubles: list[str] = []
        """Errors inside a process that it should never have."""
        self.burying = False
        """A process is being put away; what it says as its tasks are closed, it did not say."""
        self._digest = blake2b(digest_size=16)
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self._loops: list[ProcessLoop] = []
        self.outside = self.process("outside")

    def process(self, name: str) -> ProcessLoop:
        loop = ProcessLoop(self, name)
        self._loops.append(loop)
        return loop

    def forget(self, loop: ProcessLoop) -> None:
        self._loops.remove(loop)

    # -- trace -----------------------------------------------------------------------------------------------------

    def note(self, *what: object) -> None:
        """One event of the trace; nothing in it may differ between two runs of a seed."""
        line = f"{self.now:10.6f} {' '.join(map(str, what))}"
        self._digest.update(line.encode())
        self.lines.append(line)

    @property
    def trace_hash(self) -> str:
        return self._digest.hexdigest()

    # -- time ------------------------------------------------------------------------------------------------------

    def at(self, when: float, handle: asyncio.TimerHandle) -> None:
        heappush(self._timers, (when, next(self._order), handle))

    def after(self, seconds: float, action: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        """Calls something that belongs to no process: a delivery, a fault."""
        return self.outside.call_later(seconds, action, *args)

    def step(self) -> bool:
        """Run one callback. False when nothing will ever happen any more."""
        while True:
            self._expire()
            runnable = [loop for loop in self._loops if loop.ready and not loop.paused]
            if runnable:
                break
            if not self._timers:
                return False
            self.now = max(self.now, self._timers[0][0])
        loop = runnable[0] if len(runnable) == 1 else self.random.choice(runnable)
        self.steps += 1
        self.now += STEP_S
        loop.run_one()
        return True

    def _expire(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            handle = heappop(timers)[2]
            if not handle.cancelled():
                handle._loop.ready.append(handle)  # type: ignore[attr-defined]

    def run_for(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        end = self.now + seconds
        while self.now < end and self.step():
            check()

    # -- what processes must not take from the real machine ----------------------------------------------------------

    @contextmanager
    def governed(self) -> Iterator[None]:
        """Randomness of the operating system and the clock of `kafkad.turns` come from here."""
        with (
            mock.patch.object(os, "urandom", lambda n: self.random.randbytes(n)),
            mock.patch("kafkad.turns.monotonic", lambda: self.now),
        ):
            yield


class ProcessClock:
    """A Clock; the wall clock of each process is off by a little."""

    def __init__(self, world: World, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return _EPOCH_MS + int(self._world.now * 1000) + self.skew_ms

    def monotonic_ms(self) -> float:
        return self._world.now * 1000


class ProcessLoop(asyncio.AbstractEventLoop):
    """As much of an event loop as a broker uses. `die` is SIGKILL: nothing of the process ever runs again."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.ready: deque[asyncio.Handle] = deque()
        self.paused = False
        self.dead = False
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._readers: dict[int, tuple[Callable[..., None], tuple[Any, ...]]] = {}
        self._pollable: dict[int, Callable[[], bool]] = {}
        self._polled: set[int] = set()

    def run_one(self) -> None:
        handle = self.ready.popleft()
        if handle.cancelled():
            return
        with self.running():
            handle._run()

    @contextmanager
    def running(self) -> Iterator[None]:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        with self.running():
            return self.create_task(coroutine)

    def die(self) -> None:
        """Tasks are closed where they stand, in the order in which they were made; so are those which that begins."""
        if self.dead:
            return
        self.dead = True
        self.world.burying = True
        self.world.forget(self)
        self.ready.clear()
        self._readers.clear()
        with self.running():
            while self._tasks:
                task = next(iter(self._tasks))
                del self._tasks[task]
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(RuntimeError, ValueError):  # it waits in a `finally`: a dead process waits for nothing
                    task.get_coro().close()  # type: ignore[union-attr]
        self.world.burying = False
        self.ready.clear()

    # -- AbstractEventLoop -------------------------------------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.dead:
            self.world.at(when, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def time(self) -> float:
        return self.world.now

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name or "task", context=context)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """Done by a disk that takes its time; no thread."""
        end = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not end.done():
                    end.set_exception(error)
            else:
                if not end.done():
                    end.set_result(result)

        self.call_later(self.world.random.expovariate(1 / _DISK_S), work)
        return end

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.world.troubles.append(f"{self.name}: {context.get('message')}: {context.get('exception')!r}")

    # -- sockets: readers are called as long as there is something to read -------------------------------------------

    def made_pollable(self, fd: int, has_input: Callable[[], bool]) -> None:
        self._pollable[fd] = has_input

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        self._readers[fd] = callback, args
        self.poll(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> None:
        raise NotImplementedError("simulated sockets take everything at once")

    def remove_writer(self, fd: Any) -> bool:
        return False

    def poll(self, fd: int) -> None:
        """There may be something to read."""
        if fd not in self._polled and fd in self._readers and self._pollable[fd]():
            self._polled.add(fd)
            self.call_soon(self._read, fd)

    def unpollable(self, fd: int) -> None:
        self._pollable.pop(fd, None)
        self._readers.pop(fd, None)

    def _read(self, fd: int) -> None:
        self._polled.discard(fd)
        reader = self._readers.get(fd)
        if reader is None or not self._pollable[fd]():
            return
        try:
            reader[0](*reader[1])
        finally:
            if fd in self._pollable:
                self.poll(fd)
