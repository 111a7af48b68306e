"""Transactions over several brokers: partitions, group and transactional id are each led by another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.log.transactions import aborted_transactions
from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition, home_partition
from kafkad.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkad.wire.messages.end_txn import EndTxnRequest
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkad.wire.records import Record, build_batch
from tests.broker_parts.several import MEMORY, NETWORK, Broker, Brokers, FrameConnection

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
NONE = ErrorCode.NONE
OLD, NEW = 0, 2
"""Transaction versions of clients."""
SETTINGS = (
    "transaction.state.log.num.partitions=3",
    "transaction.state.log.replication.factor=3",
    "transaction.state.log.min.isr=1",
    "offsets.topic.replication.factor=3",
)


@pytest.fixture(params=[MEMORY, NETWORK])
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    yield from cluster(tmp_path, request.param)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Brokers]:
    yield from cluster(tmp_path, MEMORY)


def cluster(directory: Path, links: str) -> Iterator[Brokers]:
    brokers = Brokers(directory, links, *SETTINGS)
    brokers.start(1, 2, 3)
    everybody = brokers.running.values()
    brokers.meet()
    brokers.create("a", (1, 2))
    brokers.create("b", (2, 3))
    for kind in (0, 1):
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["any"])
        while brokers.ended(brokers[1].ask(asked, 4)).coordinators[0].error_code:
            brokers.run(brokers.turn(10))
    for topic in (GROUPS_TOPIC, TRANSACTIONS_TOPIC):
        brokers.until(
            lambda topic=topic: all(topic in b.parts.replicas.metadata.topics for b in everybody), advance_ms=10
        )
    yield brokers
    brokers.stop()


def led_by(broker: Broker, tp: TopicPartition) -> int:
    """The partition's leader, as far as this broker knows."""
    return broker.parts.replicas.metadata.topics[tp.topic].partitions[tp.partition].leader


def leader_of(brokers: Brokers, tp: TopicPartition) -> int:
    return led_by(next(iter(brokers.running.values())), tp)


class Client:
    """A transactional producer that finds everybody by metadata, and asks again where clients do."""

    def __init__(self, brokers: Brokers, version: int, coordinator: int = 3, group_coordinator: int = 1) -> None:
        self.brokers = brokers
        self.version = version
        self.name = self._led_by(coordinator, TRANSACTIONS_TOPIC, 3)
        self.group = self._led_by(group_coordinator, GROUPS_TOPIC, 2)
        self.pid = self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    def _led_by(self, broker: int, topic: str, count: int) -> str:
        """A name whose coordinator is this broker, if it leads any of the partitions."""
        names = [f"{topic}-{number}" for number in range(20)]
        homes = {name: leader_of(self.brokers, TopicPartition(topic, home_partition(name, count))) for name in names}
        return next((name for name, home in homes.items() if home == broker), names[0])

    def _coordinator(self, name: str, topic: str, count: int) -> int:
        return leader_of(self.brokers, TopicPartition(topic, home_partition(name, count)))

    @property
    def coordinator(self) -> int:
        return self._coordinator(self.name, TRANSACTIONS_TOPIC, 3)

    def _ask(self, message: Any, version: int, *, group: bool = False) -> Any:
        home = self._coordinator(self.group, GROUPS_TOPIC, 2) if group else self.coordinator
        return self.brokers.ended(self.brokers[home].ask(message, version))

    def init(self) -> None:
        asked = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        while True:
            answer = self._ask(asked, 4)
            if answer.error_code not in (14, 15, 16, 51):
                break
            self.brokers.run(self.brokers.turn(20))
        assert not answer.error_code
        self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def add(self, *partitions: TopicPartition) -> None:
        topics = [AddPartitionsToTxnTopic(name=tp.topic, partitions=[tp.partition]) for tp in partitions]
        asked = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.pid,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        answer = self._ask(asked, 3)
        codes = {
            one.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        assert codes == {NONE}

    def produce(self, tp: TopicPartition, *, at: int = 0) -> ErrorCode:
        """To the partition's leader, or to another broker."""
        sequence = self.sequences.get(tp, 0)
        options = {"producer_id": self.pid, "producer_epoch": self.epoch, "base_sequence": sequence}
        batch = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")], **options, transactional=True)
        data = TopicProduceData(
            name=tp.topic, partition_data=[PartitionProduceData(index=tp.partition, records=bytes(batch))]
        )
        asked = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=5_000, topic_data=[data])
        broker = self.brokers[at or leader_of(self.brokers, tp)]
        version = 12 if self.version == NEW else 11

        async def answered() -> Any:
            return await broker.ask_by_frame(asked, version, FrameConnection(broker.parts.dispatcher))

        answer = self.brokers.ended(answered())
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if not code:
            self.sequences[tp] = sequence + 1
        return code

    def send_offsets(self, offset: int) -> ErrorCode:
        if self.version == OLD:
            asked = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=self.pid, producer_epoch=self.epoch, group_id=self.group
            )
            assert not self._ask(asked, 3).error_code
        one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="a", partitions=[one])],
        )
        answer = self._ask(commit, 5 if self.version == NEW else 4, group=True)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end(self, *, commit: bool) -> None:
        asked = EndTxnRequest(
            transactional_id=self.name, producer_id=self.pid, producer_epoch=self.epoch, committed=commit
        )
        answer = self._ask(asked, 5 if self.version == NEW else 4)
        assert not answer.error_code
        if self.version == NEW:
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    def fetch_offset(self) -> tuple[int, int]:
        topics = [OffsetFetchRequestTopic(name="a", partition_indexes=[0])]
        asked = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=True)
        answer = self._ask(asked, 7, group=True).topics[0].partitions[0]
        return answer.error_code, answer.committed_offset

    def wait_until_read(self, *partitions: TopicPartition) -> None:
        """Everything in them can be read by `read_committed`, on the leader and on its followers."""
        replicas = [b.parts.replicas.find(*tp) for b in self.brokers.running.values() for tp in partitions]
        held = [replica for replica in replicas if replica is not None]
        self.brokers.until(lambda: all(p.last_stable_offset == p.log.end_offset > 0 for p in held), advance_ms=10)


