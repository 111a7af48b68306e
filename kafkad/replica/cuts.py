"""Has the disks know of logs that were cut back, before anything is written over what was cut off.

Those are in `LogManager.cut`. Their partitions are not fetched meanwhile. An append that comes all the same, by a
leader that was cut a moment ago, waits for the disk itself, on the event loop (`Log.start_settling`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field

from kafkad.errors import StorageError
from kafkad.log.log import Log
from kafkad.log.manager import LogManager
from kafkad.replica.durable import Durable

_AT_ONCE = 2
"""In each log directory: an election may cut thousands of logs, and fsyncs for which others wait find a thread between
those for them."""
_REST_MS = 1_000
"""From what a disk has refused to the next try there."""


@dataclass(slots=True, eq=False)
class _Disk:
    """Of one log directory."""

    waiting: deque[Log] = field(default_factory=deque)
    running: int = 0
    rests_until_ms: float = 0


class Cuts:
    def __init__(self, logs: LogManager, durable: Durable) -> None:
        self._logs = logs
        self._durable = durable
        self._ends: dict[Log, asyncio.Future[None]] = {}
        self._disks: dict[str, _Disk] = defaultdict(_Disk)
        self._stopped = False

    def begin(self) -> None:
        """With all logs that were cut back, but those whose disk has just refused it."""
        if self._stopped:
            return
        for log in self._logs.cut:
            disk = self._disks[log.log_directory]
            if log not in self._ends and not self._rests(disk):
                self._ends[log] = asyncio.get_running_loop().create_future()
                disk.waiting.append(log)
        for disk in self._disks.values():
            self._start_next(disk)

    def end_of(self, log: Log) -> asyncio.Future[None] | None:
        """Done when the disk knows, or has refused it; None if nothing is under way."""
        return self._ends.get(log)

    def _start_next(self, disk: _Disk) -> None:
        while disk.waiting and disk.running < _AT_ONCE:
            self._start(disk, disk.waiting.popleft())

    def _start(self, disk: _Disk, log: Log) -> None:
        if self._rests(disk):
            self._end(log)
            return
        try:
            settling = log.start_settling()
        except StorageError as error:
            self._durable.on_failure(error)
            self._ended(disk, log, error)
            return
        disk.running += 1

        def done(error: StorageError | None) -> None:
            disk.running -= 1
            if error is None:
                log.end_settling(settling)
            self._ended(disk, log, error)
            self._start_next(disk)

        self._durable.in_thread(log.log_directory, settling.wait, done)

    def stop(self) -> None:
        """What is left to do an append does, or the next start."""
        self._stopped = True
        for disk in self._disks.values():
            while disk.waiting:
                self._end(disk.waiting.popleft())

    def _rests(self, disk: _Disk) -> bool:
        return disk.rests_until_ms > self._logs.clock.monotonic_ms()

    def _ended(self, disk: _Disk, log: Log, error: StorageError | None) -> None:
        if error is not None:
            disk.rests_until_ms = self._logs.clock.monotonic_ms() + _REST_MS
        self._end(log)

    def _end(self, log: Log) -> None:
        end = self._ends.pop(log)
        if not end.done():
            end.set_result(None)
