"""Has the disks know of logs that were cut back, before anything is written over what was cut off.

Those are in `LogManager.cut`. Their partitions are not fetched meanwhile. An append that comes all the same, by a
leader that was cut a moment ago, waits for the disk itself, on the event loop (`Log.start_settling`).
"""

from __future__ import annotations

import asyncio
from collections import deque

from kafkad.errors import StorageError
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.replica.durable import Durable

_AT_ONCE = 2
"""An election may cut thousands of logs: fsyncs for which others wait find a thread between those for them."""
_REST_MS = 1_000
"""From what a disk has refused to the next try there."""


class Cuts:
    def __init__(self, logs: LogManager, durable: Durable) -> None:
        self._logs = logs
        self._durable = durable
        self._ends: dict[Log, asyncio.Future[None]] = {}
        self._waiting: deque[Log] = deque()
        self._running = 0
        self._stopped = False
        self._rests_until: dict[str, float] = {}
        """By log directory."""

    def begin(self) -> None:
        """With all logs that were cut back, but those whose disk has just refused it."""
        if self._stopped:
            return
        for log in self._logs.cut:
            if log not in self._ends and not self._rests(log):
                self._ends[log] = asyncio.get_running_loop().create_future()
                self._waiting.append(log)
        self._start_next()

    def end_of(self, log: Log) -> asyncio.Future[None] | None:
        """Done when the disk knows, or has refused it; None if nothing is under way."""
        return self._ends.get(log)

    def _start_next(self) -> None:
        while self._waiting and self._running < _AT_ONCE:
            self._start(self._waiting.popleft())

    def _start(self, log: Log) -> None:
        if self._rests(log):
            self._end(log)
            return
        try:
            settling = log.start_settling()
        except StorageError as error:
            self._durable.on_failure(error)
            self._ended(log, error)
            return
        self._running += 1

        def done(error: StorageError | None) -> None:
            self._running -= 1
            if error is None:
                log.end_settling(settling)
            self._ended(log, error)
            self._start_next()

        self._durable.in_thread(settling.wait, done)

    def stop(self) -> None:
        """What is left to do an append does, or the next start."""
        self._stopped = True
        while self._waiting:
            self._end(self._waiting.popleft())

    def _rests(self, log: Log) -> bool:
        return self._rests_until.get(_place(log), 0) > self._logs.clock.monotonic_ms()

    def _ended(self, log: Log, error: StorageError | None) -> None:
        if error is not None:
            self._rests_until[_place(log)] = self._logs.clock.monotonic_ms() + _REST_MS
        self._end(log)

    def _end(self, log: Log) -> None:
        end = self._ends.pop(log)
        if not end.done():
            end.set_result(None)


def _place(log: Log) -> str:
    return log.directory.rpartition("/")[0]
