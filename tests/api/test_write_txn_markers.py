"""WriteTxnMarkers against Kafka's answers, which were recorded from raw requests at 4.3.1 (version 0: at 3.9.2)."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from kafkad.api import write_txn_markers
from kafkad.api.context import Request
from kafkad.errors import ErrorCode
from kafkad.log.transactions import aborted_transactions
from kafkad.names import GROUPS_TOPIC, TopicPartition
from kafkad.net.connection import Connection
from kafkad.replica.markers import Codes, Marker, MarkerBatch
from kafkad.replica.partition import Partition
from kafkad.turns import at_once
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from kafkad.wire.records import BATCH_HEADER, Record, build_batch
from tests.one_broker import OneBroker

VERSIONS = (0, 1, 2)
OLD = ErrorCode.INVALID_PRODUCER_EPOCH
PID, EPOCH = 7, 3


def begun(broker: OneBroker, sequence: int = 0, epoch: int = EPOCH) -> None:
    """One batch of a transaction in t-0."""
    record = Record(0, 1000, b"k", b"v")
    batch = build_batch([record], producer_id=PID, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    broker.replicas.leader("t", 0).append(memoryview(batch), 0, len(batch), BATCH_HEADER.unpack(batch[:61]))


def marker(
    *indexes: int,
    epoch: int = EPOCH,
    commit: bool = False,
    topic: str = "t",
    coordinator: int = 0,
    pid: int = PID,
    version: int = 0,
) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=pid,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes or (0,)))],
        coordinator_epoch=coordinator,
        transaction_version=version,
    )


def write(broker: OneBroker, version: int, *markers: WritableTxnMarker) -> list[list[int]]:
    """The code of each partition of each marker."""
    response = broker.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
    assert [one.producer_id for one in response.markers] == [one.producer_id for one in markers]
    return [[p.error_code for t in one.topics for p in t.partitions] for one in response.markers]


@pytest.fixture(autouse=True)
def topic(broker: OneBroker) -> None:
    broker.create("t", 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_that_are_not_there(broker: OneBroker, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert write(broker, version, marker(topic="nowhere"), marker(9, 0)) == [[unknown], [unknown, 0]]


@pytest.mark.parametrize("version", VERSIONS)
def test_for_a_producer_that_never_wrote_there_it_is_appended(broker: OneBroker, version: int) -> None:
    assert write(broker, version, marker()) == [[0]]
    assert broker.replicas.leader("t", 0).log.end_offset == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_epoch_behind(broker: OneBroker, version: int) -> None:
    begun(broker)
    assert write(broker, version, marker(epoch=EPOCH - 1)) == [[OLD]]
    assert broker.replicas.leader("t", 0).log.end_offset == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_epoch_ahead_ends_the_transaction_and_fences(broker: OneBroker, version: int) -> None:
    begun(broker)
    assert write(broker, version, marker(epoch=EPOCH + 1)) == [[0]]
    partition = broker.replicas.leader("t", 0)
    assert partition.last_stable_offset == 2
    [producer] = partition.log.producers.describe()
    assert (producer.epoch, producer.txn_start) == (EPOCH + 1, -1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_coordinator_epoch_behind(broker: OneBroker, version: int) -> None:
    begun(broker)
    assert write(broker, version, marker(coordinator=5)) == [[0]]
    assert write(broker, version, marker(coordinator=4)) == [[ErrorCode.TRANSACTION_COORDINATOR_FENCED]]


def test_commit_and_abort_in_one_request_the_first_counts_and_both_are_written(broker: OneBroker) -> None:
    begun(broker)
    assert write(broker, 1, marker(commit=True), marker(commit=False)) == [[0], [0]]
    log = broker.replicas.leader("t", 0).log
    assert log.end_offset == 3
    assert aborted_transactions(log, 0, 3) == []


def test_no_marker_at_all(broker: OneBroker) -> None:
    assert write(broker, 1) == []


def test_from_version_2_on_an_end_has_an_epoch_that_is_ahead(broker: OneBroker) -> None:
    begun(broker)
    asked = [marker(epoch=epoch, commit=True, version=2) for epoch in (EPOCH, EPOCH + 1, EPOCH + 1, EPOCH)]
    assert [write(broker, 2, one) for one in asked] == [[[OLD]], [[0]], [[0]], [[OLD]]]


def test_without_producer_id_or_epoch(broker: OneBroker) -> None:
    unexpected = ErrorCode.UNKNOWN_SERVER_ERROR
    assert write(broker, 1, marker(pid=-1), marker(epoch=-1)) == [[unexpected], [unexpected]]
    assert broker.replicas.leader("t", 0).log.end_offset == 0


def test_to_the_offsets_of_groups_for_a_producer_without_any(broker: OneBroker) -> None:
    assert write(broker, 1, marker(topic=GROUPS_TOPIC)) == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    broker.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    broker.run_until(lambda: len(list(broker.coordinators.groups.shards())) == 50)
    assert write(broker, 1, marker(topic=GROUPS_TOPIC)) == [[0]]


def test_who_has_gone_while_thousands_are_read_has_nothing_written(broker: OneBroker) -> None:
    """A coordinator that has given up asks again. Behind that, its first request would end the next transaction."""
    begun(broker)
    message = WriteTxnMarkersRequest(markers=[marker(*[0] * 1_000)])
    header = RequestHeader(message.__schema__.key, 1, 1, "test")
    request = Request(header, cast(Connection, broker.connection), memoryview(b""))

    async def handle() -> object:
        pieces = write_txn_markers.handle(broker.context, request, message)
        next(pieces)
        broker.connection.lost_client = True
        return at_once(pieces)

    response = broker.run(handle())
    assert isinstance(response, WriteTxnMarkersResponse)
    codes = [p.error_code for one in response.markers for t in one.topics for p in t.partitions]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 1_000
    assert broker.replicas.leader("t", 0).log.end_offset == 1


def test_who_cannot_be_committed_does_not_hold_up_the_others_of_its_request(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator sends only that one again."""
    monkeypatch.setattr(write_txn_markers, "_LONGEST_MS", 0)
    begun(broker)
    broker.lead("t", 1, leader=1, isr=[1, 2])
    later = ErrorCode.REQUEST_TIMED_OUT
    message = WriteTxnMarkersRequest(markers=[marker(0, 1), marker(1, pid=PID + 1), marker(0, pid=PID + 2)])
    [response] = broker.ask_together((message, 1))
    codes = [[p.error_code for t in one.topics for p in t.partitions] for one in response.markers]
    assert codes == [[0, later], [later], [0]]


