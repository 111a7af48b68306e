from __future__ import annotations

from concurrent.futures import Future
from functools import partial

import pytest

from kafkad.errors import ErrorCode, KafkaError
from kafkad.log.record_search import RecordSearch, SearchResult
from kafkad.replica.partition import Role
from kafkad.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkad.wire.records import Record
from tests.one_broker import OneBroker

LATEST, EARLIEST, LARGEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_NOT_TIERED = -1, -2, -3, -4, -5, -6
NONE = (0, -1, -1, -1)


def ask(
    broker: OneBroker,
    version: int,
    timestamp: int,
    *,
    topic: str = "t",
    partition: int = 0,
    epoch: int = -1,
    replica: int = -1,
    committed: bool = False,
) -> tuple[int, int, int, int]:
    """(error code, timestamp, offset, leader epoch)"""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=replica, isolation_level=int(committed), topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    [answer] = broker.ask(request, version).topics[0].partitions
    assert isinstance(answer, ListOffsetsPartitionResponse)
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


@pytest.fixture
def filled(broker: OneBroker) -> OneBroker:
    """Three batches: offsets 0 to 5, timestamps 100, 200, 300, 250, 500, 400."""
    broker.create("t")
    for first, second in ((100, 200), (300, 250), (500, 400)):
        broker.append("t", 0, Record(0, first, None, b"x"), Record(1, second, None, b"x"))
    return broker


@pytest.mark.parametrize("version", range(1, 12))
def test_ends_and_times(filled: OneBroker, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert ask(filled, version, LATEST) == (0, -1, 6, epoch)
    assert ask(filled, version, EARLIEST) == (0, -1, 0, epoch)
    assert ask(filled, version, 0) == (0, 100, 0, epoch)
    assert ask(filled, version, 201) == (0, 300, 2, epoch)
    assert ask(filled, version, 350) == (0, 500, 4, epoch)
    assert ask(filled, version, 501) == NONE


@pytest.mark.parametrize(
    ("timestamp", "first", "found"),
    [
        (LARGEST, 7, (0, 500, 4, 0)),
        (EARLIEST_LOCAL, 8, (0, -1, 0, 0)),
        (LATEST_TIERED, 9, NONE),
        (EARLIEST_NOT_TIERED, 11, NONE),
        (-7, 12, NONE),
    ],
)
def test_special_offsets_have_a_first_version(
    filled: OneBroker, timestamp: int, first: int, found: tuple[int, int, int, int]
) -> None:
    for version in range(1, 12):
        expected = found if version >= first else (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
        assert ask(filled, version, timestamp) == expected


def test_a_new_leader_does_not_say_where_the_log_ends_before_it_knows(filled: OneBroker) -> None:
    """Its high watermark may be behind what a consumer has read from the leader before it."""
    partition = filled.replicas.leader("t", 0)
    partition.high_watermark = 4
    me = filled.replicas.broker_id
    partition.become(Role(leader=me, leader_epoch=1, isr=(me, 2), replicas=(me, 2)))
    assert ask(filled, 11, LATEST) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1, -1)
    assert ask(filled, 4, LATEST) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, -1)
    assert ask(filled, 11, LATEST, committed=True)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(filled, 11, 350)[0] == ErrorCode.OFFSET_NOT_AVAILABLE, "it stands behind the high watermark"
    assert ask(filled, 11, 501)[0] == ErrorCode.OFFSET_NOT_AVAILABLE, "there may be one soon"
    assert ask(filled, 11, 201) == (0, 300, 2, 0)
    assert ask(filled, 11, EARLIEST) == (0, -1, 0, 0)
    assert ask(filled, 11, LATEST, replica=-2) == (0, -1, 6, 1), "a tool for debugging has the end of the log"
    partition.fetched_by(2, 6, 0)
    assert ask(filled, 11, LATEST) == (0, -1, 6, 1)
    assert ask(filled, 11, 350) == (0, 500, 4, 0)


def test_a_moved_start_is_the_earliest(filled: OneBroker) -> None:
    filled.replicas.leader("t", 0).delete_records(3)
    assert ask(filled, 7, EARLIEST)[2] == 3


