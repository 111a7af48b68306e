"""A broker whose replicas move between its log directories, and what happens at a mark."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkad.config import LONG_MAX
from kafkad.errors import StorageError
from kafkad.log.log import Log
from kafkad.log.marks import MOVED, Mark
from kafkad.names import TopicPartition
from kafkad.replica.durable import Durable
from kafkad.timers import Timers, sleep
from kafkad.upkeep.moves import ReplicaMoves
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.fakes import FakeClock
from tests.one_broker import OneBroker

FIRST, SECOND, THIRD = ALL = [TopicPartition("t", partition) for partition in range(3)]
"""Each in the log directory of its name."""


class Broker:
    """Has a replica in each of its log directories, and moves them by a clock that stands still."""

    def __init__(self, directory: Path, *directories: str) -> None:
        self._broker = OneBroker(directory, directories=directories)
        self.replicas = self._broker.replicas
        self.durable = self._broker.durable
        self.directories = self._broker.directories
        self.first, self.second = self.directories[:2]
        self.clock, self._timers = FakeClock(), Timers()
        self.replicas.logs.clock = self.clock
        self._broker.create("t", len(directories))
        for tp, path in zip(ALL, self.directories, strict=False):
            for _ in range(5):
                self._broker.append(*tp, Record(0, 100, None, b"value"))
            assert self.home(tp) == path
        self.bytes_per_second = LONG_MAX
        self._moves = ReplicaMoves(self.replicas, self._broker.durable, self._timers, lambda: self.bytes_per_second)

    def home(self, tp: TopicPartition) -> str:
        return os.path.dirname(self.log(tp).directory)

    def log(self, tp: TopicPartition) -> Log:
        return self.replicas.get(*tp).log

    def create_more(self, topic: str, partitions: int) -> None:
        self._broker.create(topic, partitions)

    def append(self, tp: TopicPartition) -> None:
        batch = build_batch([Record(0, 100, None, b"value")], base_offset=0)
        view = memoryview(batch)
        self.replicas.leader(*tp).append(view, 0, len(view), BATCH_HEADER.unpack_from(view))

    def copied(self) -> dict[TopicPartition, int]:
        """The sizes of copies."""
        futures = [(tp, self.replicas.logs.future(tp)) for tp in (FIRST, SECOND)]
        return {tp: future.size for tp, future in futures if future is not None}

    def write_recovery_points(self, tp: TopicPartition) -> None:
        """Once the replica is on the disk."""
        self.log(tp).flush()
        for write in self.replicas.logs.collect_recovery_points():
            write.write()

    def move(self, tp: TopicPartition, path: str) -> None:
        async def start() -> None:
            self._moves.start(tp, path)

        self._broker.run(start())

    def ask_for_moves(self, paths: dict[TopicPartition, str], after_ms: int = 3_000) -> list[TopicPartition]:
        """As a client does, who is answered after that time; those that are refused."""
        refused = []

        async def ask() -> None:
            await self._moves.forget_predecessors(paths)
            for tp, path in paths.items():
                try:
                    self._moves.start(tp, path)
                except StorageError:
                    refused.append(tp)

        async def begin() -> asyncio.Task[None]:
            return asyncio.create_task(ask())

        asked = self._broker.run(begin())
        self.work()
        if after_ms:
            assert not asked.done()
            self.work(after_ms)
        assert asked.done()
        return refused

    def give_up(self, tp: TopicPartition) -> None:
        """Where the broker is at work."""
        self.ask_again(tp, self.home(tp))

    def ask_again(self, tp: TopicPartition, path: str) -> None:
        """Where the broker is at work."""
        self._moves.start(tp, path)

    def resume(self) -> None:
        """Go on with what is under way."""

        async def resume() -> None:
            self._moves.resume()

        self._broker.run(resume())

    def configure(self, name: str, value: str) -> None:
        change = AlterableConfig(name=name, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
        self._broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        self._broker.settle()

    def work(self, after_ms: int = 0) -> None:
        self._broker.work(self.clock, self._timers, after_ms)

    async def sleep(self, ms: float) -> None:
        await sleep(ms, self.clock, self._timers)

    def sync(self, tp: TopicPartition, told: list[StorageError | None]) -> None:
        """As one who waits for acks with `kafkad.acks.fsync`."""
        self.durable.sync(self.log(tp), told.append)

    def is_marked(self, tp: TopicPartition) -> bool:
        return os.path.exists(os.path.join(self.log(tp).directory, MOVED))

    def stop_moving(self) -> None:
        self._broker.run(self._moves.stop())

    def stop(self) -> None:
        self.stop_moving()
        self._broker.stop()


def when_marked(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Do this, on the loop, when the disk knows of a mark."""
    run = Durable.run

    async def marked(durable: Durable, directory: str, work: Callable[[], object]) -> object:
        result = await run(durable, directory, work)
        if getattr(work, "__func__", None) is Mark.sync:
            then()
        return result

    monkeypatch.setattr(Durable, "run", marked)
