"""A follower's fetch by hand is the one that the messages declare, and so is what is read of its answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkad.wire.fetch import read_fetch
from kafkad.wire.follower_fetch import FIRST_VERSION, FollowerFetch, read_answer
from kafkad.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from kafkad.wire.schema import encode

VERSIONS = range(FIRST_VERSION, 19)
I32, I64 = st.integers(0, 2**31 - 1), st.integers(-1, 2**63 - 1)
REQUESTS = st.builds(
    FollowerFetch,
    *(I32, I32, I32, I32, I32, I32),
    *(st.binary(min_size=16, max_size=16), I32, st.integers(-1, 2**31 - 1), I64, st.integers(-1, 9), I64, I32, I64),
)


@pytest.mark.parametrize("version", VERSIONS)
@given(request=REQUESTS)
def test_it_is_packed_as_it_is_declared(version: int, request: FollowerFetch) -> None:
    asked = FetchPartition(
        partition=request.partition,
        current_leader_epoch=request.leader_epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        log_start_offset=request.start_offset,
        partition_max_bytes=request.partition_max_bytes,
    )
    declared = FetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=[FetchTopic(topic_id=request.topic_id, partitions=[asked])],
    )
    if version < 15:
        declared.replica_id = request.replica_id
    else:
        declared.replica_state = ReplicaState(replica_id=request.replica_id, replica_epoch=request.replica_epoch)
    packed = encode(request, version)
    assert packed == encode(declared, version)
    read = read_fetch(memoryview(packed), 0, version)
    assert (read.replica_id, read.replica_epoch) == (request.replica_id, request.replica_epoch if version >= 15 else -1)


def test_there_is_none_in_versions_without_topic_ids() -> None:
    with pytest.raises(ValueError, match="12"):
        FollowerFetch.encoder(12)


REQUEST = FollowerFetch(3, 500, 1, 10_000, 77, 5, b"t" * 16, 2, 1, 10, 1, 0, 1000)


def answer(**fields: object) -> FetchResponse:
    values = {"partition_index": 2, "high_watermark": 11, "last_stable_offset": 9, "log_start_offset": 4, **fields}
    return FetchResponse(
        session_id=77,
        responses=[FetchableTopicResponse(topic_id=b"t" * 16, partitions=[PartitionData(**values)])],
    )


def read(message: FetchResponse, version: int) -> tuple[int, int, bytes] | None:
    frame = b"before" + encode(message, version)
    found = read_answer(REQUEST, memoryview(frame), len(b"before"))
    return None if found is None else (found.high_watermark, found.start_offset, bytes(found.records))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("records", [None, b"", b"r", b"r" * 126, b"r" * 127, b"r" * 100_000], ids=repr)
@pytest.mark.parametrize("aborted", [None, []])
def test_an_answer_about_the_partition_alone_is_read(
    version: int, records: bytes | None, aborted: list[AbortedTransaction] | None
) -> None:
    message = answer(records=records, aborted_transactions=aborted)
    assert read(message, version) == (11, 4, records or b"")
    message.throttle_time_ms = 9
    assert read(message, version) == (11, 4, records or b"")


def _several(message: FetchResponse) -> None:
    message.responses[0].partitions.append(PartitionData(partition_index=3, records=b""))


def _several_topics(message: FetchResponse) -> None:
    message.responses.append(FetchableTopicResponse(topic_id=b"u" * 16, partitions=[]))


def _nothing(message: FetchResponse) -> None:
    message.responses = []


def _no_partition(message: FetchResponse) -> None:
    message.responses[0].partitions = []


def _other_session(message: FetchResponse) -> None:
    message.session_id = 78


def _error(message: FetchResponse) -> None:
    message.error_code = 70


def _partitions_error(message: FetchResponse) -> None:
    message.responses[0].partitions[0].error_code = 6


def _other_partition(message: FetchResponse) -> None:
    message.responses[0].partitions[0].partition_index = 3


def _other_topic(message: FetchResponse) -> None:
    message.responses[0].topic_id = b"u" * 16


def _diverges(message: FetchResponse) -> None:
    message.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=8)


def _led_elsewhere(message: FetchResponse) -> None:
    message.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=8)


def _aborted(message: FetchResponse) -> None:
    message.responses[0].partitions[0].aborted_transactions = [AbortedTransaction(producer_id=1, first_offset=2)]


def _endpoints(message: FetchResponse) -> None:
    message.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=1)]


CHANGES = (
    *(_several, _several_topics, _nothing, _no_partition, _other_session, _error, _partitions_error),
    *(_other_partition, _other_topic, _diverges, _led_elsewhere, _aborted),
)


@pytest.mark.parametrize(
    ("version", "change"),
    [*product(VERSIONS, CHANGES), *((version, _endpoints) for version in VERSIONS if version >= 16)],
)
def test_any_other_answer_is_to_be_read_whole(version: int, change: Callable[[FetchResponse], None]) -> None:
    message = answer(records=b"records")
    change(message)
    assert read(message, version) is None


@given(st.binary(max_size=120))
def test_garbage_is_no_answer(garbage: bytes) -> None:
    assert read_answer(REQUEST, memoryview(garbage), 0) is None


def test_nor_is_one_that_is_cut_off() -> None:
    frame = encode(answer(records=b"records" * 50), 17)
    for end in range(len(frame)):
        assert read_answer(REQUEST, memoryview(frame[:end]), 0) is None
