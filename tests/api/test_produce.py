"""Produce through the dispatcher: the repeated way, the direct way, the slow way, and every refusal."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.log.batch_workers import BatchWorkers
from kafkad.log.move import Moves
from kafkad.model import BrokerInfo, Endpoint
from kafkad.names import TopicPartition
from kafkad.replica.partition import Role
from kafkad.wire.compression import Codec
from kafkad.wire.messages.produce import (
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kafkad.wire.records import Record, build_batch, iter_batches, iter_records
from tests.api.frames import Frames
from tests.log.produced import changed
from tests.one_broker import OneBroker

VERSIONS = range(3, 14)
VALUES = [Record(i, 1_700_000_000_000 + i, b"k%d" % i, b"v%d" % i) for i in range(3)]


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Frames]:
    frames = Frames(broker)
    yield frames
    frames.close()


def batch(records: list[Record] = VALUES, **options: int) -> bytes:
    return bytes(build_batch(records, **options))


def request(
    frames: Frames, version: int, partitions: dict[int, bytes | None], topic: str = "t", acks: int = -1
) -> ProduceRequest:
    data = TopicProduceData(
        partition_data=[PartitionProduceData(index=index, records=records) for index, records in partitions.items()]
    )
    known = frames.broker.replicas.metadata.topics.get(topic)
    if version >= 13:
        data.topic_id = known.id if known else b"n" * 16
    else:
        data.name = topic
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[data])


def produce(
    frames: Frames, records: bytes | None, version: int = 9, *, topic: str = "t", partition: int = 0, acks: int = -1
) -> PartitionProduceResponse:
    response = frames.ask(request(frames, version, {partition: records}, topic, acks), version)
    [answered] = response.responses
    [answer] = answered.partition_responses
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def stored(frames: Frames, topic: str = "t", partition: int = 0) -> list[Record]:
    log = frames.broker.replicas.logs.logs[TopicPartition(topic, partition)]
    view = memoryview(b"".join(Path(segment.path(".log")).read_bytes() for segment in log.segments))
    return [record for at, header in iter_batches(view) for record in iter_records(view, at, header)]


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_are_appended_and_answered_in_every_version(frames: Frames, version: int) -> None:
    frames.broker.create("t", 2)
    for turn in range(4):  # from the second on, by the bytes that repeat
        answer = produce(frames, batch(), version, partition=1)
        assert (answer.index, answer.error_code, answer.base_offset) == (1, 0, 3 * turn)
        assert version < 5 or answer.log_start_offset == 0
    assert [(r.offset, r.value) for r in stored(frames, partition=1)] == [(i, b"v%d" % (i % 3)) for i in range(12)]
    assert frames.connection.peer.prepared


def test_nothing_is_appended_to_the_log_of_an_earlier_topic_by_the_id_of_a_later_one(frames: Frames) -> None:
    """As long as this broker has not heard that its replica is not of that topic."""
    frames.broker.create("t")
    frames.broker.replicas.get("t", 0).log.topic_id = b"o" * 16
    for _ in range(2):
        assert produce(frames, batch(), 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert stored(frames) == []
    assert produce(frames, batch(), 12).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_request_that_is_not_ordinary_gets_its_own_answer(frames: Frames, version: int) -> None:
    frames.broker.create("t")
    for _ in range(2):
        produce(frames, batch(), version)
    broken = bytearray(batch())
    broken[-1] ^= 1
    assert produce(frames, bytes(broken), version).error_code == ErrorCode.CORRUPT_MESSAGE
    assert produce(frames, None, version).error_code == ErrorCode.INVALID_RECORD
    assert produce(frames, batch() + batch(), version).error_code == ErrorCode.INVALID_RECORD
    assert produce(frames, batch(), version).base_offset == 6


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_each_partition_gets_its_own_answer(frames: Frames, version: int) -> None:
    frames.broker.create("t", 3)
    broken = bytearray(batch())
    broken[-1] ^= 1
    asked = request(frames, version, {0: batch(), 1: bytes(broken), 2: batch(), 7: batch()})
    [topic] = frames.ask(asked, version).responses
    assert [(a.index, a.error_code, a.base_offset) for a in topic.partition_responses] == [
        (0, 0, 0),
        (1, ErrorCode.CORRUPT_MESSAGE, -1),
        (2, 0, 0),
        (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


def test_unknown_topics_and_acks_are_refused(frames: Frames) -> None:
    frames.broker.create("t")
    assert produce(frames, batch(), topic="no-such").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(frames, batch(), 13, topic="no-such").error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert produce(frames, batch(), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert stored(frames) == []


def test_internal_topics_take_records_from_the_admin_client_only(frames: Frames) -> None:
    frames.broker.create("__consumer_offsets", configs={"cleanup.policy": "delete"})
    asked = request(frames, 9, {0: batch()}, "__consumer_offsets")
    for client, code in (("anyone", ErrorCode.INVALID_TOPIC_EXCEPTION), ("__admin_client", ErrorCode.NONE)):
        [topic] = frames.ask(asked, 9, client).responses
        assert topic.partition_responses[0].error_code == code
    assert produce(frames, batch(), topic="__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_what_a_client_must_not_send_is_refused(frames: Frames) -> None:
    frames.broker.create("t", configs={"max.message.bytes": "1000"})
    large = batch([Record(0, 0, None, bytes(2000))])
    assert produce(frames, large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    transactional = batch(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    assert produce(frames, transactional).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    zstd = batch(codec=Codec.ZSTD)
    assert produce(frames, zstd, 6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(frames, zstd, 7).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unfinished_batch_behind_the_batch_is_not_looked_at(frames: Frames, version: int) -> None:
    frames.broker.create("t")
    for turn in range(3):
        answer = produce(frames, batch() + batch()[:-1], version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3 * turn)
    assert [r.value for r in stored(frames)] == [b"v0", b"v1", b"v2"] * 3


def test_what_is_no_batch_is_answered_why(frames: Frames) -> None:
    frames.broker.create("t")
    answer = produce(frames, batch().replace(b"\2", b"\xff", 1))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert answer.error_message == "Invalid magic found in record: -1"
    answer = produce(frames, bytes(61))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert answer.error_message == "Record size 0 is less than the minimum record overhead (14)"


@pytest.mark.parametrize(
    ("sent", "code", "start"),
    [
        (bytes(changed(batch(), base_offset=5)), ErrorCode.INVALID_RECORD, 0),
        (bytes(changed(batch(), record_count=2)), ErrorCode.INVALID_RECORD, 0),
        (bytes(changed(batch(), attributes=5)), ErrorCode.UNKNOWN_SERVER_ERROR, 0),
        (bytes(changed(batch(), attributes=1)), ErrorCode.UNKNOWN_SERVER_ERROR, 0),
        (batch() * 2, ErrorCode.INVALID_RECORD, -1),
        (batch()[:-1], ErrorCode.INVALID_RECORD, -1),
        (batch()[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE, -1),
    ],
    ids=["base offset", "count", "codec 5", "no gzip", "two", "cut off", "CRC"],
)
def test_where_the_log_starts_is_said_of_a_batch_that_was_looked_into(
    frames: Frames, sent: bytes, code: ErrorCode, start: int
) -> None:
    frames.broker.create("t")
    answer = produce(frames, sent)
    assert (answer.error_code, answer.log_start_offset, answer.error_message) == (code, start, None)


def test_sequences_of_an_idempotent_producer(frames: Frames) -> None:
    frames.broker.create("t")

    def numbered(sequence: int, epoch: int = 0) -> PartitionProduceResponse:
        return produce(frames, batch(producer_id=5, producer_epoch=epoch, base_sequence=sequence))

    assert [numbered(s).base_offset for s in (0, 3, 6)] == [0, 3, 6]
    again = numbered(3)
    assert (again.error_code, again.base_offset) == (0, 3), "a duplicate is answered as the first time"
    assert numbered(30).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert numbered(0, epoch=1).base_offset == 9
    assert numbered(9).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(stored(frames)) == 12


def test_log_append_time_is_answered_and_stored(frames: Frames) -> None:
    frames.broker.create("t", configs={"message.timestamp.type": "LogAppendTime"})
    for _ in range(2):
        answer = produce(frames, batch())
        assert answer.log_append_time_ms > 1_700_000_000_000
    assert {record.timestamp for record in stored(frames)} >= {answer.log_append_time_ms}


@pytest.mark.parametrize("compressed", [Codec.NONE, Codec.LZ4])
def test_each_timestamp_has_to_be_within_the_topics_limits(frames: Frames, compressed: int) -> None:
    frames.broker.create("t", configs={"message.timestamp.before.max.ms": "3600000"})
    now_ms = frames.broker.context.clock.now_ms()
    mixed = [Record(0, now_ms, b"k", b"new"), Record(1, now_ms - 7_200_000, b"k", b"old")]
    answer = produce(frames, batch(mixed, codec=compressed))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.INVALID_TIMESTAMP, 0)
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert produce(frames, batch(mixed[:1], codec=compressed)).error_code == ErrorCode.NONE


def test_a_batch_has_to_fit_into_a_segment(frames: Frames) -> None:
    frames.broker.create("t", configs={"segment.bytes": "300"})
    assert produce(frames, batch()).error_code == ErrorCode.NONE
    large = batch([Record(0, 1_700_000_000_000, None, bytes(300))])
    assert produce(frames, large).error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert [record.offset for record in stored(frames)] == [0, 1, 2]


@pytest.mark.parametrize("compressed", [Codec.NONE, Codec.LZ4])
def test_a_compacted_topic_refuses_records_without_a_key_and_says_which(frames: Frames, compressed: int) -> None:
    frames.broker.create("t", configs={"cleanup.policy": "compact"})
    keyless = [VALUES[0], Record(1, 1_700_000_000_000, None, b"x"), VALUES[2]]
    answer = produce(frames, batch(keyless, codec=compressed))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert produce(frames, batch(codec=compressed)).error_code == ErrorCode.NONE
    assert [r.key for r in stored(frames)] == [b"k0", b"k1", b"k2"]


def test_a_topic_with_its_own_codec_gets_its_batches_rebuilt(frames: Frames) -> None:
    frames.broker.create("t", configs={"compression.type": "zstd"})
    assert produce(frames, batch(codec=Codec.GZIP)).base_offset == 0
    assert produce(frames, batch()).base_offset == 3
    assert [r.value for r in stored(frames)] == [b"v0", b"v1", b"v2"] * 2
    log = frames.broker.replicas.logs.logs[TopicPartition("t", 0)]
    view = memoryview(Path(log.segments[0].path(".log")).read_bytes())
    assert {header.codec for _, header in iter_batches(view)} == {Codec.ZSTD}


def test_what_waits_for_a_worker_at_the_end_of_a_stop_is_not_appended_any_more(
    frames: Frames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logs are being closed."""
    frames.broker.create("t", configs={"compression.type": "zstd"})
    asked: list[tuple[Callable[[], Any], Future[Any]]] = []

    def submit(workers: BatchWorkers, call: Callable[[], Any], records: int, request: object) -> Future[Any]:
        asked.append((call, Future()))
        return asked[-1][1]

    monkeypatch.setattr("kafkad.api.produce.quick_enough", lambda header, config: False)
    monkeypatch.setattr(BatchWorkers, "submit", submit)
    assert frames.begin(request(frames, 9, {0: batch(codec=Codec.GZIP)}), 9) is None
    frames.broker.settle()
    [(call, result)] = asked
    assert not frames.produce.idle
    frames.broker.run(frames.produce.stop())
    assert frames.produce.idle
    if result.set_running_or_notify_cancel():
        result.set_result(call())
    frames.broker.settle()
    assert stored(frames) == []


