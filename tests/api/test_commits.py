"""A request that waits for fsyncs: what it hears, and when."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkad.api.commits import Commits, Failures
from kafkad.errors import ErrorCode, KafkaError, StorageError


class Disks:
    """Stands for `Durable`: each log is on the disk when the test says so."""

    def __init__(self) -> None:
        self.waiting: dict[str, Any] = {}
        self.there_already: set[str] = set()

    def commit(self, log: Any, on_done: Any) -> None:
        if log in self.there_already:
            on_done(None)
        else:
            self.waiting[log] = on_done


def test_it_ends_once_with_the_last_of_its_logs() -> None:
    async def scenario() -> None:
        disks = Disks()
        ends: list[Failures] = []
        logs: Any = {0: "a", 2: "b", 3: "c"}
        disks.there_already.add("c")
        commits = Commits(disks)  # type: ignore[arg-type]
        assert commits.begin(logs, 1000, ends.append)
        disks.waiting["b"](StorageError("/disk", "it is gone"))
        assert not ends
        assert len(commits) == 1
        disks.waiting["a"](None)
        assert [list(failures) for failures in ends] == [[2]]
        assert len(commits) == 0

    asyncio.run(scenario())


def test_what_is_on_the_disk_already_needs_no_wait() -> None:
    async def scenario() -> None:
        disks = Disks()
        disks.there_already.add("a")
        logs: Any = {0: "a"}
        commits = Commits(disks)  # type: ignore[arg-type]
        assert not commits.begin(logs, 1000, _never)
        assert len(commits) == 0

    asyncio.run(scenario())


def test_a_request_that_wrote_nothing_is_forgotten_at_once() -> None:
    """Every produce through the worker begins one: kept for ever, they were 2 KB each, and a stop waited for them."""

    async def scenario() -> None:
        commits = Commits(Disks())  # type: ignore[arg-type]
        assert not commits.begin({}, 30_000, _never)
        assert len(commits) == 0

    asyncio.run(scenario())


def test_one_that_takes_too_long_is_told_so_and_what_comes_later_is_ignored() -> None:
    async def scenario() -> None:
        disks = Disks()
        ended: asyncio.Future[Failures] = asyncio.get_running_loop().create_future()
        logs: Any = {0: "a", 1: "b"}
        Commits(disks).begin(logs, 1, ended.set_result)  # type: ignore[arg-type]
        disks.waiting["a"](None)
        failures = await ended
        assert {at: error.code for at, error in failures.items()} == {1: ErrorCode.REQUEST_TIMED_OUT}
        disks.waiting["b"](KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))

    asyncio.run(scenario())


def _never(failures: Failures) -> None:
    raise AssertionError(failures)
