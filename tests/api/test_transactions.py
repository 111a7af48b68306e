"""Requests about transactions, on one broker: the answers by version, and what becomes of the partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kafkad.api.context import Request
from kafkad.api.patterns import Pattern
from kafkad.errors import ErrorCode, KafkaError
from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from kafkad.turns import Pieces
from kafkad.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkad.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.describe_transactions import DescribeTransactionsRequest
from kafkad.wire.messages.end_txn import EndTxnRequest
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from kafkad.wire.messages.list_transactions import ListTransactionsRequest
from kafkad.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafkad.wire.records import Record
from tests.one_broker import OneBroker

NONE = ErrorCode.NONE


class Producer(NamedTuple):
    name: str
    id: int
    epoch: int


class Transactions:
    """A broker with topic `t` of three partitions and a loaded transaction coordinator."""

    def __init__(self, broker: OneBroker, key_types: Sequence[int] = (0, 1)) -> None:
        self.broker = broker
        broker.create("t", 3)
        for key_type in key_types:
            found = broker.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"]), 4).coordinators[0]
            assert (found.error_code, found.node_id) == (0, 1)
        coordination = broker.context.transactions().coordination
        broker.run_until(lambda: not coordination.loading and not broker.context.group_coordination.loading)

    def init(
        self, name: str | None, producer: tuple[int, int] = (-1, -1), version: int = 4, timeout: int = 60_000
    ) -> Any:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout,
            producer_id=producer[0],
            producer_epoch=producer[1],
        )
        return self.broker.ask(request, version)

    def new(self, name: str) -> Producer:
        answer = self.init(name)
        assert answer.error_code == 0
        return Producer(name, answer.producer_id, answer.producer_epoch)

    def add(
        self, producer: Producer, *partitions: tuple[str, int], version: int = 3
    ) -> dict[TopicPartition, ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.name,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=_topics(partitions),
        )
        return _codes(self.broker.ask(request, version).results_by_topic_v3_and_below)

    def verify(
        self, producer: Producer, *partitions: tuple[str, int], only: bool = True
    ) -> dict[TopicPartition, ErrorCode]:
        asked = AddPartitionsToTxnTransaction(
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            verify_only=only,
            topics=_topics(partitions),
        )
        answer = self.broker.ask(AddPartitionsToTxnRequest(transactions=[asked]), 5)
        [result] = answer.results_by_transaction
        assert result.transactional_id == producer.name
        return _codes(result.topic_results)

    def add_offsets(self, producer: Producer, group: str, version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=producer.name,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=group,
        )
        return ErrorCode(self.broker.ask(request, version).error_code)

    def end(self, producer: Producer, commit: bool, version: int = 3) -> Any:
        return self.broker.ask(end_request(producer, commit), version)

    def mark(self, producer: Producer, partition: int, coordinator_epoch: int) -> ErrorCode:
        """The marker of a commit, from a coordinator of that epoch."""
        marker = WritableTxnMarker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            transaction_result=True,
            coordinator_epoch=coordinator_epoch,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[partition])],
        )
        answer = self.broker.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    def describe(self, name: str) -> Any:
        return self.broker.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]

    def list(self, version: int = 1, **filters: Any) -> Any:
        return self.broker.ask(ListTransactionsRequest(**filters), version)

    def write(self, producer: Producer, partition: int) -> None:
        """As if it had been verified."""
        self.broker.append("t", partition, Record(0, 1, b"k", b"v"), producer_id=producer.id, transactional=True)

    def offsets(self, partition: int) -> tuple[int, int]:
        """Last stable offset and log end."""
        found = self.broker.replicas.get("t", partition)
        return found.last_stable_offset, found.log.end_offset


def end_request(producer: Producer, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.name,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=commit,
    )


def _topics(partitions: Iterable[tuple[str, int]]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
    return list(topics.values())


def _codes(results: Iterable[Any]) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode(one.partition_error_code)
        for topic in results
        for one in topic.results_by_partition
    }


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    started = OneBroker(tmp_path, "transaction.state.log.num.partitions=2", "offsets.topic.num.partitions=2")
    yield started
    started.stop()


@pytest.fixture
def txns(broker: OneBroker) -> Transactions:
    return Transactions(broker)


def test_before_its_topic_is_there_nobody_coordinates(broker: OneBroker) -> None:
    request = InitProducerIdRequest(transactional_id="a", transaction_timeout_ms=1000)
    assert broker.ask(request, 4).error_code == ErrorCode.NOT_COORDINATOR


def test_the_topic_of_transactions_is_as_kafka_makes_it(txns: Transactions) -> None:
    topic = txns.broker.replicas.metadata.topic(TRANSACTIONS_TOPIC)
    assert len(topic.partitions) == 2
    config = txns.broker.replicas.get(TRANSACTIONS_TOPIC, 0).log.config
    assert config.cleanup_policy == {"compact"}


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [3, 5])
def test_a_transaction_is_over_when_its_end_is_answered(txns: Transactions, commit: bool, version: int) -> None:
    producer = txns.new("a")
    assert txns.add(producer, ("t", 0), ("t", 1)) == {("t", 0): NONE, ("t", 1): NONE}
    txns.write(producer, 0)
    assert txns.describe("a").transaction_state == "Ongoing"
    assert txns.offsets(0) == (0, 1)
    answer = txns.end(producer, commit, version)
    assert answer.error_code == 0
    if version == 5:
        assert (answer.producer_id, answer.producer_epoch) == (producer.id, 1)
    found = txns.describe("a")
    assert found.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert found.topics == []
    assert found.producer_epoch == (1 if version == 5 else 0)
    assert txns.offsets(0) == (2, 2)
    assert txns.offsets(1) == (1, 1), "a marker without data"


def test_many_transactions_of_one_producer_never_have_to_wait(txns: Transactions) -> None:
    producer = txns.new("a")
    for number in range(20):
        assert set(txns.add(producer, ("t", number % 3)).values()) == {NONE}
        assert txns.add_offsets(producer, "g") is NONE
        assert txns.end(producer, bool(number % 2)).error_code == 0
    home = txns.broker.context.group_coordination.partition_for("g")
    assert txns.broker.replicas.get(GROUPS_TOPIC, home).log.end_offset == 20


def test_the_first_to_add_offsets_makes_their_topic(broker: OneBroker) -> None:
    """Its client looks for the group's coordinator only behind that. A partition that is guessed gets no marker."""
    txns = Transactions(broker, key_types=(1,))
    producer = txns.new("a")
    assert txns.add_offsets(producer, "g") is NONE
    groups = broker.context.group_coordination
    broker.run_until(lambda: not groups.loading)
    assert txns.end(producer, True).error_code == 0
    assert broker.replicas.get(GROUPS_TOPIC, groups.partition_for("g")).log.end_offset == 1


