"""Waits for a disk end, whatever becomes of the work in the thread."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from kafkad.errors import StorageError
from kafkad.log.durability import SEGMENTS_AT_ONCE
from kafkad.log.files import may_pass
from kafkad.log.log import Log
from kafkad.replica.disk_threads import DiskThreads
from kafkad.replica.durable import Durable
from tests.fakes import turns
from tests.log.conftest import Home, append, batch, fill

Outcome = StorageError | None


class Waiting:
    """Those who wait for the fsyncs of one log, and what they are told."""

    def __init__(self, home: Home, threads: ThreadPoolExecutor) -> None:
        self.log: Log = home.open()
        self.durable = Durable(home.files, DiskThreads({}, threads))
        self.failures: list[StorageError] = []
        self.durable.on_failure = self.failures.append

    def outcomes(self, count: int) -> list[Outcome]:
        """Of appends of which each waits for the disk."""

        async def scenario() -> list[Outcome]:
            told: list[Outcome] = []
            all_told = asyncio.Event()

            def done(error: Outcome) -> None:
                told.append(error)
                if len(told) == count:
                    all_told.set()

            for _ in range(count):
                append(self.log, batch())
                self.durable.sync(self.log, done)
            await asyncio.wait_for(all_told.wait(), 20)
            return told

        return asyncio.run(scenario())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "logs" / "t-0")
    home.directory.parent.mkdir()
    return home


@pytest.fixture
def waiting(home: Home) -> Iterator[Waiting]:
    with ThreadPoolExecutor(1) as threads:
        yield Waiting(home, threads)


def test_files_that_cannot_be_opened_for_an_fsync_are_a_failure_of_the_disk_also_if_nobody_waits_for_it_any_more(
    waiting: Waiting, home: Home
) -> None:
    append(waiting.log, batch())
    waiting.log.segments.active.give_up_files()
    home.files.fail("open", errno.EIO)
    waiting.durable.sync(waiting.log, lambda error: None)
    [failure] = waiting.failures
    assert not may_pass(failure)


@pytest.mark.parametrize("deleted", [False, True])
def test_a_log_of_many_segments_is_flushed_in_pieces(waiting: Waiting, home: Home, deleted: bool) -> None:
    """Others get the loop, and the threads, in between."""
    log = home.open(segment_bytes=300)
    fill(log, 2 * SEGMENTS_AT_ONCE + 5)
    reached: list[int] = []

    def flushed() -> None:
        reached.append(log.flushed_until)
        log.retired = deleted

    log.on_flushed = flushed
    asyncio.run(waiting.durable.flush(log))
    assert reached == ([SEGMENTS_AT_ONCE] if deleted else [SEGMENTS_AT_ONCE, 2 * SEGMENTS_AT_ONCE, log.end_offset])
    assert log.durability.recovery_point == reached[-1]


def broken(*arguments: object) -> None:
    raise ValueError("a mistake")


def test_an_internal_error_in_a_thread_is_told_to_all_who_wait_and_ends_nothing(
    waiting: Waiting, home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(home.files, "sync", broken)
        refused = waiting.outcomes(3)
    for error in refused:
        assert isinstance(error, StorageError)
        assert may_pass(error)
    assert [record.message for record in caplog.records] == ["internal error in a thread that waits for a disk"]
    assert not waiting.failures
    assert waiting.outcomes(3) == [None] * 3


def test_who_wants_a_log_on_the_disk_that_is_held_waits(waiting: Waiting) -> None:
    log, durable = waiting.log, waiting.durable

    async def scenario() -> None:
        append(log, batch())
        hold = durable.hold(log)
        waits = [asyncio.ensure_future(durable.flush(log)), durable.synced(log)]
        await turns()
        assert not any(each.done() for each in waits)
        assert log.flushed_until == 0
        durable.let_go(hold)
        await asyncio.wait_for(asyncio.gather(*waits), 20)

    asyncio.run(scenario())
    assert log.flushed_until == 1


def test_a_hold_that_another_has_taken_the_place_of_lets_nothing_go(waiting: Waiting) -> None:
    """Who waited for the one waits for the other."""
    log, durable = waiting.log, waiting.durable

    async def scenario() -> None:
        append(log, batch())
        earlier = durable.hold(log)
        waits = durable.synced(log)
        later = durable.hold(log)
        durable.let_go(earlier)
        await turns()
        assert (durable.holds(earlier), durable.holds(later), waits.done()) == (False, True, False)
        durable.let_go(later)
        await asyncio.wait_for(waits, 20)

    asyncio.run(scenario())


def test_an_error_of_one_who_waited_for_a_hold_takes_nothing_from_others_and_from_who_lets_go(
    waiting: Waiting,
) -> None:
    log, durable = waiting.log, waiting.durable
    told: list[Outcome] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        hold = durable.hold(log)
        durable.sync(log, broken)
        durable.sync(log, told.append)
        log.durability.placed = True  # so that there is nothing to wait for
        durable.let_go(hold)
        await turns()

    asyncio.run(scenario())
    assert told == [None]


@pytest.mark.parametrize("promises", [False, True])
def test_who_promises_a_client_that_a_log_is_flushed_has_its_copy_flushed_that_replaces_it_meanwhile(
    waiting: Waiting, home: Home, promises: bool
) -> None:
    """Nobody else: the copy may be on a disk that is slow, or hangs."""
    log, durable = waiting.log, waiting.durable
    copy = Home(home.directory.parent / "u-0", home.files).open()

    async def scenario() -> None:
        for each in (log, copy):
            append(each, batch())
        hold = durable.hold(log)
        flushed = asyncio.ensure_future((durable.flush_or_copy if promises else durable.flush)(log))
        await turns()
        log.retired, log.replaced_by = True, copy
        durable.let_go(hold)
        await asyncio.wait_for(flushed, 20)

    asyncio.run(scenario())
    assert (log.flushed_until, copy.flushed_until) == (0, int(promises))
    copy.close()


@pytest.mark.parametrize("code", [None, errno.EIO])
def test_who_gives_up_waiting_for_an_fsync_is_told_nothing(waiting: Waiting, home: Home, code: int | None) -> None:
    if code is not None:
        home.files.fail("sync", code)

    async def scenario() -> None:
        append(waiting.log, batch())
        given_up, waits = waiting.durable.synced(waiting.log), waiting.durable.synced(waiting.log)
        given_up.cancel()
        await asyncio.wait([waits], timeout=20)
        assert isinstance(waits.exception(), StorageError if code else type(None))

    asyncio.run(scenario())


def test_who_waits_for_a_slow_disk_keeps_nobody_from_another(home: Home) -> None:
    is_through = threading.Event()

    async def scenario() -> None:
        slow = [asyncio.ensure_future(durable.run("/slow", partial(is_through.wait, 20))) for _ in range(5)]
        assert await asyncio.wait_for(durable.run("/fast", lambda: "done"), 20) == "done"
        assert not any(each.done() for each in slow)
        is_through.set()
        assert all(await asyncio.gather(*slow))

    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        durable = Durable(home.files, DiskThreads({"/slow": first, "/fast": second}, first))
        asyncio.run(scenario())


def test_an_internal_error_in_a_thread_is_one_that_passes(waiting: Waiting) -> None:
    def fail() -> None:
        raise ZeroDivisionError("ours")

    async def scenario() -> None:
        for work in (waiting.durable.run("", fail), waiting.durable.in_thread("", fail, lambda error: None)):
            with pytest.raises(StorageError, match="ours") as failure:
                await work
            assert may_pass(failure.value)

    asyncio.run(scenario())
    assert waiting.failures == []
