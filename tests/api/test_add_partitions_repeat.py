"""The quick way of AddPartitionsToTxn beside the general one: the same requests, the same answers, the same records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.api import add_partitions_to_txn
from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.txn.transaction import State, Transaction
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.end_txn import EndTxnRequest
from kafkad.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkad.wire.messages.init_producer_id import InitProducerIdRequest
from tests.api.frames import Frames
from tests.one_broker import OneBroker

VERSIONS = range(4)


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frames]:
    directory: Path = tmp_path_factory.mktemp("adding")
    broker = OneBroker(directory, "transaction.state.log.num.partitions=1")
    broker.ask(FindCoordinatorRequest(key="x", key_type=1), 1)
    coordination = broker.context.transactions().coordination
    broker.run_until(lambda: not coordination.loading)
    broker.create("t", 3)
    frames = Frames(broker)
    yield frames
    frames.close()
    broker.stop()


@pytest.fixture(autouse=True)
def new_connection(frames: Frames) -> None:
    frames.connection = frames.connect()


@pytest.fixture
def general(frames: Frames) -> Iterator[list[Any]]:
    """The requests that went the general way."""
    with frames.handled(add_partitions_to_txn) as handled:
        yield handled


def begun(frames: Frames, name: str) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    answer = frames.broker.ask(request, 1)
    assert not answer.error_code
    return answer.producer_id, answer.producer_epoch


def adding(name: str, producer: tuple[int, int], *indexes: int, topic: str = "t") -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(indexes))],
    )


def codes(answer: Any) -> dict[int, int]:
    return {
        one.partition_index: one.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    }


def end(frames: Frames, name: str, producer: tuple[int, int]) -> int:
    request = EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=True)
    code: int = frames.broker.ask(request, 1).error_code
    return code


def known(frames: Frames, name: str) -> Transaction:
    return frames.broker.context.transactions().describe(name).transaction


@pytest.mark.parametrize("version", VERSIONS)
def test_only_the_first_of_its_kind_goes_the_general_way(frames: Frames, general: list[Any], version: int) -> None:
    name = f"repeats-{version}"
    producer = begun(frames, name)
    for number in range(4):
        for _ in range(2):
            assert codes(frames.ask(adding(name, producer, 0, 2), version)) == {0: 0, 2: 0}
            assert known(frames, name).state is State.ONGOING
            assert known(frames, name).partitions == {TopicPartition("t", 0), TopicPartition("t", 2)}
        if number % 2:
            assert codes(frames.ask(adding(name, producer, 1), version)) == {1: 0}
            assert len(known(frames, name).partitions) == 3
        assert end(frames, name, producer) == 0
    assert len(general) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_was_fenced_is_refused_in_the_same_bytes_as_before(frames: Frames, version: int) -> None:
    name = f"fenced-{version}"
    producer = begun(frames, name)
    for _ in range(2):
        assert codes(frames.ask(adding(name, producer, 0), version)) == {0: 0}
    assert end(frames, name, producer) == 0
    begun(frames, name)
    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert codes(frames.ask(adding(name, producer, 0), version)) == {0: fenced}
    assert known(frames, name).state is State.EMPTY


def test_a_topic_that_goes(frames: Frames) -> None:
    frames.broker.create("gone")
    producer = begun(frames, "gone")
    for _ in range(2):
        assert codes(frames.ask(adding("gone", producer, 0, topic="gone"), 3)) == {0: 0}
    assert end(frames, "gone", producer) == 0
    frames.broker.ask(DeleteTopicsRequest(topic_names=["gone"], timeout_ms=5000), 5)
    answer = frames.ask(adding("gone", producer, 0, topic="gone"), 3)
    assert codes(answer) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_coordinator_that_goes(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = begun(frames, "moves")
    for _ in range(2):
        assert codes(frames.ask(adding("moves", producer, 0), 3)) == {0: 0}
    coordination = frames.broker.context.transactions().coordination
    monkeypatch.setattr(coordination, "_shards", {})
    monkeypatch.setattr(coordination, "_by_key", {})
    assert codes(frames.ask(adding("moves", producer, 0), 3)) == {0: ErrorCode.NOT_COORDINATOR}


def test_refusals_are_not_remembered(frames: Frames, general: list[Any]) -> None:
    producer = begun(frames, "refused")
    for _ in range(3):
        answer = frames.ask(adding("refused", producer, 0, 7), 3)
        assert codes(answer) == {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(general) == 3
    assert not frames.connection.peer.prepared


def test_a_connection_remembers_only_so_much(frames: Frames) -> None:
    for number in range(100):
        name = f"many-{number}"
        assert codes(frames.ask(adding(name, begun(frames, name), 0), 3)) == {0: 0}
    [repeated] = frames.connection.peer.prepared.values()
    assert len(repeated._known) <= 16  # type: ignore[attr-defined]
