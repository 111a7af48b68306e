"""A follower without sockets, and leaders that it fetches from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkad.model import BrokerInfo
from kafkad.net.client import LinkError
from kafkad.replica.fetchers import Fetchers, FetcherSettings
from kafkad.replica.fetching import FetchLimits
from kafkad.replica.partition import Partition
from kafkad.timers import Timers
from kafkad.wire.follower_fetch import FollowerFetch, OnePartition
from kafkad.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kafkad.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkad.wire.records import Record, build_batch
from tests.fakes import FakeClock
from tests.one_broker import OneBroker

LEADER = 2
BACKOFF_MS = FetcherSettings(limits=FetchLimits()).backoff_ms


class SilentLeader:
    """Notes what it is asked for, partition and offset, and answers nothing."""

    def __init__(self, asked: list[tuple[int, int]]) -> None:
        self._asked = asked

    async def open(self, **how: object) -> None:
        pass

    async def exchange(self, request: FetchRequest, **how: object) -> Any:
        self._asked += [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        pass


class RefusingLeader(SilentLeader):
    """Takes no connection."""

    def __init__(self) -> None:
        super().__init__([])
        self.opened = 0

    async def open(self, **how: object) -> None:
        self.opened += 1
        raise LinkError("connection refused")


class SlowLeader:
    """Opens a connection and answers when it is told to; notes what each request asks for, partition and offset."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.asked: list[list[tuple[int, int]]] = []
        self._answers: list[asyncio.Future[FetchResponse]] = []
        self._ends: asyncio.Future[ListOffsetsResponse]

    async def open(self, **how: object) -> None:
        await self.opened.wait()

    async def exchange(self, request: FetchRequest | FollowerFetch, **how: object) -> FetchResponse:
        if isinstance(request, FollowerFetch):
            self.asked.append([(request.partition, request.offset)])
        else:
            self.asked.append([(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions])
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    def answer_with_nothing(self) -> None:
        """In a session of its own for each connection."""
        self.answer(FetchResponse(session_id=1 + id(self) % 1_000))

    def answer(self, response: FetchResponse) -> None:
        self._answers.pop().set_result(response)

    async def call(self, request: ListOffsetsRequest, **how: object) -> ListOffsetsResponse:
        self._ends = asyncio.get_running_loop().create_future()
        return await self._ends

    def answer_with_end(self, offset: int) -> None:
        """Of partition 1."""
        partition = ListOffsetsPartitionResponse(partition_index=1, offset=offset)
        topic = ListOffsetsTopicResponse(name="t", partitions=[partition])
        self._ends.set_result(ListOffsetsResponse(topics=[topic]))

    def read(self, request: object, answer: FetchResponse) -> FetchResponse:
        return answer

    def close(self) -> None:
        pass


class AtOnce(SlowLeader):
    """What it answers is to be taken in the turn in which it arrives."""

    async def exchange(self, request: FetchRequest | FollowerFetch, **how: Any) -> FetchResponse:
        answer = await super().exchange(request)
        how["go_on"](SimpleNamespace(frame=b"", body_at=0))
        return answer


class Follower:
    """A broker with a partition of five records in each of its two log directories, where another broker leads."""

    def __init__(self, directory: Path) -> None:
        self._broker = OneBroker(directory)
        self.clock, self.timers = FakeClock(), Timers()
        self.replicas = self._broker.replicas
        self.replicas.logs.clock = self.clock
        self._broker.create("t", 2)
        self.replicas.metadata.brokers[LEADER] = BrokerInfo(id=LEADER, endpoints=())
        self.partitions = [self.replicas.get("t", index) for index in range(2)]
        for partition in self.partitions:
            for _ in range(5):
                self._broker.append(*partition.tp, Record(0, 100, None, b"value"))
            self._broker.run(self._broker.durable.flush(partition.log))
        self.write_recovery_points()
        for partition in self.partitions:
            self._broker.lead(*partition.tp, leader=LEADER)
        self.asked: list[tuple[int, int]] = []
        self.connect: Callable[[], SilentLeader | SlowLeader] = lambda: SilentLeader(self.asked)
        self._fetchers = self._broker.run(self._made())

    async def _made(self) -> Fetchers:
        settings = FetcherSettings(limits=FetchLimits())
        return Fetchers(self.replicas, lambda leader: cast(Any, self.connect()), settings, self.clock, self.timers)

    def write_recovery_points(self) -> None:
        for write in self.replicas.logs.collect_recovery_points():
            write.write()

    def follow(self, *partitions: Partition) -> None:
        self._broker.run(self._follow(partitions or self.partitions))
        self.work()

    async def _follow(self, partitions: Iterable[Partition]) -> None:
        self._fetchers.follow(partitions)

    def lead(self, index: int) -> None:
        self._broker.lead("t", index, leader=1)

    def follow_anew(self, index: int, *, isr: tuple[int, ...] = (LEADER,)) -> None:
        self._broker.lead("t", index, leader=LEADER, isr=isr)
        self.follow(self.partitions[index])

    def throttle(self, *replicas: str, rate: float = 1_000) -> None:
        self.replicas.parts.follower_quota.limit(rate, self.clock.monotonic_ms())
        for partition in self.partitions:
            throttled = replace(partition.log.config, follower_replication_throttled_replicas=frozenset(replicas))
            partition.update_config(throttled)

    def work(self, after_ms: int = 0) -> None:
        self._broker.work(self.clock, self.timers, after_ms)

    def leave(self) -> None:
        self._fetchers.leave()

    def stop_fetching(self) -> None:
        self._broker.run(self._fetchers.stop())

    def stop(self) -> None:
        self.stop_fetching()
        self._broker.stop()


def two_leaders(follower: Follower, *, is_open: bool = True) -> tuple[SlowLeader, SlowLeader]:
    """The same one over two connections, of which the second may have to be opened by the test.

    What comes while a fetch waits has one of its own.
    """
    usual, newcomers = SlowLeader(), SlowLeader()
    usual.opened.set()
    if is_open:
        newcomers.opened.set()
    follower.connect = iter((usual, newcomers)).__next__
    return usual, newcomers


def begun_alone(follower: Follower, monkeypatch: pytest.MonkeyPatch, records: bytes) -> AtOnce:
    """A leader that answers who asks for one partition alone with these records.

    It has answered the first fetch of partition 0, one that may ask for several, with five others.
    """
    leader = AtOnce()
    leader.opened.set()
    follower.connect = lambda: leader
    answer = OnePartition(10_000, 0, memoryview(records))
    monkeypatch.setattr("kafkad.replica.fetchers.read_answer", lambda *arguments: answer)
    first = follower.partitions[0]
    follower.follow(first)
    leader.answer(fetched(first, many(5, 5)))
    follower.work()
    return leader


def many(first: int, count: int) -> bytes:
    """Batches of one small record, as the leader sends them."""
    return b"".join(
        build_batch([Record(offset, 100, None, b"v")], base_offset=offset) for offset in range(first, first + count)
    )


def fetched(
    partition: Partition, records: bytes, *, high_watermark: int = 10_000, error_code: int = 0
) -> FetchResponse:
    data = PartitionData(
        partition_index=partition.tp.partition,
        error_code=error_code,
        high_watermark=high_watermark,
        records=records,
    )
    topic = FetchableTopicResponse(topic_id=partition.log.topic_id, partitions=[data])
    return FetchResponse(session_id=7, responses=[topic])
