"""A coordinator of pairs over all partitions of its topic, on a broker without sockets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkad.controller.topics import NewTopic
from kafkad.errors import ErrorCode, KafkaError
from kafkad.shard import Coordination, Shard
from kafkad.shard.partition_count import PartitionCount
from kafkad.shard.shard import CoordinatorParts
from kafkad.timers import Timers
from kafkad.wire.records import Record
from tests.fakes import FakeClock
from tests.one_broker import OneBroker
from tests.shard.pairs import Pair, Pairs

TOPIC = "__consumer_offsets"
PARTITIONS = 4


class Coordinator:
    def __init__(self, broker: OneBroker, *, serves_committed_only: bool = False) -> None:
        self.broker = broker
        self.machines: list[Pairs] = []
        self.make: Callable[[Shard[Pairs]], Pairs] = Pairs
        self.creations = 0
        self.replicas_asked_for = 1
        self.clock = FakeClock()
        self.timers = Timers()
        parts = CoordinatorParts(self.clock, self.timers, broker.replicas.directory_failed, codec=0)
        self.coordination: Coordination[Pairs] = Coordination(
            TOPIC,
            broker.replicas,
            PartitionCount(TOPIC, broker.replicas.metadata, broker.store),
            parts,
            make_machine=self._make_machine,
            create=self._create,
            serves_committed_only=serves_committed_only,
        )

    def _make_machine(self, shard: Shard[Pairs]) -> Pairs:
        machine = self.make(shard)
        self.machines.append(machine)
        return machine

    async def _create(self) -> None:
        self.creations += 1
        topic = NewTopic(name=TOPIC, partitions=PARTITIONS, replication_factor=self.replicas_asked_for)
        [result] = await self.broker.controller.create_topics([topic], timeout_ms=5_000)
        if result.error is not None:
            raise result.error

    async def start(self) -> None:
        self.coordination.start()

    def create_and_load(self) -> None:
        self.broker.create(TOPIC, PARTITIONS)
        self.broker.run(self.start())
        self.broker.run_until(lambda: not self.coordination.loading)

    def fill(self, count: int) -> None:
        """A topic of one partition, with records that no coordinator here has loaded."""
        self.broker.create(TOPIC, 1)
        for start in range(0, count, 1_000):
            records = [Record(number, 1, b"key %d" % (start + number), b"v") for number in range(1_000)]
            self.broker.append(TOPIC, 0, *records)

    def put(self, key: str, value: str) -> None:
        errors: list[KafkaError | None] = []

        async def write() -> None:
            self.coordination.shard(key).write([Pair(key, value)], errors.append)

        self.broker.run(write())
        assert errors == [None]

    def pairs_by_partition(self) -> dict[int, dict[str, str]]:
        return {machine.shard.index: machine.pairs for machine in self.machines if machine.shard is not None}

    def refusal(self, key: str) -> ErrorCode:
        with pytest.raises(KafkaError) as refused:
            self.coordination.shard(key)
        return refused.value.code

    def who(self, key: str) -> int | ErrorCode:
        try:
            return self.coordination.find(key).id
        except KafkaError as error:
            return error.code

    def stop(self) -> None:
        self.broker.run(self.coordination.stop())