def test_an_abort_under_a_living_transaction_tears_it_in_two_as_in_kafka(broker: OneBroker) -> None:
    begun(broker)
    assert write(broker, 1, marker()) == [[0]]
    begun(broker, sequence=1)
    assert write(broker, 1, marker(commit=True)) == [[0]]
    log = broker.replicas.leader("t", 0).log
    assert aborted_transactions(log, 0, 4) == [(PID, 0)]


def test_thousands_are_written_in_pieces_in_their_order(broker: OneBroker) -> None:
    """All of one request before any of the next, so that no marker comes behind a later one of its producer."""
    begun(broker)
    markers = broker.coordinators.markers
    ended: list[str] = []

    def append(name: str, commit: bool) -> None:
        asked = Marker(PID, EPOCH, commit, 0, 0, [TopicPartition("t", 0)] * 2000)
        markers.append([asked], lambda codes: ended.append(name))

    async def both() -> int:
        append("first", True)
        append("second", False)
        at_first = broker.replicas.leader("t", 0).log.end_offset
        while len(ended) < 2:
            await asyncio.sleep(0)
        return at_first

    assert broker.run(both()) < 4001
    assert ended == ["first", "second"]
    log = broker.replicas.leader("t", 0).log
    assert log.end_offset == 4001
    assert aborted_transactions(log, 0, 4001) == []


def test_a_few_markers_do_not_overtake_thousands(broker: OneBroker) -> None:
    """A repetition of one of these, answered first, would let its producer begin what these end then."""
    markers = broker.coordinators.markers
    ended: list[str] = []

    def append(name: str, count: int) -> None:
        asked = Marker(PID, EPOCH, True, 0, 0, [TopicPartition("t", 0)] * count)
        markers.append([asked], lambda codes: ended.append(name))

    async def all_of_them() -> None:
        append("first", 2000)
        append("second", 1)
        assert ended == []
        while len(ended) < 2:
            await asyncio.sleep(0)
        append("third", 1)
        assert ended == ["first", "second", "third"], "there is nobody to wait for any more"

    broker.run(all_of_them())


def test_an_internal_error_among_thousands_is_answered(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator tries again what has not been written."""
    markers = broker.coordinators.markers
    append = MarkerBatch.append
    count = 0

    def fails_once(batch: MarkerBatch, partition: Partition) -> None:
        nonlocal count
        count += 1
        if count == 1_001:
            raise ValueError
        append(batch, partition)

    monkeypatch.setattr(MarkerBatch, "append", fails_once)
    told: list[Codes] = []

    async def both() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        for _ in range(2):
            markers.append([Marker(PID, EPOCH, True, 0, 0, [TopicPartition("t", 0)] * 2_000)], told.append)
        while len(told) < 2:
            await asyncio.sleep(0)

    broker.run(both())
    later = ErrorCode.REQUEST_TIMED_OUT
    assert told == [[[ErrorCode.NONE] * 1_000 + [later] * 1_000], [[ErrorCode.NONE] * 2_000]]
