"""Group commit: who shares which fsync, and who hears of a failure."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable

import pytest

from kafkad.errors import StorageError
from kafkad.log.fsync import OnDone, SharedFsync
from kafkad.log.log import Log
from tests.log.conftest import Home, append, batch

Outcome = StorageError | None


class Threads:
    """Runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], OnDone]] = []

    def run(self, directory: str, work: Callable[[], None], done: OnDone) -> None:
        self.waiting.append((work, done))

    def finish_one(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            work()
        except StorageError as error:
            done(error)
        else:
            done(None)


def synced(home: Home) -> list[str]:
    return [os.path.basename(path) for path in home.files.synced]


def two_waiting(home: Home) -> tuple[Log, Threads, list[Outcome]]:
    """For the disk of a log, each behind a record of its own; what they are told comes into the list."""
    log, threads = home.open(), Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    done: list[Outcome] = []
    for _ in range(2):
        append(log, batch())
        group.fsync(log, done.append)
    return log, threads, done


def test_all_who_come_during_an_fsync_share_the_next(home: Home) -> None:
    log = home.open()
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    done: list[str] = []
    for name in ("first", "second", "third", "fourth"):
        append(log, batch())
        group.fsync(log, lambda error, name=name: done.append(name))  # type: ignore[misc]
    assert len(threads.waiting) == 1
    threads.finish_one()
    assert done == ["first"]
    assert len(threads.waiting) == 1
    threads.finish_one()
    assert done == ["first", "second", "third", "fourth"]
    assert threads.waiting == []


def test_what_a_shared_fsync_has_flushed_is_known(home: Home) -> None:
    log = home.open()
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    append(log, batch())
    group.fsync(log, lambda error: None)
    append(log, batch())
    assert log.flushed_until == 0
    threads.finish_one()
    assert log.flushed_until == 1


def test_only_records_and_new_names_are_waited_for(home: Home) -> None:
    log = home.open()
    append(log, batch())
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    home.files.synced.clear()
    group.fsync(log, lambda error: None)
    threads.finish_one()
    assert synced(home) == ["00000000000000000000.log", "t-0", "logs"]
    home.files.synced.clear()
    append(log, batch())
    group.fsync(log, lambda error: None)
    threads.finish_one()
    assert synced(home) == ["00000000000000000000.log"]
    home.files.synced.clear()
    log.roll()
    append(log, batch())
    group.fsync(log, lambda error: None)
    threads.finish_one()
    assert synced(home) == ["00000000000000000002.log", "t-0"]
    assert log.durability.recovery_point == 0


def test_segments_that_are_closed_are_opened_for_their_fsync_only(home: Home) -> None:
    log = home.open(segment_bytes=150)
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    for count in (3, 20):
        for _ in range(count):
            append(log, batch(bytes(60)))
        log.let_go_of_files()
        home.files.synced.clear()
        group.fsync(log, lambda error: None)
        assert not any(segment.open_files for segment in log.segments[:-1])
        threads.finish_one()
        assert sum(name.endswith(".log") for name in synced(home)) == count
        assert log.flushed_until == log.end_offset


@pytest.mark.parametrize("error", [None, errno.EIO])
def test_who_waits_for_a_log_that_its_copy_replaces_meanwhile_waits_for_that(home: Home, error: int | None) -> None:
    """Whatever the disk says of the one before."""
    log = home.open()
    copy = Home(home.directory.parent / "u-0", home.files).open()
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    done: list[Outcome] = []
    for _ in range(2):
        append(log, batch())
        append(copy, batch())
        group.fsync(log, done.append)
    log.retired, log.replaced_by = True, copy
    if error is not None:
        home.files.fail("sync", error)
    threads.finish_one()
    assert done == []
    threads.finish_one()
    assert len(done) == 1, "the others join the next"
    threads.finish_one()
    assert done == [None, None]
    assert copy.flushed_until == 2
    append(copy, batch())
    group.fsync(log, done.append)
    threads.finish_one()
    assert (len(done), copy.flushed_until) == (3, 3)
    copy.close()


def test_who_waits_for_a_log_that_is_renamed_meanwhile_waits_for_its_new_name(home: Home) -> None:
    log, threads, done = two_waiting(home)
    log.rename(str(home.directory.parent / "u-0"))
    threads.finish_one()
    assert (done, log.durability.placed, log.flushed_until) == ([], False, 0)
    threads.finish_one()
    assert (done, log.durability.placed) == ([None], True)
    threads.finish_one()
    assert (done, log.flushed_until) == ([None, None], 2)
    log.close()


def test_a_log_whose_name_may_not_be_on_the_disk_is_not_there_already(home: Home) -> None:
    log = home.open()
    append(log, batch())
    log.flush()
    log.rename(str(home.directory.parent / "u-0"))
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    done: list[Outcome] = []
    home.files.synced.clear()
    group.fsync(log, done.append)
    assert done == []
    threads.finish_one()
    assert done == [None]
    assert "logs" in synced(home)


def test_what_is_on_the_disk_already_is_not_waited_for(home: Home) -> None:
    log = home.open()
    append(log, batch())
    log.flush()
    done: list[Outcome] = []
    SharedFsync(home.files, Threads().run, lambda error: None).fsync(log, done.append)
    assert done == [None]


def test_a_topic_that_is_deleted_during_an_fsync_is_no_failure_of_the_disk(home: Home) -> None:
    log, threads, done = two_waiting(home)
    log.retired = True
    log.close(clean=False)
    os.rename(log.directory, f"{log.directory}.gone-delete")
    threads.finish_one()
    assert done == [None, None]
    assert not threads.waiting


def test_files_that_cannot_be_opened_again_are_a_failure_that_all_are_told(home: Home) -> None:
    log = home.open()
    append(log, batch())
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    done: list[Outcome] = []
    group.fsync(log, lambda error: None)
    threads.finish_one()
    for _ in range(2):
        append(log, batch())
        group.fsync(log, done.append)
    log.close(clean=False)
    home.files.fail("open", errno.EIO, after=0, once=False)
    threads.finish_one()
    home.files.heal()
    assert sorted(isinstance(error, StorageError) for error in done) == [False, True]
    group.fsync(log, done.append)
    threads.finish_one()
    assert done[2:] == [None]


def test_names_of_a_topic_made_anew_are_waited_for(home: Home) -> None:
    log = home.open()
    threads = Threads()
    group = SharedFsync(home.files, threads.run, lambda error: None)
    for _ in range(2):
        append(log, batch())
        home.files.synced.clear()
        group.fsync(log, lambda error: None)
        threads.finish_one()
        assert "t-0" in synced(home)
        log.close(clean=False)
        shutil.rmtree(log.directory)
        log = home.open()


def test_a_failure_is_told_to_all_who_wait(home: Home) -> None:
    _, threads, done = two_waiting(home)
    home.files.fail("sync", errno.EIO)
    threads.finish_one()
    assert [isinstance(error, StorageError) for error in done] == [True, True]
    assert threads.waiting == []