def test_an_empty_log_has_no_times(broker: OneBroker) -> None:
    broker.create("t")
    assert ask(broker, 7, LATEST) == (0, -1, 0, 0)
    assert ask(broker, 7, 0) == NONE
    assert ask(broker, 7, LARGEST) == NONE


def test_nobody_is_shown_what_is_above_the_high_watermark_but_replicas(filled: OneBroker) -> None:
    filled.replicas.leader("t", 0).high_watermark = 4
    assert ask(filled, 7, LATEST)[2] == 4
    assert ask(filled, 7, LARGEST) == NONE
    assert ask(filled, 7, LATEST, replica=-2)[2] == 6


def test_read_committed_ends_at_the_first_open_transaction(filled: OneBroker) -> None:
    filled.append("t", 0, Record(0, 600, None, b"x"), producer_id=7, transactional=True)
    assert ask(filled, 7, LATEST)[2] == 7
    assert ask(filled, 7, LATEST, committed=True)[2] == 6
    assert ask(filled, 7, 550, committed=True) == NONE


def test_leader_epochs_fence(filled: OneBroker) -> None:
    assert ask(filled, 4, LATEST, epoch=0)[0] == 0
    assert ask(filled, 4, LATEST, epoch=5)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_what_is_not_there_is_unknown(filled: OneBroker) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, -1)
    assert ask(filled, 7, LATEST, topic="missing") == unknown
    assert ask(filled, 7, LATEST, partition=7) == unknown


def test_a_partition_is_named_once(filled: OneBroker) -> None:
    twice = [ListOffsetsPartition(partition_index=0, timestamp=at) for at in (LATEST, EARLIEST)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
    answers = filled.ask(request, 7).topics[0].partitions
    assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_REQUEST] * 2


def ask_many(broker: OneBroker, *asked: ListOffsetsPartition) -> list[tuple[int, int]]:
    """(error code, offset) of each"""
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=list(asked))])
    return [(answer.error_code, answer.offset) for answer in broker.ask(request, 7).topics[0].partitions]


def fill_largely(broker: OneBroker) -> None:
    """Two partitions, each with a batch that takes long to look through."""
    broker.create("t", 2)
    for partition in range(2):
        broker.append("t", partition, *[Record(n, 100 + n, None, b"") for n in range(2000)])


def test_batches_of_many_records_are_looked_through_in_a_worker(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_largely(broker)
    searches: list[RecordSearch] = []

    def submit(call: partial[SearchResult], records: int, request: object) -> Future[SearchResult]:
        [search] = call.args
        assert records == search.most_records
        searches.append(search)
        answered: Future[SearchResult] = Future()
        answered.set_result(call())
        return answered

    monkeypatch.setattr(broker.context.batch_workers, "submit", submit)
    asked = [ListOffsetsPartition(partition_index=p, timestamp=at) for p, at in ((0, 1500), (1, LARGEST))]
    assert ask_many(broker, *asked) == [(0, 1400), (0, 1999)]
    assert [search.timestamp for search in searches] == [1500, 2099]


def test_a_worker_that_dies_costs_one_partition_its_answer(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_largely(broker)

    def submit(call: object, records: int, request: object) -> Future[SearchResult]:
        answered: Future[SearchResult] = Future()
        answered.set_exception(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "it died"))
        return answered

    monkeypatch.setattr(broker.context.batch_workers, "submit", submit)
    asked = [ListOffsetsPartition(partition_index=p, timestamp=at) for p, at in ((0, 1500), (1, LATEST))]
    assert ask_many(broker, *asked) == [(ErrorCode.UNKNOWN_SERVER_ERROR, -1), (0, 2000)]


def test_a_leader_that_is_deposed_during_a_search_says_nothing(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_largely(broker)
    partition = broker.replicas.leader("t", 0)

    def submit(call: partial[SearchResult], records: int, request: object) -> Future[SearchResult]:
        partition.become(Role(leader=2, leader_epoch=1, isr=(2,), replicas=(broker.replicas.broker_id, 2)))
        answered: Future[SearchResult] = Future()
        answered.set_result(call())
        return answered

    monkeypatch.setattr(broker.context.batch_workers, "submit", submit)
    asked = ListOffsetsPartition(partition_index=0, timestamp=1500)
    assert ask_many(broker, asked) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
