"""Fakes that behave: a clock that a test moves, turns that end at once, and a disk or a system that fails when a test
says so."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from threading import Thread
from typing import Any

import pytest

from kafkad.errors import ErrorCode, StorageError
from kafkad.log.files import Files, LogFile
from kafkad.log.fsync import OnDone
from kafkad.log.log import Log
from kafkad.model import BrokerInfo
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable


class FakeClock:
    """Stands still until it is moved."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic_ms += ms

    def jump(self, ms: int) -> None:
        """The time of day is set anew."""
        self._now_ms += ms


async def turns(count: int = 20) -> None:
    """So many turns of the loop, in which others do what they can without the clock.

    Few are enough, but work that took long on a busy machine goes on in a later one.
    """
    for _ in range(count):
        await asyncio.sleep(0)


def give_way_each_time(patch: pytest.MonkeyPatch) -> None:
    """Every turn of long work is over at once."""
    for name in ("TURN_S", "LEAST_S", "_AT_ONCE_S"):
        patch.setattr(f"kafkad.turns.{name}", -1.0)


def no_more_threads(patch: pytest.MonkeyPatch, left: int = 0) -> None:
    """The system starts so many, and then none."""
    start = Thread.start

    def start_or_refuse(thread: Thread) -> None:
        nonlocal left
        if left == 0:
            raise RuntimeError("can't start new thread")
        left -= 1
        start(thread)

    patch.setattr(Thread, "start", start_or_refuse)


def fails_once(patch: pytest.MonkeyPatch, owner: object, name: str, error: Exception) -> None:
    """The first call of this method of an object, or of all of a class."""
    method, errors = getattr(owner, name), [error]

    def fail_or_do(*arguments: Any, **options: Any) -> Any:
        if errors:
            raise errors.pop()
        return method(*arguments, **options)

    patch.setattr(owner, name, fail_or_do)


class FaultyFiles(Files):
    """A real disk until told otherwise.

    `fail(operation, error, after=n)` makes the operation fail from the n-th call on, once or for good; a torn write
    (to a log) puts its first bytes on the disk and then fails, a short one says how few it wrote. `count` has the
    calls so far. An open of a file that is not there yet is a "create", too.
    """

    def __init__(self) -> None:
        self._faults: dict[str, tuple[int, Callable[[], OSError], bool]] = {}
        self._torn: int | None = None
        self._short: int | None = None
        self.count: dict[str, int] = {}
        self.synced: list[str] = []

    def fail(self, operation: str, code: int = errno.EIO, *, after: int = 0, once: bool = True) -> None:
        self._faults[operation] = (after, lambda: OSError(code, os.strerror(code)), once)

    def heal(self) -> None:
        self._faults.clear()
        self._torn = self._short = None

    def tear_next_write(self, kept: int) -> None:
        self._torn = kept

    def shorten_next_write(self, kept: int) -> None:
        self._short = kept

    def _meet(self, operation: str) -> None:
        self.count[operation] = self.count.get(operation, 0) + 1
        fault = self._faults.get(operation)
        if fault is None:
            return
        after, error, once = fault
        if after > 0:
            self._faults[operation] = (after - 1, error, once)
            return
        if once:
            del self._faults[operation]
        raise error()

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        self._meet("open")
        if flags & os.O_CREAT and not os.path.exists(path):
            self._meet("create")
        return os.open(path, flags, mode)

    def pwrite(self, fd: int, data: bytes | memoryview, at: int) -> int:  # type: ignore[override]
        of_log = os.readlink(f"/proc/self/fd/{fd}").endswith(".log")
        if self._torn is not None and of_log:
            os.pwrite(fd, data[: self._torn], at)
            self._torn = None
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self._short is not None and of_log:
            kept, self._short = self._short, None
            return os.pwrite(fd, data[:kept], at)
        self._meet("pwrite")
        return os.pwrite(fd, data, at)

    def pread(self, fd: int, length: int, at: int) -> bytes:  # type: ignore[override]
        self._meet("pread")
        return os.pread(fd, length, at)

    def truncate(self, fd: int, length: int) -> None:  # type: ignore[override]
        self._meet("truncate")
        os.ftruncate(fd, length)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        self._meet("rename")
        os.replace(source, target)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        self._meet("unlink")
        os.unlink(path)

    def sync(self, fd: int) -> None:  # type: ignore[override]
        self._meet("sync")
        self.synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        os.fdatasync(fd)


class Died(BaseException):
    """The process is gone, between two operations on files."""