@pytest.mark.parametrize("version", [OLD, NEW], ids=["old client", "new client"])
def test_a_transaction_over_all_of_them(three: Brokers, version: int) -> None:
    client = Client(three, version)
    client.init()
    for number, commit in enumerate((True, False, True), 1):
        if version == OLD:
            client.add(A0, B0)
        assert [client.produce(tp) for tp in (A0, B0, A0)] == [NONE] * 3
        assert client.send_offsets(number) == NONE
        for tp in (A0, B0):
            leader = three[leader_of(three, tp)].partition(tp)
            assert leader.last_stable_offset < leader.high_watermark
        assert client.fetch_offset()[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        client.end(commit=commit)
        client.wait_until_read(A0, B0)
        three.until(lambda: client.fetch_offset()[0] == NONE, advance_ms=10)
    assert client.fetch_offset() == (NONE, 3)
    for broker in (1, 2):
        aborted = aborted_transactions(three[broker].partition(A0).log, 0, 100)
        assert [first for _, first in aborted] == [3]


def test_a_partition_that_was_not_added_is_not_written_to(in_memory: Brokers) -> None:
    client = Client(in_memory, OLD)
    client.init()
    client.add(A0)
    assert client.produce(B0) == ErrorCode.TRANSACTION_ABORTABLE
    assert in_memory[2].partition(B0).log.end_offset == 0


@pytest.mark.parametrize("version", [OLD, NEW], ids=["old client", "new client"])
def test_while_the_coordinator_cannot_be_reached_the_client_asks_again(in_memory: Brokers, version: int) -> None:
    c0 = TopicPartition("c", 0)
    in_memory.create("c", (1, 2))
    client = Client(in_memory, version, coordinator=3)
    assert client.coordinator == 3
    client.init()
    if version == OLD:
        client.add(A0, c0)
    assert client.produce(A0) == NONE
    in_memory.cut = {frozenset((1, 3))}
    assert client.produce(A0) == NONE, "the transaction is open there"
    assert client.produce(c0) == ErrorCode.NOT_ENOUGH_REPLICAS
    in_memory.cut = set()
    assert client.produce(c0) == NONE
    client.end(commit=True)
    client.wait_until_read(A0, c0)


def test_a_follower_that_leads_now_knows_what_is_open(in_memory: Brokers) -> None:
    client = Client(in_memory, OLD, coordinator=3)
    client.init()
    client.add(A0)
    assert client.produce(A0) == NONE
    in_memory.leave(1)
    everybody = in_memory.running.values()
    in_memory.until(lambda: all(led_by(b, A0) == 2 for b in everybody), advance_ms=10)
    in_memory.until(lambda: in_memory[2].partition(A0).is_leader, advance_ms=10)
    asked = len([each for each in in_memory.sent if each[2] == "AddPartitionsToTxnRequest"])
    assert client.produce(A0) == NONE
    assert len([each for each in in_memory.sent if each[2] == "AddPartitionsToTxnRequest"]) == asked
    client.end(commit=True)
    client.wait_until_read(A0)
