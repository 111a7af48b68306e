"""Fetch through the dispatcher: limits, sessions, waits, fencing, and what readers of transactions may see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafkad.errors import ErrorCode
from kafkad.model import BrokerInfo, Endpoint
from kafkad.names import TopicPartition
from kafkad.replica.partition import Partition, Role
from kafkad.wire.control import ControlRecord, build_marker
from kafkad.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkad.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkad.wire.records import BATCH_HEADER, Record, build_batch, iter_batches, iter_records
from kafkad.wire.schema import encode
from tests.api.frames import Frames
from tests.one_broker import OneBroker

VERSIONS = range(4, 19)


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Frames]:
    frames = Frames(broker)
    yield frames
    frames.close()


def fill(frames: Frames, topic: str = "t", partition: int = 0, batches: int = 3, size: int = 10) -> None:
    for turn in range(batches):
        records = [Record(i, 1_700_000_000_000 + turn, None, bytes(size)) for i in range(2)]
        frames.broker.append(topic, partition, *records)


def request(frames: Frames, version: int, wanted: dict[int, int], topic: str = "t", **fields: int) -> FetchRequest:
    sizes = fields.pop("partition_max_bytes", 1 << 20)
    epochs = {name: fields.pop(name) for name in ("current_leader_epoch", "last_fetched_epoch") if name in fields}
    known = frames.broker.replicas.metadata.topics.get(topic)
    named = FetchTopic(topic_id=known.id if known else b"n" * 16) if version >= 13 else FetchTopic(topic=topic)
    named.partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=sizes, **epochs)
        for index, offset in wanted.items()
    ]
    limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
    return FetchRequest(topics=[named] if wanted else [], **limits)


def answers(response: FetchResponse) -> list[PartitionData]:
    return [partition for topic in response.responses for partition in topic.partitions]


def fetch(frames: Frames, version: int, wanted: dict[int, int], topic: str = "t", **fields: int) -> list[PartitionData]:
    return answers(frames.ask(request(frames, version, wanted, topic, **fields), version))


def offsets(partition: PartitionData) -> list[int]:
    view = memoryview(partition.records or b"")
    return [record.offset for at, header in iter_batches(view) for record in iter_records(view, at, header)]


@pytest.mark.parametrize("version", VERSIONS)
def test_records_come_from_the_offset_on_in_every_version(frames: Frames, version: int) -> None:
    frames.broker.create("t", 2)
    fill(frames)
    [found, empty] = fetch(frames, version, {0: 3, 1: 0})
    assert (found.partition_index, found.error_code, found.high_watermark, found.last_stable_offset) == (0, 0, 6, 6)
    assert offsets(found) == [2, 3, 4, 5], "whole batches from the one that holds the offset"
    assert (empty.partition_index, empty.high_watermark, empty.records) == (1, 0, b"")
    [end] = fetch(frames, version, {0: 6})
    assert (end.error_code, end.records) == (0, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_are_answered_per_partition(frames: Frames, version: int) -> None:
    frames.broker.create("t")
    fill(frames)
    [outside, unknown] = fetch(frames, version, {0: 7, 9: 0})
    assert (outside.error_code, outside.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    [nowhere] = fetch(frames, version, {0: 0}, "no-such")
    expected = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert nowhere.error_code == expected


def test_the_log_of_an_earlier_topic_is_not_fetched_by_the_id_of_a_later_one(frames: Frames) -> None:
    """As long as this broker has not heard that its replica is not of that topic."""
    frames.broker.create("t")
    fill(frames)
    frames.broker.replicas.get("t", 0).log.topic_id = b"o" * 16
    for _ in range(2):
        [refused] = fetch(frames, 13, {0: 0})
        assert (refused.error_code, refused.records) == (ErrorCode.INCONSISTENT_TOPIC_ID, b"")
    [by_name] = fetch(frames, 12, {0: 0})
    assert by_name.error_code == ErrorCode.NONE


def test_bytes_are_limited_but_progress_is_always_made(frames: Frames) -> None:
    frames.broker.create("t", 2)
    fill(frames, partition=0, size=1000)
    fill(frames, partition=1, size=1000)
    [first, second] = fetch(frames, 11, {0: 0, 1: 0}, partition_max_bytes=10)
    assert offsets(first) == [0, 1]
    assert offsets(second) == [], "only the first partition may exceed its limit"
    [first, second] = fetch(frames, 11, {0: 0, 1: 0}, max_bytes=9000)
    assert offsets(first) == [0, 1, 2, 3, 4, 5]
    assert len(offsets(second)) < 6
    frames.fetch.max_bytes = 100
    [first, second] = fetch(frames, 11, {0: 0, 1: 0})
    assert (offsets(first), offsets(second)) == ([0, 1], [])


def test_leader_epochs_fence_and_diverge(frames: Frames) -> None:
    frames.broker.create("t")
    fill(frames)
    assert fetch(frames, 12, {0: 0}, current_leader_epoch=0)[0].error_code == 0
    assert fetch(frames, 12, {0: 0}, current_leader_epoch=-2)[0].error_code == 0
    assert fetch(frames, 12, {0: 0}, current_leader_epoch=5)[0].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert fetch(frames, 12, {0: 0}, last_fetched_epoch=0)[0].diverging_epoch.epoch == -1
    unheard_of = fetch(frames, 12, {0: 2}, last_fetched_epoch=3)
    assert unheard_of[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    partition = frames.broker.replicas.leader("t", 0)
    frames.broker.run(_lead_again(partition, epoch=2))
    [parted] = fetch(frames, 12, {0: 2}, last_fetched_epoch=1)
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset, parted.records) == (0, 6, b"")


async def _lead_again(partition: Partition, epoch: int) -> None:
    partition.become(replace(partition.role, leader_epoch=epoch))


def test_a_session_is_told_only_news(frames: Frames) -> None:
    frames.broker.create("t", 3)
    fill(frames, partition=1)
    first = frames.ask(request(frames, 12, {0: 0, 1: 0, 2: 0}, session_epoch=0), 12)
    assert first.session_id > 0
    assert len(answers(first)) == 3

    def next_of_session(epoch: int, wanted: dict[int, int]) -> list[PartitionData]:
        return fetch(frames, 12, wanted, session_id=first.session_id, session_epoch=epoch)

    assert next_of_session(1, {1: 6}) == []
    fill(frames, partition=2, batches=1)
    [news] = next_of_session(2, {})
    assert (news.partition_index, offsets(news)) == (2, [0, 1])
    stale = frames.ask(request(frames, 12, {}, session_id=first.session_id, session_epoch=2), 12)
    assert stale.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = frames.ask(request(frames, 12, {}, session_id=first.session_id + 1, session_epoch=3), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_watchers_for_bytes_and_is_answered_when_they_come(frames: Frames) -> None:
    frames.broker.create("t", 2)
    assert frames.begin(request(frames, 12, {0: 0, 1: 0}, max_wait_ms=60_000), 12) is None
    partition = frames.broker.replicas.leader("t", 0)
    other = frames.broker.replicas.leader("t", 1)
    assert len(partition.watchers) == len(other.watchers) == 1
    fill(frames, batches=1)
    frames.broker.settle()
    [reply] = frames.connection.replies
    assert reply is not None
    [found, _] = answers(frames.decode(reply, 1, 12))
    assert offsets(found) == [0, 1]
    assert not partition.watchers
    assert not other.watchers


def test_a_fetch_waits_until_there_is_enough(frames: Frames) -> None:
    frames.broker.create("t")
    assert frames.begin(request(frames, 12, {0: 0}, max_wait_ms=60_000, min_bytes=300), 12) is None
    for enough in (False, False, True):
        fill(frames, batches=1, size=20)
        frames.broker.settle()
        assert bool(frames.connection.replies) == enough


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_fetch_does_not_wait_for_more_than_is_in_an_older_segment(frames: Frames, isolation_level: int) -> None:
    """No more would ever come of that segment: a reader of few records would stand at its end for the whole wait."""
    frames.broker.create("t")
    fill(frames, batches=1)
    frames.broker.replicas.get("t", 0).log.roll()
    fill(frames, batches=1)
    wait = {"max_wait_ms": 60_000, "min_bytes": 100_000, "isolation_level": isolation_level}
    [found] = fetch(frames, 12, {0: 0}, **wait)
    assert offsets(found) == [0, 1]
    assert frames.begin(request(frames, 12, {0: 2}, **wait), 12) is None
    frames.broker.replicas.get("t", 0).log.roll()
    fill(frames, batches=1)
    frames.broker.settle()
    [reply] = frames.connection.replies
    assert reply is not None
    [found] = answers(frames.decode(reply, 1, 12))
    assert offsets(found) == [2, 3]


def test_a_fetch_that_waits_is_forgotten_with_its_connection(frames: Frames) -> None:
    frames.broker.create("t")
    frames.begin(request(frames, 12, {0: 0}, max_wait_ms=60_000), 12)
    frames.connection.peer.closed()
    assert not frames.broker.replicas.leader("t", 0).watchers


def test_a_fetch_that_waits_hears_that_its_topic_is_gone(frames: Frames) -> None:
    frames.broker.create("t")
    frames.begin(request(frames, 12, {0: 0}, max_wait_ms=60_000), 12)
    frames.broker.run(frames.broker.controller.delete_topics(["t"], timeout_ms=5_000))
    frames.broker.settle()
    [reply] = frames.connection.replies
    assert reply is not None
    [gone] = answers(frames.decode(reply, 1, 12))
    assert gone.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_read_committed_ends_before_open_transactions_and_names_aborted_ones(frames: Frames) -> None:
    frames.broker.create("t")
    record = Record(0, 1_700_000_000_000, None, b"x")
    frames.broker.append("t", 0, record, producer_id=5, transactional=True)
    frames.broker.append("t", 0, record)
    log = frames.broker.replicas.logs.logs[TopicPartition("t", 0)]
    [hidden] = fetch(frames, 12, {0: 0}, isolation_level=1)
    assert (hidden.last_stable_offset, hidden.high_watermark, hidden.records) == (0, 2, b"")
    assert len(offsets(fetch(frames, 12, {0: 0})[0])) == 2
    marker = memoryview(
        build_marker(ControlRecord(False, 0), producer_id=5, producer_epoch=0, timestamp=1_700_000_000_000)
    )
    frames.broker.replicas.leader("t", 0).append(marker, 0, len(marker), BATCH_HEADER.unpack_from(marker))
    [shown] = fetch(frames, 12, {0: 0}, isolation_level=1)
    assert (shown.last_stable_offset, log.end_offset) == (3, 3)
    assert [(a.producer_id, a.first_offset) for a in shown.aborted_transactions or []] == [(5, 0)]


def test_aborted_transactions_are_named_with_their_records(frames: Frames) -> None:
    """Not with those before them: a reader that has much to catch up with would be told of all, each time."""
    broker = frames.broker
    broker.create("t", configs={"index.interval.bytes": "0"})
    record = Record(0, 1_700_000_000_000, None, b"x" * 500)
    for producer_id in range(5, 11):
        broker.append("t", 0, record, producer_id=producer_id, transactional=True)
        marker = memoryview(
            build_marker(ControlRecord(False, 0), producer_id=producer_id, producer_epoch=0, timestamp=0)
        )
        broker.replicas.leader("t", 0).append(marker, 0, len(marker), BATCH_HEADER.unpack_from(marker))
    for offset in range(0, 12, 2):
        [found] = fetch(frames, 12, {0: offset}, isolation_level=1, partition_max_bytes=600)
        assert offsets(found) == [offset]
        assert [(a.producer_id, a.first_offset) for a in found.aborted_transactions or []] == [
            (5 + offset // 2, offset)
        ]
    [found] = fetch(frames, 12, {0: 0}, isolation_level=1)
    assert [a.producer_id for a in found.aborted_transactions or []] == list(range(5, 11))


def test_an_isolation_level_that_there_is_none_of(frames: Frames) -> None:
    frames.broker.create("t")
    fill(frames, batches=1)
    [refused] = fetch(frames, 11, {0: 0}, isolation_level=7)
    assert (refused.error_code, refused.records, refused.last_stable_offset) == (
        ErrorCode.UNKNOWN_SERVER_ERROR,
        b"",
        -1,
    )
    latest = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = frames.broker.ask(ListOffsetsRequest(replica_id=-1, isolation_level=7, topics=[latest]), 7)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_follower_that_is_none_is_sent_away(frames: Frames) -> None:
    frames.broker.create("t")
    [answer] = fetch(frames, 11, {0: 0}, replica_id=3)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("version", [15, 16, 18])
@pytest.mark.parametrize("is_consumer", [False, True])
def test_a_reader_is_told_who_leads_instead(frames: Frames, is_consumer: bool, version: int) -> None:
    """From version 16 on (KIP-951). A consumer may read here, unless it knows of an earlier leader only."""
    frames.broker.create("t")
    endpoint = Endpoint(listener=frames.connection.peer.listener, host="two", port=9002)
    frames.broker.replicas.metadata.brokers[2] = BrokerInfo(id=2, endpoints=(endpoint,))
    follow(frames)
    asked = request(frames, version, {0: 0}, current_leader_epoch=5 if is_consumer else 6)
    asked.replica_state = ReplicaState(replica_id=-1 if is_consumer else 3)
    response = frames.ask(asked, version)
    [answer] = answers(response)
    refusal = ErrorCode.FENCED_LEADER_EPOCH if is_consumer else ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.error_code == refusal
    leader = answer.current_leader
    assert (leader.leader_id, leader.leader_epoch) == ((2, 6) if version >= 16 else (-1, -1))
    known = [NodeEndpoint(node_id=2, host="two", port=9002)] if version >= 16 else []
    assert response.node_endpoints == known


def follow(frames: Frames) -> None:
    """Have broker 2 lead, in leader epoch 6."""
    role = Role(leader=2, leader_epoch=6, partition_epoch=6, isr=(1, 2), replicas=(1, 2))

    async def become() -> None:
        frames.broker.replicas.get("t", 0).become(role)

    frames.broker.run(become())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_serves_consumers_up_to_its_high_watermark(frames: Frames, version: int) -> None:
    """From version 11 on (KIP-392), whatever is set here: another broker may have sent them."""
    frames.broker.create("t")
    fill(frames, batches=2)
    follow(frames)
    partition = frames.broker.replicas.get("t", 0)
    assert partition.following is not None
    copied = build_batch([Record(4, 0, None, b"not committed yet")], base_offset=4, leader_epoch=6)
    partition.following.append(memoryview(copied), 4, 0)
    for offset, found in ((0, [0, 1, 2, 3]), (2, [2, 3]), (4, []), (5, [])):
        [answer] = fetch(frames, version, {0: offset})
        if version < 11:
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            assert (answer.error_code, answer.high_watermark, offsets(answer)) == (0, 4, found)
    [beyond] = fetch(frames, version, {0: 6})
    assert beyond.error_code == (ErrorCode.OFFSET_OUT_OF_RANGE if version >= 11 else ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_only_what_is_on_the_disk_is_shown_where_that_is_asked_for(frames: Frames) -> None:
    """kafkad.read.flushed.only, as Kafka 0.7 had it; who waits is answered by the flush."""
    broker = frames.broker
    broker.create("t", configs={"kafkad.read.flushed.only": "true"})
    fill(frames, batches=1)
    partition = broker.replicas.leader("t", 0)
    [hidden] = fetch(frames, 12, {0: 0})
    assert (hidden.error_code, hidden.high_watermark, hidden.last_stable_offset, hidden.records) == (0, 0, 0, b"")
    latest = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    question = ListOffsetsRequest(replica_id=-1, topics=[latest])
    assert broker.ask(question, 7).topics[0].partitions[0].offset == 0
    broker.run(broker.durable.flush(partition.log))
    [shown] = fetch(frames, 12, {0: 0})
    assert (offsets(shown), shown.high_watermark) == ([0, 1], 2)
    assert broker.ask(question, 7).topics[0].partitions[0].offset == 2
    fill(frames, batches=1)
    assert frames.begin(request(frames, 12, {0: 2}, max_wait_ms=60_000), 12) is None
    broker.run(broker.durable.flush(partition.log))
    broker.settle()
    [reply] = frames.connection.replies
    assert reply is not None
    [shown] = answers(frames.decode(reply, 1, 12))
    assert offsets(shown) == [2, 3]


def test_a_consumer_that_repeats_itself_sees_no_more(frames: Frames) -> None:
    """The short way of a repeated fetch knows nothing of what is on the disk."""
    broker = frames.broker
    broker.create("t")
    fill(frames, batches=4)
    ask = request(frames, 12, {0: 0}, partition_max_bytes=1)
    frames.ask(ask, 12)
    change = AlterableConfig(name="kafkad.read.flushed.only", config_operation=0, value="true")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    broker.settle()
    for offset in (2, 4, 6):
        [found] = fetch(frames, 12, {0: offset}, partition_max_bytes=1)
        assert (found.records, found.high_watermark) == (b"", 0)


# -- followers


def replicate(frames: Frames, isr: tuple[int, ...], epoch: int = 5, replicas: tuple[int, ...] = (1, 2)) -> Partition:
    """As a LeaderAndIsr would say it."""
    partition = frames.broker.replicas.get("t", 0)

    async def become() -> None:
        partition.become(Role(leader=1, leader_epoch=epoch, partition_epoch=1, isr=isr, replicas=replicas))

    frames.broker.run(become())
    return partition


def test_a_follower_reads_to_the_end_of_the_log_and_says_how_far_it_has_come(frames: Frames) -> None:
    frames.broker.create("t")
    partition = replicate(frames, (1, 2))
    fill(frames)
    assert not fetch(frames, 11, {0: 0})[0].records, "consumers see what is committed"
    [first] = fetch(frames, 11, {0: 0}, replica_id=2, current_leader_epoch=5)
    assert (len(list(iter_batches(memoryview(first.records)))), first.high_watermark) == (3, 0)
    [second] = fetch(frames, 11, {0: 4}, replica_id=2)
    assert (len(list(iter_batches(memoryview(second.records)))), second.high_watermark) == (1, 4)
    assert partition.high_watermark == 4
    assert len(list(iter_batches(memoryview(fetch(frames, 11, {0: 0})[0].records)))) == 2


def test_acks_all_is_answered_when_the_follower_has_fetched_and_not_before(frames: Frames) -> None:
    frames.broker.create("t")
    replicate(frames, (1, 2))
    batch = bytes(build_batch([Record(0, 1_000, None, b"v")]))
    for turn in range(3):  # from the second on, by the bytes that repeat
        data = PartitionProduceData(index=0, records=batch)
        message = ProduceRequest(
            acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name="t", partition_data=[data])]
        )
        assert frames.begin(message, 9) is None
        [answer] = fetch(frames, 11, {0: turn}, replica_id=2)
        assert answer.records
        assert not frames.connection.replies, "it has been sent the batch, which it may never get"
        fetch(frames, 11, {0: turn + 1}, replica_id=2)
        [reply] = frames.connection.replies
        frames.connection.replies.clear()
        assert reply is not None
        [[produced]] = [topic.partition_responses for topic in frames.decode(reply, 0, 9).responses]
        assert (produced.error_code, produced.base_offset) == (ErrorCode.NONE, turn)


def test_an_append_wakes_a_waiting_follower_though_nothing_is_committed(frames: Frames) -> None:
    frames.broker.create("t")
    replicate(frames, (1, 2))
    waiting = request(frames, 11, {0: 0}, replica_id=2, max_wait_ms=60_000)
    assert frames.begin(waiting, 11) is None
    fill(frames, batches=1)
    frames.broker.settle()
    [reply] = frames.connection.replies
    assert reply is not None
    assert answers(frames.decode(reply, 1, 11))[0].records


def test_a_wait_does_not_tell_again_how_far_the_follower_has_come(frames: Frames) -> None:
    """The offset of the request that waited must not be noted again when it is answered."""
    frames.broker.create("t")
    partition = replicate(frames, (1, 2))
    asked: list[int] = []
    noted = partition.fetched_by
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Partition, "fetched_by", lambda self, *how_far: (asked.append(how_far[1]), noted(*how_far))[1])
        assert frames.begin(request(frames, 11, {0: 0}, replica_id=2, max_wait_ms=60_000), 11) is None
        fill(frames, batches=1)
        frames.broker.settle()
    assert frames.connection.replies
    assert asked == [0]


def test_a_follower_whose_history_differs_has_not_come_that_far(frames: Frames) -> None:
    frames.broker.create("t")
    partition = replicate(frames, (1, 2), epoch=5)
    fill(frames)
    partition = replicate(frames, (1, 2), epoch=7)
    [answer] = fetch(frames, 12, {0: 6}, replica_id=2, last_fetched_epoch=6)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (5, 6)
    assert partition.high_watermark == 0
    fetch(frames, 12, {0: 6}, replica_id=2, last_fetched_epoch=5)
    assert partition.high_watermark == 6


@pytest.mark.parametrize("version", [11, 15])
@pytest.mark.parametrize(
    ("epoch", "code"), [(5, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
)
def test_who_is_no_follower_is_told_to_come_again(frames: Frames, version: int, epoch: int, code: ErrorCode) -> None:
    frames.broker.create("t")
    replicate(frames, (1, 2))
    message = request(frames, version, {0: 0}, current_leader_epoch=epoch)
    if version >= 15:
        message.replica_state = ReplicaState(replica_id=3)
    else:
        message.replica_id = 3
    [answer] = answers(frames.ask(message, version))
    assert answer.error_code == code


def test_a_session_tells_a_follower_each_time_that_its_history_differs(frames: Frames) -> None:
    """Nothing else may have changed since it was told last: it would go on asking the same question."""
    frames.broker.create("t")
    replicate(frames, (1, 2), epoch=5)
    fill(frames)
    first = frames.ask(request(frames, 12, {0: 6}, replica_id=2, last_fetched_epoch=5, session_epoch=0), 12)
    replicate(frames, (1, 2), epoch=8)
    session = {"replica_id": 2, "session_id": first.session_id}
    fetch(frames, 12, {}, session_epoch=1, **session)
    for session_epoch in (2, 3):
        [answer] = fetch(frames, 12, {0: 6}, last_fetched_epoch=7, session_epoch=session_epoch, **session)
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (5, 6)


def test_a_large_request_that_ends_too_soon_closes_the_connection(
    frames: Frames, caplog: pytest.LogCaptureFixture
) -> None:
    frames.broker.create("t", 1)
    end = encode(request(frames, 12, {599: 0}), 12)[-9:]
    assert frames.begin(request(frames, 12, dict.fromkeys(range(600), 0)), 12, damage=(end, b"")) is None
    frames.broker.run_until(lambda: frames.connection.closed)
    assert "Fetch v12 is malformed: " in caplog.text