@pytest.mark.parametrize("settings", [{"kafkad.acks.fsync": "true"}, {"flush.messages": "1"}])
def test_a_durable_topic_is_answered_after_an_fsync(frames: Frames, settings: dict[str, str]) -> None:
    frames.broker.create("t", configs=settings)
    assert frames.begin(request(frames, 9, {0: batch()}), 9) is None, "not before the disk has it"
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    frames.connection.replies.clear()
    assert produce(frames, batch()).base_offset == 3


@pytest.mark.parametrize(("acks", "code"), [(1, ErrorCode.NONE), (-1, ErrorCode.REQUEST_TIMED_OUT)])
def test_only_a_producer_that_waits_for_followers_gives_up_waiting(frames: Frames, acks: int, code: ErrorCode) -> None:
    """Others would send again what is in the log already."""
    frames.broker.create("t", configs={"flush.messages": "1"})
    hasty = request(frames, 9, {0: batch()}, acks=acks)
    hasty.timeout_ms = 0
    assert frames.begin(hasty, 9) is None
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert [answer.error_code for answer in answers(frames)] == [code]


@pytest.mark.parametrize("earlier", [0, 2])
def test_a_failed_fsync_is_told_whether_the_request_repeats_or_not(
    frames: Frames, monkeypatch: pytest.MonkeyPatch, earlier: int
) -> None:
    frames.broker.create("t", configs={"kafkad.acks.fsync": "true"})
    for _ in range(earlier):
        assert produce(frames, batch()).error_code == ErrorCode.NONE

    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as disk:
        disk.setattr(frames.broker.replicas.logs.files, "sync", refuse)
        answer = produce(frames, batch())
    assert (answer.error_code, answer.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("settings", [{"kafkad.acks.fsync": "true"}, {"flush.messages": "1"}])
def test_a_failed_fsync_takes_its_directory_offline_though_its_producer_waits_no_more(
    frames: Frames, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    """The kernel has dropped the records, and the next fsync would say that all is well."""
    frames.broker.create("t", configs=settings)
    hangs, refused = threading.Event(), threading.Event()

    def refuse_once_and_late(fd: int) -> None:
        if not refused.is_set():
            hangs.wait(20)
            refused.set()
            raise OSError(errno.EIO, "the disk is gone")

    impatient = request(frames, 9, {0: batch()})
    impatient.timeout_ms = 1
    partition = frames.broker.replicas.get("t", 0)
    with monkeypatch.context() as disk:
        disk.setattr(frames.broker.replicas.logs.files, "sync", refuse_once_and_late)
        assert frames.begin(impatient, 9) is None

        def answered() -> bool:
            frames.broker.timers.expire(frames.broker.context.clock.monotonic_ms())
            return bool(frames.connection.replies)

        frames.broker.run_until(answered)
        assert [answer.error_code for answer in answers(frames)] == [ErrorCode.REQUEST_TIMED_OUT]
        assert partition.failure is None
        hangs.set()
        deadline = time.monotonic() + 20
        frames.broker.run_until(lambda: partition.failure is not None or time.monotonic() > deadline)
    assert produce(frames, batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("is_deleted", [False, True], ids=["moved", "deleted"])
@pytest.mark.parametrize("settings", [{"kafkad.acks.fsync": "true"}, {"flush.messages": "1"}])
def test_a_log_that_goes_before_its_fsync_begins_is_not_flushed(
    frames: Frames, settings: dict[str, str], is_deleted: bool
) -> None:
    """Its files have gone, too. Of one that was moved its copy is flushed."""
    frames.broker.create("t", configs=settings)
    replicas, tp = frames.broker.replicas, TopicPartition("t", 0)
    partition, moves = replicas.leader("t", 0), Moves(replicas.logs)
    [target] = [path for path in frames.broker.directories if path != os.path.dirname(partition.log.directory)]

    def delete() -> None:
        replicas._stop(tp, partition.leader_epoch, delete=True)

    def move() -> None:
        moves.start(tp, target)
        while (moved := moves.finish(tp)) is None:
            moves.step(tp)
        partition.take_log(moved.log)
        for write in moved.put_away():
            write.write()

    assert frames.begin(request(frames, 9, {0: batch()}), 9, then=delete if is_deleted else move) is None
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    assert [answer.error_code for answer in answers(frames)] == [ErrorCode.NONE]
    assert all(directory.failure is None for directory in replicas.logs.directories)
    assert is_deleted or partition.log.flushed_until == 3


def with_follower(frames: Frames, epoch: int, **change: object) -> None:
    """As a LeaderAndIsr would say it: broker 2 is in sync, too."""
    role = Role(leader=1, leader_epoch=epoch, partition_epoch=epoch, isr=(1, 2), replicas=(1, 2))
    partition = frames.broker.replicas.get("t", 0)

    async def become() -> None:
        partition.become(replace(role, **change))  # type: ignore[arg-type]

    frames.broker.run(become())


@pytest.mark.parametrize("earlier", [0, 2])
@pytest.mark.parametrize("settings", [{}, {"compression.type": "zstd"}, {"kafkad.acks.fsync": "true"}])
def test_acks_all_is_not_answered_before_all_that_are_in_sync_have_it(
    frames: Frames, settings: dict[str, str], earlier: int
) -> None:
    """On every way: the repeated, the direct and the slow one."""
    frames.broker.create("t", configs=settings)
    for _ in range(earlier):
        produce(frames, batch())
    with_follower(frames, 5)
    assert frames.begin(request(frames, 9, {0: batch()}), 9) is None
    log = frames.broker.replicas.get("t", 0).log
    frames.broker.run_until(lambda: log.end_offset == 3 * earlier + 3)
    frames.broker.settle()
    assert not frames.connection.replies
    with_follower(frames, 6, isr=(1,))
    frames.broker.run_until(lambda: bool(frames.connection.replies))
    [answer] = answers(frames)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3 * earlier)


def answers(frames: Frames) -> list[PartitionProduceResponse]:
    reply = frames.connection.replies.pop()
    assert reply is not None
    [topic] = frames.decode(reply, 0, 9).responses
    return list(topic.partition_responses)


@pytest.mark.parametrize("acks", [0, 1])
def test_lesser_acks_wait_for_nobody(frames: Frames, acks: int) -> None:
    frames.broker.create("t")
    with_follower(frames, 5)
    for _ in range(3):
        reply = frames.begin(request(frames, 9, {0: batch()}, acks=acks), 9)
        assert (reply is not None) == (acks == 1)
    assert not frames.connection.replies
    assert len(stored(frames)) == 9
    assert frames.broker.replicas.get("t", 0).high_watermark == 0


@pytest.mark.parametrize("earlier", [0, 2])
def test_a_leader_that_leads_no_more_says_so_to_those_who_wait(frames: Frames, earlier: int) -> None:
    frames.broker.create("t")
    for _ in range(earlier):
        produce(frames, batch())
    with_follower(frames, 5)
    assert frames.begin(request(frames, 9, {0: batch()}), 9) is None
    with_follower(frames, 6, leader=2)
    [answer] = answers(frames)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize("earlier", [0, 2])
@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_client_is_told_who_leads_instead(frames: Frames, version: int, earlier: int) -> None:
    """From version 10 on (KIP-951): one that waits, and one that comes later."""
    frames.broker.create("t")
    endpoint = Endpoint(listener=frames.connection.peer.listener, host="two", port=9002)
    frames.broker.replicas.metadata.brokers[2] = BrokerInfo(id=2, endpoints=(endpoint,), rack="r")
    for _ in range(earlier):
        produce(frames, batch(), version)
    with_follower(frames, 5)
    assert frames.begin(request(frames, version, {0: batch()}), version) is None
    with_follower(frames, 6, leader=2)
    waited = frames.connection.replies.pop()
    assert waited is not None
    later = frames.ask(request(frames, version, {0: batch()}), version)
    for response in (frames.decode(waited, 0, version), later):
        [answer] = response.responses[0].partition_responses
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = answer.current_leader
        assert (leader.leader_id, leader.leader_epoch) == ((2, 6) if version >= 10 else (-1, -1))
        known = [NodeEndpoint(node_id=2, host="two", port=9002, rack="r")] if version >= 10 else []
        assert response.node_endpoints == known


def test_what_nobody_confirms_in_time_is_told_so(frames: Frames) -> None:
    frames.broker.create("t")
    with_follower(frames, 5)
    slow = request(frames, 9, {0: batch()})
    slow.timeout_ms = 1
    assert frames.begin(slow, 9) is None
    frames.broker.run_until(lambda: bool(frames.broker.timers.expire(frames.broker.context.clock.monotonic_ms())))
    [answer] = answers(frames)
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert not frames.broker.replicas.get("t", 0).commit_waits, "or every retry leaves one, as long as a follower hangs"


def test_too_few_in_sync_refuse_acks_all_and_nothing_is_written(frames: Frames) -> None:
    frames.broker.create("t", configs={"min.insync.replicas": "2"})
    with_follower(frames, 5)
    assert frames.begin(request(frames, 9, {0: batch()}), 9) is None
    with_follower(frames, 6, isr=(1,))
    for _ in range(2):
        assert produce(frames, batch()).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(stored(frames)) == 3
    assert produce(frames, batch(), acks=1).base_offset == 3


@pytest.mark.parametrize("passing", [{"isr": (1,)}, {"leader": 2}], ids=["too few in sync", "led elsewhere"])
def test_batches_behind_one_that_is_sent_again_are_told_to_come_again_too(
    frames: Frames, passing: dict[str, object]
) -> None:
    """They were sent before that one's answer; librdkafka takes a new epoch for one that is out of order, and writes
    what other partitions have of the old one again."""
    frames.broker.create("t", configs={"min.insync.replicas": "2"})
    with_follower(frames, 5, **passing)
    first, second, third = (batch(producer_id=7, producer_epoch=0, base_sequence=at) for at in (0, 3, 6))
    passed = ErrorCode.NOT_ENOUGH_REPLICAS
    refused = passed if "isr" in passing else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(frames, first).error_code == refused
    with_follower(frames, 6)
    assert produce(frames, second, acks=1).error_code == passed
    assert [produce(frames, each, acks=1).base_offset for each in (first, second, third)] == [0, 3, 6]
    late = batch(producer_id=7, producer_epoch=0, base_sequence=12)
    assert produce(frames, late, acks=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_is_confirmed_when_the_first_one_is_committed(frames: Frames) -> None:
    frames.broker.create("t")
    with_follower(frames, 5)
    once = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    assert frames.begin(request(frames, 9, {0: once}), 9) is None
    first = frames.connection.later
    assert frames.begin(request(frames, 9, {0: once}), 9) is None
    assert frames.connection.later is not first
    assert len(stored(frames)) == 3
    with_follower(frames, 6, isr=(1,))
    assert produce(frames, once).base_offset == 0


def test_acks_0_is_not_answered_and_a_failure_closes(frames: Frames) -> None:
    frames.broker.create("t")
    for _ in range(3):
        assert frames.begin(request(frames, 9, {0: batch()}, acks=0), 9) is None
    assert len(stored(frames)) == 9
    assert not frames.connection.closed
    frames.begin(request(frames, 9, {0: None}, acks=0), 9)
    assert frames.connection.closed


def test_a_topic_made_anew_is_not_confused_with_the_one_before(frames: Frames) -> None:
    frames.broker.create("t")
    for _ in range(2):
        produce(frames, batch())
    frames.broker.run(frames.broker.controller.delete_topics(["t"], timeout_ms=5_000))
    assert produce(frames, batch()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    frames.broker.create("t")
    assert produce(frames, batch()).base_offset == 0
    assert produce(frames, batch()).base_offset == 3
    assert len(stored(frames)) == 6


def test_a_request_for_many_partitions_that_ends_too_soon_closes_the_connection(
    frames: Frames, caplog: pytest.LogCaptureFixture
) -> None:
    """It is read in pieces, so that nobody waits for that."""
    frames.broker.create("t", 1)
    last = (599).to_bytes(4) + bytes(4)
    asked = request(frames, 9, {**dict.fromkeys(range(599), batch()), 599: None})
    assert frames.begin(asked, 9, damage=(last, b"")) is None
    frames.broker.run_until(lambda: frames.connection.closed)
    assert "Produce v9 is malformed: " in caplog.text
    assert stored(frames) == [], "nothing was written"
