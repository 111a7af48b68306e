"""Shared fsyncs for `kafkad.acks.fsync`: all who wait for the same log share one.

While one is running, everyone who comes joins the next; so nobody waits for more than two, and a log has one at a time.
Only the records are waited for, and once what makes them be found: the names of a new partition and of a new segment.
Indexes can be rebuilt, and the recovery point, which vouches for them too, stays.

Who waits for a log that is replaced by its copy in another log directory meanwhile waits for that one: the next start
takes it.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkad.errors import StorageError
from kafkad.log.files import Files, disk_errors
from kafkad.log.flush import sync_place
from kafkad.log.indexed import LOG
from kafkad.log.log import Log

OnDone = Callable[[StorageError | None], None]
RunInThread = Callable[[str, Callable[[], None], OnDone], object]
"""Runs the first call in a thread that waits for this log directory, and then the second on the loop, with the
StorageError that the first raised or None."""


class SharedFsync:
    """On the loop. A failed fsync fails all who waited for it; the caller takes its directory offline."""

    def __init__(self, files: Files, run_in_thread: RunInThread, on_failure: Callable[[StorageError], None]) -> None:
        """`on_failure` is told of files that cannot be opened for it; the rest is known to who runs the threads."""
        self._files = files
        self._run_in_thread = run_in_thread
        self._on_failure = on_failure
        self._running: dict[Log, list[OnDone]] = {}
        self._next: dict[Log, list[OnDone]] = {}

    def fsync(self, log: Log, on_done: OnDone) -> None:
        """Call `on_done` once everything that is in `log` now is on the disk; at once if it is there already."""
        if log in self._running:
            self._next.setdefault(log, []).append(on_done)
        elif log.durability.placed and log.durability.recovery_point >= log.end_offset:
            on_done(None)
        else:
            self._start(log, [on_done])

    def _start(self, log: Log, waiting: list[OnDone]) -> None:
        self._running[log] = waiting
        if log.retired:
            self._finish(log, None)
            return
        directory, durability = log.directory, log.durability
        *closed, active = log.segments.starting_at(log.flushed_until)
        paths = [segment.path(LOG) for segment in closed]
        try:
            with disk_errors(directory, "flushing"):
                file = active.file
        except StorageError as error:
            self._finish(log, error)
            self._on_failure(error)
            return
        base, upto, history = active.base, log.end_offset, log.history
        new_name, new_place = durability.durable_name != base, not durability.placed

        def sync() -> None:
            with disk_errors(directory, "flushing"):
                self._files.sync_for_good(file.fd)
                for path in paths:
                    self._files.sync_path(path)
                if new_name or paths:
                    self._files.sync_names(directory)
                if new_place:
                    sync_place(self._files, directory)

        def done(error: StorageError | None) -> None:
            if error is None and log.directory != directory:
                self._start(log, waiting)  # it was renamed meanwhile: not all may have been found
                return
            if error is None:
                _has_reached_disk(log, base, upto, history)
            self._finish(log, error)

        self._run_in_thread(log.log_directory, sync, done)

    def _finish(self, log: Log, error: StorageError | None) -> None:
        waiting = self._running.pop(log)
        late = self._next.pop(log, None)
        if log.replaced_by is not None:
            for on_done in (*waiting, *(late or ())):
                self.fsync(log.replaced_by, on_done)
            return
        if late and error is None:
            self._start(log, late)
        elif late:
            waiting += late
        for on_done in waiting:
            on_done(error)


def _has_reached_disk(log: Log, base: int, upto: int, history: int) -> None:
    """The records before `upto`, the last of which are in the segment with this base, and what makes them be found."""
    if history == log.history:
        log.durability.durable_name = base
    log.durability.placed = True
    log.records_flushed(upto, history)
