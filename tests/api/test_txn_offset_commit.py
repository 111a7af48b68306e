"""TxnOffsetCommit, with a coordinator of transactions that does what the test says.

The answers are Kafka's: 4.3.1's, recorded from raw requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from kafkad.api.context import Request
from kafkad.api.txn_offset_commit import handle
from kafkad.api.verifier import Verifier
from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.producers import ProducerStates
from kafkad.names import GROUPS_TOPIC, TopicPartition
from kafkad.net.connection import Connection
from kafkad.replica.markers import Marker
from kafkad.turns import at_once
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.delete_groups import DeleteGroupsRequest
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkad.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkad.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.fakes import FakeTransactions
from tests.one_broker import OneBroker

VERSIONS = range(6)
VERIFYING = range(5)
TXN, GROUP, EPOCH = "txn", "g", 3
HOME = TopicPartition(GROUPS_TOPIC, 0)
NONE, UNSTABLE = ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT
_pids = count(1)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    directory: Path = tmp_path_factory.mktemp("txn-offsets")
    started = OneBroker(directory, "offsets.topic.num.partitions=1", "offset.metadata.max.bytes=100")
    started.run(started.context.group_coordination.prepare())
    started.run_until(lambda: bool(list(started.context.group_coordination.shards())))
    started.create("t", 2)
    yield started
    started.stop()


class Client:
    """A producer with an epoch of its own, and a group of its own."""

    def __init__(self, broker: OneBroker) -> None:
        self.broker = broker
        self.pid = next(_pids)
        self.group = f"g{self.pid}"
        self.transactions = FakeTransactions()
        broker.context.verifier = Verifier(
            *(lambda: self.transactions, 1, None, broker.context.clock, broker.context.timers), lambda: 1_000
        )
        self.transactions.begin(TXN, self.pid, EPOCH, HOME)

    def request(
        self,
        *offsets: tuple[str, int, int],
        epoch: int = EPOCH,
        txn: str = TXN,
        group: str | None = None,
        text: str = "",
    ) -> TxnOffsetCommitRequest:
        topics = [
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=text
                    )
                ],
            )
            for topic, index, offset in offsets or [("t", 0, 5)]
        ]
        group = self.group if group is None else group
        return TxnOffsetCommitRequest(
            transactional_id=txn, group_id=group, producer_id=self.pid, producer_epoch=epoch, topics=topics
        )

    def commit(self, version: int, *offsets: tuple[str, int, int], **more: object) -> list[ErrorCode]:
        response = self.broker.ask(self.request(*offsets, **more), version)  # type: ignore[arg-type]
        return [one.error_code for topic in response.topics for one in topic.partitions]

    def end(self, *, commit: bool = True, epoch: int = EPOCH, version: int = 0) -> None:
        marker = Marker(self.pid, epoch, commit, 0, version, [HOME])
        codes: list[object] = []
        self.broker.coordinators.markers.append([marker], codes.append)
        assert codes == [[[NONE]]]

    def fetch(self, stable: bool = True) -> tuple[int, int]:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        asked = OffsetFetchRequest(group_id=self.group, topics=topics, require_stable=stable)
        answer = self.broker.ask(asked, 7).topics[0].partitions[0]
        return answer.error_code, answer.committed_offset


@pytest.fixture
def client(one: OneBroker) -> Client:
    return Client(one)


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_count_once_the_transaction_commits(client: Client, version: int) -> None:
    assert client.commit(version) == [NONE]
    assert client.fetch(stable=False) == (NONE, -1)
    assert client.fetch() == (UNSTABLE, -1)
    client.end()
    assert client.fetch() == (NONE, 5)
    assert client.transactions.asked == [(TXN, [HOME], version < 5)]


@pytest.mark.parametrize("version", [3, 5])
def test_each_commit_of_a_transaction_counts(client: Client, version: int) -> None:
    """All of them have sequence 0, as in Kafka: none of them is a duplicate."""
    for offset in (5, 6, 7):
        assert client.commit(version, ("t", 0, offset), ("t", 1, offset)) == [NONE, NONE]
    assert len(client.transactions.asked) == 1
    client.end()
    assert client.fetch() == (NONE, 7)


def test_an_abort_drops_them(client: Client) -> None:
    client.commit(3)
    client.end(commit=False)
    assert client.fetch() == (NONE, -1)


@pytest.mark.parametrize("version", VERIFYING)
def test_a_group_that_was_not_added(client: Client, version: int) -> None:
    client.transactions.begin(TXN, client.pid, EPOCH)
    refused = ErrorCode.TRANSACTION_ABORTABLE if version == 4 else ErrorCode.INVALID_TXN_STATE
    assert client.commit(version) == [refused]


def test_new_clients_have_it_added(client: Client) -> None:
    client.transactions.begin(TXN, client.pid, EPOCH)
    assert client.commit(5) == [NONE]
    assert client.transactions.open[TXN] == {HOME}
    assert client.transactions.clients == {f"User:ANONYMOUS from {client.broker.connection.address}, client test"}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_who_is_not_the_producer_of_the_id(client: Client, version: int) -> None:
    epoch = ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.commit(version, txn="unknown") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert client.commit(version, epoch=EPOCH - 1) == [epoch]
    assert client.commit(version, epoch=EPOCH + 1) == [epoch]
    assert client.commit(version) == [NONE]
    asked = len(client.transactions.asked)
    assert client.commit(version, epoch=EPOCH - 1) == [epoch]
    assert len(client.transactions.asked) == asked, "the partition knows that this epoch is over"


@pytest.mark.parametrize("version", VERSIONS)
def test_who_has_ended_its_transaction_elsewhere_looks_for_the_coordinator_of_the_group(
    client: Client, version: int
) -> None:
    """By what the coordinator of transactions says, all markers are written: that of the group's partition by a leader
    of which this one does not know yet."""
    assert client.commit(version) == [NONE]
    client.transactions.begin(TXN, client.pid, EPOCH + 1, HOME)
    assert client.commit(version, epoch=EPOCH + 1) == [ErrorCode.NOT_COORDINATOR]
    client.end(epoch=EPOCH + 1, version=2)
    assert client.commit(version, ("t", 0, 6), epoch=EPOCH + 1) == [NONE]
    assert client.fetch(stable=False) == (NONE, 5)


def test_topics_and_partitions_that_nobody_knows(client: Client) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.commit(3, ("nowhere", 0, 5), ("t", 99, 5), ("t", 0, 5)) == [unknown, unknown, NONE]
    asked = len(client.transactions.asked)
    assert client.commit(3, ("nowhere", 0, 5)) == [unknown]
    assert len(client.transactions.asked) == asked


def test_metadata_that_are_too_long(client: Client) -> None:
    assert client.commit(3, text="x" * 101) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_a_group_without_a_name(client: Client) -> None:
    assert client.commit(3, group="") == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (3, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (3, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_what_the_coordinator_cannot_say_now_is_asked_again(
    client: Client, version: int, code: ErrorCode, told: ErrorCode
) -> None:
    client.transactions.refuses = code
    assert client.commit(version) == [told]
    client.transactions.refuses = NONE
    assert client.commit(version) == [NONE]


@pytest.mark.parametrize(("version", "told"), [(3, ErrorCode.INVALID_TXN_STATE), (5, NONE)])
def test_a_transaction_that_ends_while_its_coordinator_is_asked(client: Client, version: int, told: ErrorCode) -> None:
    client.transactions.holding = True

    async def scenario() -> object:
        asked = client.broker.answer(client.request(), version)
        waiting = asyncio.ensure_future(asked)
        await asyncio.sleep(0)
        client.end(version=0 if version < 5 else 2)
        client.transactions.let_go()
        return (await waiting).topics[0].partitions[0].error_code

    assert client.broker.run(scenario()) == told


def test_a_plain_commit_behind_it_wins(client: Client) -> None:
    client.commit(3)
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    client.broker.ask(OffsetCommitRequest(group_id=client.group, topics=[topic]), 7)
    client.end()
    assert client.fetch() == (NONE, 9)


def test_a_group_that_is_deleted_meanwhile_stays_deleted(client: Client) -> None:
    client.commit(3)
    deleted = client.broker.ask(DeleteGroupsRequest(groups_names=[client.group]), 2)
    assert [one.error_code for one in deleted.results] == [NONE]
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    with pytest.raises(KafkaError) as refused:
        client.broker.ask(OffsetDeleteRequest(group_id=client.group, topics=[topic]), 0)
    assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    client.end()
    assert client.fetch() == (NONE, -1)


def test_offsets_of_a_topic_that_is_deleted_meanwhile_go(client: Client) -> None:
    broker = client.broker
    broker.create("short")
    client.commit(3, ("short", 0, 5), ("t", 0, 6))
    broker.ask(DeleteTopicsRequest(topic_names=["short"], timeout_ms=5_000), 4)
    [shard] = broker.coordinators.groups.shards()
    offsets = shard.machine.offsets
    broker.run_until(lambda: offsets.pending(client.group) == {("t", 0)})
    client.end()
    assert dict(offsets.offsets(client.group)) == {("t", 0): 6}
    assert client.commit(3, ("short", 0, 5)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_that_is_deleted_while_the_coordinator_is_asked_gets_no_offsets(client: Client) -> None:
    broker = client.broker
    broker.create("gone")
    client.transactions.holding = True

    async def scenario() -> list[ErrorCode]:
        waiting = asyncio.ensure_future(broker.answer(client.request(("gone", 0, 5), ("t", 0, 6)), 3))
        await asyncio.sleep(0)
        await broker.answer(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=5_000), 4)
        client.transactions.let_go()
        return [topic.partitions[0].error_code for topic in (await waiting).topics]

    assert broker.run(scenario()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NONE]
    client.end()
    [shard] = broker.coordinators.groups.shards()
    assert dict(shard.machine.offsets.offsets(client.group)) == {("t", 0): 6}


def test_pending_offsets_are_there_after_a_start(client: Client) -> None:
    client.commit(3)
    broker = client.broker
    broker.lead(GROUPS_TOPIC, 0, 2)
    assert client.commit(3) == [ErrorCode.NOT_COORDINATOR]
    broker.lead(GROUPS_TOPIC, 0, 1)
    broker.run_until(lambda: bool(list(broker.coordinators.groups.shards())))
    assert client.fetch() == (UNSTABLE, -1)
    client.end()
    assert client.fetch() == (NONE, 5)


@pytest.mark.parametrize("moved", [False, True], ids=["led by another broker", "in another log directory"])
def test_a_group_that_was_coordinated_elsewhere_while_its_transaction_was_asked_for(
    client: Client, moved: bool
) -> None:
    """The client looks for the coordinator, and sends it again."""
    broker = client.broker
    client.transactions.holding = True

    async def begin() -> asyncio.Task[object]:
        asked = asyncio.ensure_future(broker.answer(client.request(), 3))
        await asyncio.sleep(0)
        return asked

    waiting = broker.run(begin())
    if moved:
        log = broker.replicas.leader(*HOME).log
        log.producers = ProducerStates(log.producers.snapshots)
    else:
        broker.lead(GROUPS_TOPIC, 0, 2)
        broker.lead(GROUPS_TOPIC, 0, 1)
        broker.run_until(lambda: bool(list(broker.coordinators.groups.shards())))
    client.transactions.let_go()
    broker.run_until(waiting.done)
    answer = waiting.result()
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    client.transactions.holding = False
    assert client.commit(3) == [NONE]


def test_verification_can_be_switched_off_while_the_broker_runs(client: Client) -> None:
    broker = client.broker

    def switch(value: str) -> None:
        change = AlterableConfig(name="transaction.partition.verification.enable", config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
        answer = broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert not answer.responses[0].error_code
        broker.run_until(lambda: broker.parts.produce.verifies == (value == "true"))

    switch("false")
    assert client.commit(3) == [NONE]
    assert not client.transactions.asked
    client.end()
    switch("true")
    assert client.commit(3) == [NONE]
    assert len(client.transactions.asked) == 1


def test_thousands_of_offsets_are_written_in_several_batches(client: Client) -> None:
    home = client.broker.replicas.leader(*HOME).log
    before = home.end_offset
    assert set(client.commit(3, *(("t", 0, offset) for offset in range(1_200)))) == {NONE}
    assert home.end_offset == before + 1_200
    client.end()
    assert client.fetch() == (NONE, 1_199)


def test_a_transaction_that_ends_between_two_batches(client: Client) -> None:
    """What is left does not open another one."""
    request = client.request(*(("t", 0, offset) for offset in range(1_200)))
    context = client.broker.context
    connection = cast(Connection, client.broker.connection)
    asked = Request(RequestHeader(28, 3, 1, "test"), connection, memoryview(bytes(5_000)))
    home = client.broker.replicas.leader(*HOME).log
    end = home.end_offset + 500

    async def scenario() -> object:
        pieces = handle(context, asked, request)
        assert isinstance(pieces, Generator)
        while home.end_offset < end:
            next(pieces)
        client.end()
        return at_once(pieces)

    response = client.broker.run(scenario())
    assert isinstance(response, TxnOffsetCommitResponse)
    codes = [one.error_code for topic in response.topics for one in topic.partitions]
    assert codes == [NONE] * 500 + [ErrorCode.INVALID_TXN_STATE] * 700
    assert client.fetch() == (NONE, 499)