def test_offsets_wait_for_the_metadata_of_their_topic(txns: Transactions) -> None:
    producer = txns.new("a")
    topics = txns.broker.replicas.metadata.topics
    topic = topics.pop(GROUPS_TOPIC)
    assert txns.add_offsets(producer, "g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    topics[GROUPS_TOPIC] = topic
    assert txns.add_offsets(producer, "g") is NONE


def test_who_takes_over_is_answered_when_what_was_open_is_aborted(txns: Transactions) -> None:
    """Kafka says CONCURRENT_TRANSACTIONS first."""
    first = txns.new("a")
    txns.add(first, ("t", 0))
    txns.write(first, 0)
    second = txns.new("a")
    assert (second.id, second.epoch) == (first.id, 2)
    assert txns.offsets(0) == (2, 2)
    assert txns.add(first, ("t", 0)) == {("t", 0): ErrorCode.PRODUCER_FENCED}
    assert txns.add(first, ("t", 0), version=1) == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert txns.end(first, True).error_code == ErrorCode.PRODUCER_FENCED
    assert txns.end(first, True, 1).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_is_aborted_when_its_time_is_over(txns: Transactions) -> None:
    answer = txns.init("a", timeout=30)
    producer = Producer("a", answer.producer_id, answer.producer_epoch)
    txns.add(producer, ("t", 0))
    txns.write(producer, 0)
    txns.broker.run_until(lambda: txns.describe("a").transaction_state != "Ongoing")
    assert txns.describe("a").transaction_state == "CompleteAbort"
    assert txns.offsets(0) == (2, 2)
    again = txns.init("a", (producer.id, producer.epoch))
    assert (again.error_code, again.producer_epoch) == (0, 1), "its producer can go on"


def test_a_coordinator_ends_what_another_one_has_begun_to_end_in_an_epoch_that_it_was_not_told_of(
    txns: Transactions,
) -> None:
    broker = txns.broker
    producer = txns.new("a")
    txns.add(producer, ("t", 0), ("t", 1))
    txns.write(producer, 0)
    txns.write(producer, 1)
    partitions = broker.replicas.metadata.topic("t").partitions
    partitions[0].leader = partitions[1].leader = -1
    [answer] = broker.ask_together((end_request(producer, commit=True), 3))
    assert answer.error_code == 0
    home = broker.context.transactions().coordination.partition_for("a")
    other = broker.replicas.get(TRANSACTIONS_TOPIC, home).leader_epoch + 1
    assert txns.mark(producer, 0, coordinator_epoch=other) == NONE
    broker.lead(TRANSACTIONS_TOPIC, home, leader=1, epochs=2)
    partitions[0].leader = partitions[1].leader = 1
    broker.run_until(lambda: txns.describe("a").transaction_state == "CompleteCommit")
    assert txns.offsets(1) == (2, 2)
    txns.new("a")


def test_no_marker_is_written_before_the_decision_is_committed(txns: Transactions) -> None:
    """A new leader may have it without its followers: another one would decide anew."""
    broker = txns.broker
    producer = txns.new("a")
    txns.add(producer, ("t", 0))
    txns.write(producer, 0)
    transactions = broker.context.transactions()
    home = transactions.coordination.partition_for("a")
    answers: list[object] = []

    async def end() -> None:
        transactions.end("a", producer.id, producer.epoch, True, False, answers.append)

    broker.lead(TRANSACTIONS_TOPIC, home, leader=1, isr=[1, 2])
    broker.run(end())
    broker.lead(TRANSACTIONS_TOPIC, home, leader=1, isr=[1, 2], epochs=2)
    broker.settle()
    assert len(answers) == 1, "that this was no coordinator for a moment"
    assert txns.offsets(0) == (0, 1)
    partition = broker.replicas.get(TRANSACTIONS_TOPIC, home)
    end_offset = partition.log.end_offset

    async def fetched() -> None:
        partition.fetched_by(2, end_offset, 0)

    broker.run(fetched())
    broker.run_until(lambda: txns.offsets(0) == (2, 2))


class _Held:
    """Turns that do not end before they are told to."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()

    async def give_way(self) -> None:
        await self.may_end.wait()


def test_ids_are_listed_also_while_it_is_not_sure_that_they_are_kept(
    txns: Transactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka. Too few replicas may be in sync for days."""
    turns = _Held()
    monkeypatch.setattr("kafkad.shard.loading.Turns", lambda: turns)
    broker = txns.broker
    producer = txns.new("a")
    coordination = broker.context.transactions().coordination
    home = coordination.partition_for("a")
    broker.lead(TRANSACTIONS_TOPIC, home, leader=1, isr=[1, 2])
    broker.append(TRANSACTIONS_TOPIC, home, Record(0, 1, b"not a key", None))
    broker.lead(TRANSACTIONS_TOPIC, home, leader=1, isr=[1, 2], epochs=2)
    broker.settle()
    assert txns.list().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    turns.may_end.set()
    broker.settle()
    assert coordination.loading
    assert txns.describe("a").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = txns.list()
    assert listed.error_code == NONE
    assert [(each.transactional_id, each.producer_id) for each in listed.transaction_states] == [("a", producer.id)]


def test_partitions_that_are_not_there_add_none(txns: Transactions) -> None:
    producer = txns.new("a")
    unknown, left = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert txns.add(producer, ("no", 0), ("t", 9), ("t", 0)) == {("no", 0): unknown, ("t", 9): unknown, ("t", 0): left}
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert txns.add(producer, (GROUPS_TOPIC, 0)) == {(GROUPS_TOPIC, 0): refused}
    assert txns.describe("a").transaction_state == "Empty"


def test_brokers_verify_and_add(txns: Transactions) -> None:
    producer = txns.new("a")
    missing = ErrorCode.TRANSACTION_ABORTABLE
    assert txns.verify(producer, ("t", 0)) == {("t", 0): missing}
    assert txns.verify(producer, ("t", 0), (GROUPS_TOPIC, 0), only=False) == {("t", 0): NONE, (GROUPS_TOPIC, 0): NONE}
    assert txns.verify(producer, ("t", 0), ("t", 1)) == {("t", 0): NONE, ("t", 1): missing}
    assert txns.broker.ask(AddPartitionsToTxnRequest(transactions=[]), 4).results_by_transaction == []


def test_brokers_are_not_held_back_for_markers(txns: Transactions, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a broker's questions come over one connection."""
    broker = txns.broker
    monkeypatch.setattr(broker, "ask", lambda message, version: broker.ask_together((message, version))[0])
    producer = txns.new("a")
    txns.add(producer, ("t", 0))
    broker.replicas.metadata.topic("t").partitions[0].leader = -1
    assert txns.end(producer, True).error_code == 0
    not_yet = {("t", 1): ErrorCode.CONCURRENT_TRANSACTIONS}
    probe = broker.context.transactions()._probe
    assert txns.verify(producer, ("t", 1)) == txns.verify(producer, ("t", 1), only=False) == not_yet
    assert probe.held == 0
    assert txns.add(producer, ("t", 1)) == not_yet
    assert probe.held == 1


def test_a_deleted_partition_does_not_keep_a_transaction_open(txns: Transactions) -> None:
    txns.broker.create("gone")
    producer = txns.new("a")
    txns.add(producer, ("t", 0), ("gone", 0))
    txns.broker.run(txns.broker.controller.delete_topics(["gone"], timeout_ms=5_000))
    assert txns.end(producer, True).error_code == 0
    assert txns.describe("a").transaction_state == "CompleteCommit"


def test_lists(txns: Transactions) -> None:
    idle, busy = txns.new("idle"), txns.new("busy")
    txns.add(busy, ("t", 0))

    def names(version: int = 1, **filters: Any) -> list[str]:
        answer = txns.list(version, **filters)
        assert not answer.error_code
        return sorted(one.transactional_id for one in answer.transaction_states)

    assert names() == ["busy", "idle"]
    assert names(state_filters=["Ongoing"]) == ["busy"]
    assert names(producer_id_filters=[idle.id]) == ["idle"]
    assert names(duration_filter=10**9) == []
    assert names(duration_filter=0, state_filters=["Empty"]) == []
    assert names(2, transactional_id_pattern="b.*y") == ["busy"]
    assert names(2, transactional_id_pattern="us") == []
    assert names(2, transactional_id_pattern="") == ["busy", "idle"]
    with pytest.raises(KafkaError) as refusal:
        txns.list(2, transactional_id_pattern="[")
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    answer = txns.list(state_filters=["ongoing", "Dead", "Nonsense"])
    assert answer.unknown_state_filters == ["ongoing", "Nonsense"]
    assert answer.transaction_states == []


def test_a_pattern_is_tried_only_on_ids_that_may_be_seen(txns: Transactions, monkeypatch: pytest.MonkeyPatch) -> None:
    txns.new("hidden")
    txns.new("seen")
    tried: list[str] = []
    matches = Pattern.matches_in_pieces

    def noted(self: Pattern, text: str) -> Pieces[bool]:
        tried.append(text)
        return matches(self, text)

    monkeypatch.setattr(Pattern, "matches_in_pieces", noted)
    monkeypatch.setattr(Request, "allows", lambda self, operation, resource, name: name == "seen")
    answer = txns.list(2, transactional_id_pattern=".*")
    assert [one.transactional_id for one in answer.transaction_states] == tried == ["seen"]


def test_many_ids_are_listed_in_pieces(txns: Transactions) -> None:
    for number in range(40):
        txns.new(f"id-{number}")
    assert txns.broker.stops(ListTransactionsRequest(), 0) >= 2


def test_many_partitions_of_a_transaction_are_described_in_pieces(txns: Transactions) -> None:
    txns.broker.create("many", 200)
    txns.add(txns.new("large"), *(("many", partition) for partition in range(200)))
    assert txns.broker.stops(DescribeTransactionsRequest(transactional_ids=["large"]), 0) >= 5
    [topic] = txns.describe("large").topics
    assert topic.partitions == list(range(200))


def test_ids_that_nobody_uses_are_forgotten(txns: Transactions) -> None:
    idle, busy = txns.new("idle"), txns.new("busy")
    txns.add(busy, ("t", 0))
    coordinator = txns.broker.context.transactions()
    for shard in coordinator.coordination.shards():
        txns.broker.run(_exhausted(shard.machine.forget_expired(-1)))
    assert txns.describe("idle").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert txns.describe("busy").transaction_state == "Ongoing"
    assert txns.add(idle, ("t", 0)) == {("t", 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}


def test_ids_with_long_names_do_not_keep_others_from_being_forgotten(txns: Transactions) -> None:
    """All their tombstones together are more than a batch may have."""
    names = [str(number) + "x" * 3_000 for number in range(10)]
    coordination = txns.broker.context.transactions().coordination
    for shard in coordination.shards():
        shard.partition.update_config(replace(shard.partition.log.config, max_message_bytes=10_000))
    for name in [*names, "short"]:
        txns.new(name)
    for shard in coordination.shards():
        txns.broker.run(_exhausted(shard.machine.forget_expired(-1)))
    assert not any(shard.machine.transactions for shard in coordination.shards())


async def _exhausted(pieces: Iterable[None]) -> None:
    for _ in pieces:
        pass


def test_a_client_is_told_the_transaction_version(broker: OneBroker) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    for version in (3, 4):
        answer = broker.ask(request, version)
        [feature] = answer.finalized_features
        assert (feature.name, feature.max_version_level, feature.min_version_level) == ("transaction.version", 2, 2)
        assert answer.finalized_features_epoch >= 0
        supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
        assert supported == ([("transaction.version", 0, 2)] if version == 4 else [])


def test_what_is_refused_before_the_coordinator_is_asked(txns: Transactions) -> None:
    assert txns.init("", version=4).error_code == ErrorCode.INVALID_REQUEST
    assert txns.init("a", (5, -1)).error_code == ErrorCode.INVALID_REQUEST
    for timeout in (0, -1, 900_001, 2**31 - 1):
        assert txns.init("a", timeout=timeout).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert txns.describe("").error_code == ErrorCode.INVALID_REQUEST
    assert txns.init(None, (1, 3)).error_code == 0, "an idempotent producer gets a new id whatever it says"


def test_metrics_of_transactions(txns: Transactions) -> None:
    producer = txns.new("a")
    txns.add(producer, ("t", 0))
    txns.end(producer, True)
    txns.add(producer, ("t", 0))

    def values() -> dict[str, float]:
        return {
            family.name: value
            for family in txns.broker.coordinators.transaction_families()
            for _, value in family.samples
        }

    found = values()
    assert found["kafkad_transactions_committed_total"] == found["kafkad_transactions_completions_total"] == 1
    assert found["kafkad_transactions_open"] == 1
    assert found["kafkad_transactions_oldest_open_ms"] >= 0
    assert found["kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize"] == 0
    assert "kafka_server_transaction_coordinator_metrics_partition_load_time_max" in found
    txns.new("a")
    found = values()
    assert (found["kafkad_transactions_open"], found["kafkad_transactions_fenced_total"]) == (0, 1)