class MortalFiles(Files):
    """A real disk under a process that dies before its n-th change of it."""

    def __init__(self, lives: int) -> None:
        self.lives = lives

    def _live(self) -> None:
        if self.lives <= 0:
            raise Died
        self.lives -= 1

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        if flags & (os.O_CREAT | os.O_TRUNC):
            self._live()
        return os.open(path, flags, mode)

    def pwrite(self, fd: int, data: bytes | memoryview, at: int) -> int:  # type: ignore[override]
        self._live()
        return os.pwrite(fd, data, at)

    def truncate(self, fd: int, length: int) -> None:  # type: ignore[override]
        self._live()
        os.ftruncate(fd, length)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        self._live()
        os.replace(source, target)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        self._live()
        os.unlink(path)


def read_slice(file: LogFile, position: int, length: int) -> bytes:
    """The bytes that a consumer would be sent."""
    return os.pread(file.fd, length, position)


class HeldDisk:
    """A `Durable` whose fsyncs end, and whose threads do their work, when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[OnDone] = []
        self.directories: set[str] = set()
        """All whose threads have been given work."""

    def sync(self, log: Log, on_done: OnDone) -> None:
        self.waiting.append(on_done)

    def in_thread(self, directory: str, work: Callable[[], None], on_done: OnDone) -> None:
        def end(error: StorageError | None) -> None:
            if error is None:
                work()
            on_done(error)

        self.directories.add(directory)
        self.waiting.append(end)

    def finish(self, error: StorageError | None = None) -> None:
        self.waiting.pop(0)(error)


def before_disk(patch: pytest.MonkeyPatch, directory: str, wait: Callable[[], Awaitable[object]]) -> None:
    """Who waits for the disk of this log directory waits for this first."""
    begin = Durable._begin

    def begin_later(durable: Durable, of: str, work: Callable[[], object]) -> asyncio.Future[object]:
        async def later() -> object:
            if of == directory:
                await wait()
            return await begin(durable, of, work)

        return asyncio.ensure_future(later())

    patch.setattr(Durable, "_begin", begin_later)


def hangs(patch: pytest.MonkeyPatch, directory: str) -> asyncio.Event:
    """The disk of this log directory, until the event is set: nobody who waits for it goes on."""
    goes_on = asyncio.Event()
    before_disk(patch, directory, goes_on.wait)
    return goes_on


class FakeTransactions:
    """A coordinator of transactions without a log: what each id has open, and what it is asked.

    While `holding`, answers wait until `let_go`.
    """

    def __init__(self) -> None:
        self.producers: dict[str, tuple[int, int]] = {}
        self.open: dict[str, set[TopicPartition]] = {}
        self.refuses = ErrorCode.NONE
        """Everything, with this error."""
        self.asked: list[tuple[str, list[TopicPartition], bool]] = []
        self.clients: set[str] = set()
        self.holding = False
        self.answers_at_once = False
        self.let_in: list[tuple[list[TopicPartition], bool]] = []
        self._held: list[Callable[[], None]] = []

    def find(self, key: str) -> BrokerInfo:
        return BrokerInfo(id=1, endpoints=())

    def begin(self, name: str, producer_id: int, epoch: int, *partitions: TopicPartition) -> None:
        self.producers[name] = producer_id, epoch
        self.open[name] = set(partitions)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        version: int,
        done: Callable[[Mapping[TopicPartition, ErrorCode]], None],
        client: str,
    ) -> None:
        self.clients.add(client)
        assert version == (0 if verify_only else 2)
        self.asked.append((transactional_id, list(partitions), verify_only))
        codes = {tp: self._code(transactional_id, producer_id, epoch, tp, verify_only) for tp in partitions}
        if self.holding:
            self._held.append(partial(done, codes))
        else:
            done(codes)

    def lets_in(
        self,
        name: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
        client: str,
    ) -> bool:
        self.clients.add(client)
        if not self.answers_at_once or any(self._code(name, producer_id, epoch, tp, not adds) for tp in partitions):
            return False
        self.let_in.append((list(partitions), adds))
        return True

    def let_go(self) -> None:
        held, self._held = self._held, []
        for answer in held:
            answer()

    def _code(self, name: str, producer_id: int, epoch: int, tp: TopicPartition, verify_only: bool) -> ErrorCode:
        known = self.producers.get(name)
        if self.refuses:
            return self.refuses
        if known is None or known[0] != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known[1] != epoch:
            return ErrorCode.PRODUCER_FENCED
        if not verify_only:
            self.open[name].add(tp)
        return ErrorCode.NONE if tp in self.open[name] else ErrorCode.TRANSACTION_ABORTABLE
