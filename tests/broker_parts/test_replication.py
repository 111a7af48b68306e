"""Followers copy what their leaders have: brokers on one loop and a clock of the test's own, by either kind of link."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkad.broker.partition_metrics import partition_families
from kafkad.controller.topics import NewTopic
from kafkad.errors import ErrorCode
from kafkad.log.deletion import delete_old_segments
from kafkad.metrics import Registry
from kafkad.names import TopicPartition
from kafkad.replica import fetchers, manager
from kafkad.replica.partition import Partition
from kafkad.turns import Turns
from kafkad.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkad.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tests.broker_parts.several import MEMORY, NETWORK, Brokers, FrameConnection
from tests.fakes import FaultyFiles
from tests.one_broker import FakeConnection, handled

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
LAG_MS = 10_000
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(params=[MEMORY, NETWORK])
def three(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    yield from cluster(tmp_path, request.param)


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Brokers]:
    yield from cluster(tmp_path, MEMORY)


def cluster(directory: Path, links: str) -> Iterator[Brokers]:
    brokers = Brokers(directory, links, f"replica.lag.time.max.ms={LAG_MS}")
    brokers.start(1, 2, 3)
    brokers.meet()
    yield brokers
    brokers.stop()


def produced(brokers: Brokers, leader: int, *values: bytes, acks: int = -1) -> Any:
    """The answer, whenever it comes."""
    return brokers.ended(brokers[leader].produce(A0, *values, acks=acks))


def bytes_of(brokers: Brokers, broker: int, tp: TopicPartition = A0) -> bytes:
    directory = Path(brokers[broker].partition(tp).log.directory)
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def ends(brokers: Brokers, tp: TopicPartition = A0) -> list[tuple[int, int]]:
    found = [broker.parts.replicas.find(*tp) for broker in brokers.running.values()]
    return [(p.log.end_offset, p.high_watermark) for p in found if p is not None]


def test_what_all_replicas_acknowledge_is_in_all_logs_byte_by_byte(three: Brokers) -> None:
    three.create("a", (2, 1, 3))
    for number in range(3):
        answer = produced(three, 2, b"one", b"two", b"three" * 1000)
        assert (answer.error_code, answer.base_offset) == (0, 3 * number)
    three.until(lambda: ends(three) == [(9, 9)] * 3, advance_ms=10)
    assert bytes_of(three, 1) == bytes_of(three, 2) == bytes_of(three, 3)
    assert len(bytes_of(three, 1)) > 15_000


def isr_of(brokers: Brokers, tp: TopicPartition = A0) -> set[int]:
    """As every broker knows it."""
    caches = [broker.parts.replicas.metadata for broker in brokers.running.values()]
    if not all(tp.topic in cache.topics for cache in caches):
        return set()
    known = [cache.partition(*tp).isr for cache in caches]
    return set(known[0]) if all(isr == known[0] for isr in known) else set()


def until_equal(brokers: Brokers, end: int) -> None:
    brokers.until(lambda: ends(brokers) == [(end, end)] * len(brokers.running), advance_ms=10)
    assert len({bytes_of(brokers, broker) for broker in brokers.running}) == 1


def test_a_follower_that_was_away_catches_up_and_is_in_sync_again(three: Brokers) -> None:
    three.create("a", (2, 1, 3))
    produced(three, 2, b"before")
    three.leave(3)
    three.until(lambda: isr_of(three) == {1, 2}, advance_ms=10)
    for _ in range(20):
        produced(three, 2, b"meanwhile")
    three.start(3)
    three.until(lambda: isr_of(three) == {1, 2, 3}, advance_ms=10)
    until_equal(three, 21)
    assert three[3].parts.replicas.metadata.partition(*A0).isr == [2, 1, 3]


def test_a_leader_that_nobody_followed_any_more_drops_what_the_next_one_never_had(
    in_memory: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    """And says so in its log."""
    caplog.set_level(logging.INFO, "kafkad")
    brokers = in_memory
    brokers.create("a", (2, 1, 3))
    produced(brokers, 2, b"for all")
    brokers.cut |= {frozenset({1, 2}), frozenset({2, 3})}
    assert produced(brokers, 2, b"lost", b"lost too", acks=1).error_code == 0
    brokers.run(brokers[2].session.expire())
    brokers.until(lambda: brokers[1].partition(A0).is_leader, advance_ms=10)
    assert brokers[2].partition(A0).is_leader, "it cannot know better"
    assert produced(brokers, 2, b"lost as well", acks=1).base_offset == 3
    assert produced(brokers, 1, b"kept").base_offset == 1
    assert brokers[2].partition(A0).high_watermark <= 1
    brokers.cut.clear()
    brokers.until(lambda: isr_of(brokers) == {1, 2, 3}, advance_ms=10)
    until_equal(brokers, 2)
    assert b"lost" not in bytes_of(brokers, 2)
    [told] = [message for message in caplog.messages if message.startswith("truncated")]
    assert told.startswith("truncated a-0 from offset 4 to 1: its leader, broker 1, has epoch")


def test_a_follower_that_lags_leaves_the_isr_and_comes_back(in_memory: Brokers) -> None:
    brokers = in_memory
    brokers.create("a", (2, 1, 3))
    produced(brokers, 2, b"for all")
    brokers.cut.add(frozenset({2, 3}))
    began_ms = brokers.clock.monotonic_ms()
    assert produced(brokers, 2, b"for two").error_code == 0
    waited_ms = brokers.clock.monotonic_ms() - began_ms
    assert LAG_MS <= waited_ms <= 1.5 * LAG_MS + 1_000
    epoch = brokers[2].partition(A0).leader_epoch
    assert brokers[2].partition(A0).role.isr == (2, 1)
    assert (brokers[2].parts.replicas.isr_shrinks, brokers[2].parts.replicas.isr_expands) == (1, 0)
    brokers.cut.clear()
    brokers.until(lambda: isr_of(brokers) == {1, 2, 3}, advance_ms=10)
    until_equal(brokers, 2)
    assert brokers[2].partition(A0).leader_epoch == epoch, "only the controller begins epochs"
    assert (brokers[2].parts.replicas.isr_shrinks, brokers[2].parts.replicas.isr_expands) == (1, 1)


def test_changes_of_the_isr_wait_for_the_controller(in_memory: Brokers) -> None:
    brokers = in_memory
    brokers.create("a", (2, 3))
    produced(brokers, 2, b"for both")
    brokers.cut_ways |= {(3, 2), (2, 1)}
    assert produced(brokers, 2, b"for one", acks=1).error_code == 0
    leading = brokers[2].partition(A0).leading
    assert leading is not None
    brokers.until(lambda: leading.proposed == (2,), advance_ms=10)
    brokers.work_for(1_000)
    assert brokers[2].partition(A0).high_watermark == 1, "the controller may have made any of them leader"
    brokers.cut_ways.remove((2, 1))
    brokers.until(lambda: brokers[2].partition(A0).high_watermark == 2, advance_ms=10)
    brokers.until(lambda: isr_of(brokers) == {2}, advance_ms=10)


def test_where_a_log_begins_is_carried_over(three: Brokers) -> None:
    three.create("a", (2, 1, 3))
    for _ in range(3):
        produced(three, 2, b"one", b"two")
    three[2].partition(A0).delete_records(3)
    produced(three, 2, b"more")
    three.until(lambda: {b.partition(A0).log.start_offset for b in three.running.values()} == {3}, advance_ms=10)
    three.leave(3)
    three[2].partition(A0).delete_records(7)
    three[2].partition(A0).log.roll()
    produced(three, 2, b"more")
    delete_old_segments(three[2].partition(A0).log, three.clock.now_ms())
    three.start(3)
    three.until(lambda: isr_of(three) == {1, 2, 3}, advance_ms=10)
    assert [b.partition(A0).log.start_offset for b in three.running.values()] == [7, 7, 7]
    three.until(lambda: ends(three) == [(8, 8)] * 3, advance_ms=10)


def begins(brokers: Brokers) -> set[int]:
    return {broker.partition(A0).log.start_offset for broker in brokers.running.values()}


def deleted(brokers: Brokers, broker: int, offset: int, timeout_ms: int = 10_000) -> tuple[int, int]:
    """The answer to a DeleteRecords: error and low watermark."""
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name="a", partitions=[partition])]
    answer = brokers.ended(brokers[broker].ask(DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)))
    [result] = answer.topics[0].partitions
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("is_away", [False, True])
def test_records_are_deleted_when_no_live_replica_has_them_any_more(in_memory: Brokers, is_away: bool) -> None:
    """Whoever leads next, they do not come back."""
    three = in_memory
    three.create("a", (2, 1, 3))
    for _ in range(3):
        produced(three, 2, b"one", b"two")
    if is_away:
        three.leave(3)
        three.until(lambda: 3 not in three[2].parts.replicas.metadata.brokers, advance_ms=10)
    assert deleted(three, 2, 5) == (0, 5)
    assert begins(three) == {5}
    assert deleted(three, 2, 3) == (0, 5)
    assert deleted(three, 2, -1) == (0, 6)
    three.leave(2)
    three.until(
        lambda: three[1].partition(A0).is_leader or (not is_away and three[3].partition(A0).is_leader), advance_ms=10
    )
    assert begins(three) == {6}


def test_a_deletion_that_a_follower_has_not_heard_of_is_not_over(in_memory: Brokers) -> None:
    three = in_memory
    three.create("a", (2, 1, 3))
    produced(three, 2, b"one", b"two")
    three.until(lambda: ends(three) == [(2, 2)] * 3, advance_ms=10)
    three.work_for(1_000)
    three.cut_ways |= {(3, 2), (2, 3)}
    began_ms = three.clock.monotonic_ms()
    assert deleted(three, 2, 1, timeout_ms=2_000) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert 2_000 <= three.clock.monotonic_ms() - began_ms < 3_000
    assert not three[2].partition(A0).deletion_waits
    three.cut_ways.clear()
    assert deleted(three, 2, 1) == (0, 1)
    assert begins(three) == {1}


def test_nobody_waits_for_a_deletion_for_a_client_that_has_gone(in_memory: Brokers) -> None:
    three = in_memory
    three.create("a", (2, 1, 3))
    produced(three, 2, b"one", b"two")
    three.until(lambda: ends(three) == [(2, 2)] * 3, advance_ms=10)
    three.cut_ways |= {(3, 2), (2, 3)}
    partition, connection = three[2].partition(A0), FakeConnection()
    asked = DeleteRecordsPartition(partition_index=0, offset=1)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="a", partitions=[asked])], timeout_ms=2**31 - 1)
    begun = three.begun(handled(three[2].parts.context, request, 2, connection))
    three.until(lambda: bool(partition.deletion_waits))
    connection.peer.closed()
    three.until(begun.done)
    assert not partition.deletion_waits
    assert connection.peer.on_close is None
    three.cut_ways.clear()


def test_a_new_replica_of_a_log_that_begins_in_the_middle_of_a_batch_comes_into_the_isr(in_memory: Brokers) -> None:
    brokers = in_memory
    brokers.create("a", (2,))
    for _ in range(2):
        produced(brokers, 2, b"one", b"two", b"three")
    brokers[2].partition(A0).delete_records(4)
    brokers.ended(brokers.controller.parts.controller.alter_partition_reassignments({A0: (2, 3)}))
    brokers.until(lambda: isr_of(brokers) == {2, 3}, advance_ms=10)
    assert (brokers[3].partition(A0).log.start_offset, brokers[3].partition(A0).high_watermark) == (4, 6)


def test_one_that_cannot_be_reached_delays_no_other(in_memory: Brokers) -> None:
    brokers = in_memory
    brokers.create("a", (2, 3))
    brokers.create("b", (1, 3))
    brokers.cut.add(frozenset({1, 3}))
    began_ms = brokers.clock.monotonic_ms()
    for _ in range(10):
        assert produced(brokers, 2, b"value").error_code == 0
    assert brokers.clock.monotonic_ms() - began_ms < 1_000


def test_a_partition_that_comes_while_a_fetch_waits_does_not_wait_with_it(in_memory: Brokers) -> None:
    brokers = in_memory
    waits_ms = brokers[3].parts.settings.config.int("replica.fetch.wait.max.ms")
    brokers.create("idle", (2, 3))
    for number in range(3):
        brokers.until(lambda: brokers[2].parts.replicas.waits.fetches > 0, advance_ms=10)
        brokers.work_for(50)
        topic = TopicPartition(f"new-{number}", 0)
        brokers.create(topic.topic, (2, 3))
        began_ms = brokers.clock.monotonic_ms()
        for _ in range(3):
            assert brokers.ended(brokers[2].produce(topic, b"value")).error_code == 0
        assert brokers.clock.monotonic_ms() - began_ms < waits_ms
    brokers.work_for(1_000)
    assert brokers[2].parts.replicas.waits.fetches == 1, "all of them are fetched in one again"


def test_a_partition_that_has_rested_does_not_wait_with_a_fetch_that_waits(in_memory: Brokers) -> None:
    """Its leader heard of the epoch a moment later; that of another partition, whose fetch waits, it knew."""
    brokers = in_memory
    waits_ms = brokers[3].parts.settings.config.int("replica.fetch.wait.max.ms")
    brokers.create("idle", (2, 3))
    brokers.create("a", (2, 3))
    brokers.create("other", (2, 3))
    produced(brokers, 2, b"one")
    follower, other = (brokers[3].partition(TopicPartition(topic, 0)) for topic in ("a", "other"))
    replication = brokers[3].parts.replication
    assert replication is not None
    brokers.until(lambda: brokers[2].parts.replicas.waits.fetches > 0, advance_ms=10)

    def refused(ends: tuple[int, int], answer: Any) -> None:
        partition = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH, records=b"")
        answer.responses = [FetchableTopicResponse(topic_id=follower.log.topic_id, partitions=[partition])]
        brokers.tamper = lambda ends, answer: None

    brokers.tamper = refused
    for partition in (follower, other):
        partition.become(partition.role)
    replication.fetchers.follow([follower, other])
    began_ms = brokers.clock.monotonic_ms()
    for _ in range(3):
        assert produced(brokers, 2, b"value").error_code == 0
    assert brokers.clock.monotonic_ms() - began_ms < waits_ms / 2


def test_a_partition_that_begins_anew_while_an_answer_is_worked_on_is_fetched_again(
    in_memory: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer said that its leader does not know the epoch yet; by now it follows in another one."""
    brokers = in_memory
    brokers.create("a", (2, 3))
    produced(brokers, 2, b"one")
    follower = brokers[3].partition(A0)
    replication = brokers[3].parts.replication
    assert replication is not None

    def refused(ends: tuple[int, int], answer: Any) -> None:
        code = ErrorCode.UNKNOWN_LEADER_EPOCH
        partition = PartitionData(partition_index=0, error_code=code, records=b"")
        answer.responses = [FetchableTopicResponse(topic_id=follower.log.topic_id, partitions=[partition])]
        begins_anew.append(follower)

    class LongTurns(Turns):
        async def give_way(self) -> None:
            if begins_anew:
                begins_anew.clear()
                brokers.tamper = lambda ends, answer: None
                follower.become(follower.role)
                replication.fetchers.follow([follower])

    begins_anew: list[Partition] = []
    monkeypatch.setattr(fetchers, "Turns", LongTurns)
    brokers.until(lambda: brokers[2].parts.replicas.waits.fetches == 1, advance_ms=10)
    brokers.tamper = refused
    began_ms = brokers.clock.monotonic_ms()
    assert produced(brokers, 2, b"two").error_code == 0
    assert brokers.clock.monotonic_ms() - began_ms < LAG_MS, "it was not left out of the ISR"
    assert bytes_of(brokers, 2) == bytes_of(brokers, 3)


def test_a_damaged_batch_is_refused_named_once_and_fetched_again(
    in_memory: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = in_memory
    brokers.create("a", (2, 3))
    brokers.create("b", (2, 3))
    damaged = 0

    def damage(ends: tuple[int, int], answer: Any) -> None:
        nonlocal damaged
        for topic in answer.responses:
            for data in topic.partitions:
                if topic.topic_id == brokers[2].partition(A0).log.topic_id and data.records and damaged < 3:
                    damaged += 1
                    data.records = memoryview(bytes(data.records[:-1]) + b"!")

    brokers.tamper = damage
    answer = brokers.run(_begun(brokers[2].produce(A0, b"value")))
    assert brokers.ended(brokers[2].produce(B0, b"value")).error_code == 0
    assert not answer.done(), "the other partition of the same fetch went on"
    brokers.until(answer.done, advance_ms=10)
    assert answer.result().error_code == 0
    assert bytes_of(brokers, 2) == bytes_of(brokers, 3)
    assert damaged == 3
    [named] = [r.getMessage() for r in caplog.records if "fails its checksum" in r.getMessage()]
    assert named == (
        "a-0 cannot take what broker 2, its leader, sent: a-0: the batch with offset 0 fails its checksum; "
        "fetching it again"
    )


async def _begun(scenario: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
    return asyncio.ensure_future(scenario)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_followers_disk_concerns_only_itself(tmp_path: Path, code: int) -> None:
    brokers = Brokers(tmp_path, MEMORY, f"replica.lag.time.max.ms={LAG_MS}")
    disk = brokers.files[3] = FaultyFiles()
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (2, 1, 3))
    produced(brokers, 2, b"before")
    disk.fail("pwrite", code, once=False)
    assert produced(brokers, 2, b"while one disk says no").error_code == 0
    brokers.until(lambda: isr_of(brokers) == {1, 2}, advance_ms=10)
    if code == errno.ENOSPC:
        disk.heal()
        brokers.until(lambda: isr_of(brokers) == {1, 2, 3}, advance_ms=10)
        until_equal(brokers, 2)
    else:
        assert brokers.halted, "it was its only one"
        assert brokers[3].partition(A0).failure is not None
    disk.heal()
    brokers.stop()


def test_a_leader_that_is_not_known_yet_is_waited_for(in_memory: Brokers) -> None:
    brokers = in_memory
    replicas = brokers[3].parts.replicas
    brokers.cut_ways.add((1, 3))
    known = replicas.metadata.brokers.pop(2)
    new = NewTopic(name="a", assignment={0: (2, 3)})
    brokers.run(brokers[1].parts.controller.create_topics([new], timeout_ms=1))
    brokers.until(lambda: brokers[2].parts.replicas.find(*A0) is not None, advance_ms=10)
    state = LeaderAndIsrPartitionState(partition_index=0, leader=2, leader_epoch=0, isr=[2, 3], replicas=[2, 3])
    topic_id = brokers[2].partition(A0).log.topic_id
    topic = LeaderAndIsrTopicState(topic_name="a", topic_id=topic_id, partition_states=[state])
    request = LeaderAndIsrRequest(controller_epoch=1, broker_epoch=replicas.broker_epoch, topic_states=[topic])
    assert brokers.run(replicas.leader_and_isr(request)).error_code == 0
    brokers.work_for(500)
    assert (3, 2, "FetchRequest") not in brokers.sent
    replicas.metadata.brokers[2] = known
    for told in replicas.metadata.on_brokers_changed:
        told()
    assert produced(brokers, 2, b"value").error_code == 0


def test_some_of_many_partitions_hear_in_a_turn_of_brokers_that_come_and_go(
    in_memory: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory.create("a", *[(1, 2)] * 5)
    replicas = in_memory[1].parts.replicas
    told: list[Partition] = []
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(manager, "_LOOKED_AT_A_TURN", 2)
    monkeypatch.setattr(replicas.waits, "soon", later.append)
    alive = set(replicas.metadata.brokers)

    def hear(partition: Partition, alive: frozenset[int]) -> None:
        told.append(partition)
        heard.append(alive)

    heard: list[frozenset[int]] = []
    monkeypatch.setattr(Partition, "brokers_changed", hear)
    for hears in replicas.metadata.on_brokers_changed:
        hears()
    assert len(told) == 2
    replicas.metadata.brokers.clear()  # the others hear what those have heard
    while later:
        later.pop()()
    assert told == list(replicas)
    assert heard == [alive] * 5


def test_with_a_limit_of_messages_a_follower_leaves_the_isr_before_its_time(tmp_path: Path) -> None:
    settings = f"replica.lag.time.max.ms={LAG_MS}", "kafkad.replica.lag.max.messages=5"
    brokers = Brokers(tmp_path, MEMORY, *settings)
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (2, 1, 3))
    produced(brokers, 2, b"for all")
    brokers.cut_ways.add((3, 2))
    began_ms = brokers.clock.monotonic_ms()
    assert produced(brokers, 2, *[b"value"] * 6).error_code == 0
    assert brokers.clock.monotonic_ms() - began_ms < LAG_MS
    assert brokers[2].partition(A0).role.isr == (2, 1)
    brokers.cut_ways.clear()
    brokers.until(lambda: isr_of(brokers) == {1, 2, 3}, advance_ms=10)
    until_equal(brokers, 7)
    brokers.stop()


def test_with_three_replicas_two_may_go_and_nothing_is_lost(three: Brokers) -> None:
    three.create("a", (3, 2, 1))
    produced(three, 3, b"one")
    for gone, next_leader in ((3, 2), (2, 1)):
        three.leave(gone)
        three.until(lambda leader=next_leader: three[leader].partition(A0).is_leader, advance_ms=10)
        assert produced(three, next_leader, b"more").error_code == 0
    three.start(2, 3)
    three.until(lambda: isr_of(three) == {1, 2, 3}, advance_ms=10)
    until_equal(three, 3)


TOPIC, BROKER = 2, 4
THROTTLED_RATE = 1 << 20
LARGE = bytes(range(256)) * 4000


def throttle(brokers: Brokers, side: str, replicas: str, rate: int | None = THROTTLED_RATE) -> None:
    """As `kafka-configs` and `kctl partitions throttle` set it, on all brokers."""
    limit = AlterableConfig(name=f"{side}.replication.throttled.rate", value=None if rate is None else str(rate))
    limit.config_operation = 1 if rate is None else 0
    named = AlterableConfig(name=f"{side}.replication.throttled.replicas", value=replicas)
    resources = [
        AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[limit]),
        AlterConfigsResource(resource_type=TOPIC, resource_name="a", configs=[named]),
    ]
    answer = brokers.ended(brokers[2].ask(IncrementalAlterConfigsRequest(resources=resources)))
    assert not any(response.error_code for response in answer.responses)


@pytest.mark.parametrize(
    ("side", "replicas", "seconds"),
    [("follower", "0:3", 7), ("leader", "0:2", 7), ("follower", "*", 7), ("follower", "0:1", 0), ("leader", "0:3", 0)],
)
def test_a_throttled_replica_that_catches_up_is_sent_no_more_than_the_rate(
    in_memory: Brokers, side: str, replicas: str, seconds: int
) -> None:
    brokers = in_memory
    brokers.create("a", (2, 1, 3))
    produced(brokers, 2, b"before")
    brokers.leave(3)
    brokers.until(lambda: isr_of(brokers) == {1, 2}, advance_ms=10)
    throttle(brokers, side, replicas)
    for _ in range(10):
        assert produced(brokers, 2, LARGE).error_code == 0
    begun_ms = brokers.clock.monotonic_ms()
    brokers.start(3)
    brokers.until(lambda: isr_of(brokers) == {1, 2, 3}, advance_ms=10)
    assert seconds <= (brokers.clock.monotonic_ms() - begun_ms) / 1000 < seconds + 5
    until_equal(brokers, 11)
    assert produced(brokers, 2, LARGE).error_code == 0, "in sync, nobody is throttled"


@pytest.mark.parametrize("side", ["follower", "leader"])
def test_several_replicas_together_get_no_more_than_a_rate_below_one_fetch(in_memory: Brokers, side: str) -> None:
    """A fetch more than the rate allows is paid off before any of them gets more."""
    brokers = in_memory
    partitions = [TopicPartition("a", index) for index in range(3)]
    leaders = (2, 1, 2) if side == "follower" else (2, 2, 2)
    brokers.create("a", *((leader, 3 - leader, 3) for leader in leaders))
    brokers.leave(3)
    brokers.until(lambda: all(set(brokers[1].partition(tp).role.isr) == {1, 2} for tp in partitions), advance_ms=100)
    rate = len(LARGE) // 10
    throttle(brokers, side, "*", rate)
    for tp, leader in zip(partitions, leaders, strict=True):
        for _ in range(5):
            assert brokers.ended(brokers[leader].produce(tp, LARGE)).error_code == 0
    brokers.start(3)

    def copied() -> int:
        return sum(brokers[3].partition(tp).log.end_offset for tp in partitions if brokers[3].parts.replicas.find(*tp))

    begun_ms = brokers.clock.monotonic_ms()
    while (seconds := (brokers.clock.monotonic_ms() - begun_ms) / 1000) < 60:
        assert copied() <= len(partitions) + seconds / 10 + 1
        brokers.run(brokers.turn(50))
    assert copied() >= 6
    throttle(brokers, side, "*", rate=None)
    removed_ms = brokers.clock.monotonic_ms()
    brokers.until(lambda: copied() == 15, advance_ms=10)
    assert brokers.clock.monotonic_ms() - removed_ms <= 1_500


async def fetched(
    brokers: Brokers, broker: int, rack: str, offset: int, session: tuple[int, int] = (0, -1), version: int = 17
) -> tuple[Any, int]:
    """The partition's answer to a consumer, None if there is none, and the session's id."""
    partition = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=0)
    topic = FetchTopic(topic="a", topic_id=brokers[broker].partition(A0).log.topic_id, partitions=[partition])
    request = FetchRequest(max_wait_ms=1_000, min_bytes=1, topics=[topic], rack_id=rack)
    request.session_id, request.session_epoch = session
    frame = FrameConnection(brokers[broker].parts.dispatcher)
    response = await brokers[broker].ask_by_frame(request, version, frame)
    answers = [data for topic in response.responses for data in topic.partitions]
    return (answers[0] if answers else None), response.session_id


def test_consumers_read_from_a_replica_in_their_rack_where_that_is_wanted(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, MEMORY, f"replica.selector.class={RACK_AWARE}")
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (2, 1, 3))
    produced(brokers, 2, b"one", b"two")
    brokers.until(lambda: ends(brokers) == [(2, 2)] * 3, advance_ms=10)
    sent, session = brokers.ended(fetched(brokers, 2, "rack-3", 0, (0, 0)))
    assert (sent.error_code, sent.preferred_read_replica, bytes(sent.records)) == (0, 3, b"")
    again, _ = brokers.ended(fetched(brokers, 2, "rack-3", 0, (session, 1)))
    assert again.preferred_read_replica == 3, "in a session, too"
    for broker, rack in ((3, "rack-3"), (3, "rack-2"), (3, ""), (2, "rack-2"), (2, "elsewhere"), (2, "")):
        for _ in range(3):
            here, _ = brokers.ended(fetched(brokers, broker, rack, 0))
            assert (here.error_code, here.preferred_read_replica, here.high_watermark) == (0, -1, 2)
            assert bytes(here.records) == bytes_of(brokers, 2)
    beyond, _ = brokers.ended(fetched(brokers, 3, "rack-3", 7))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    waiting = brokers.run(_begun(fetched(brokers, 3, "rack-3", 2)))
    produced(brokers, 2, b"three")
    brokers.until(waiting.done, advance_ms=1)
    assert bytes_of(brokers, 2).endswith(bytes(waiting.result()[0].records))
    assert waiting.result()[0].high_watermark == 3
    brokers.stop()


@pytest.mark.parametrize("version", [10, 11, 12, 17])
def test_a_follower_serves_consumers_that_another_broker_may_have_sent(in_memory: Brokers, version: int) -> None:
    """Its leader may have replica.selector.class before it has, or be a Kafka. Before version 11 nobody is sent."""
    in_memory.create("a", (2, 1, 3))
    produced(in_memory, 2, b"one")
    in_memory.until(lambda: ends(in_memory) == [(1, 1)] * 3, advance_ms=10)
    for _ in range(3):
        there, _ = in_memory.ended(fetched(in_memory, 3, "rack-3", 0, version=version))
        if version < 11:
            assert there.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            assert (there.error_code, there.preferred_read_replica, there.high_watermark) == (0, -1, 1)
            assert bytes(there.records) == bytes_of(in_memory, 2)
        here, _ = in_memory.ended(fetched(in_memory, 2, "rack-3", 0, version=version))
        assert (here.error_code, here.preferred_read_replica, here.high_watermark) == (0, -1, 1)


@pytest.mark.parametrize("oddity", ["diverges where it does not", "does not have what it has"])
def test_a_leader_whose_answers_lead_nowhere_is_not_asked_all_the_time(in_memory: Brokers, oddity: str) -> None:
    brokers = in_memory
    brokers.create("a", (2, 3))
    produced(brokers, 2, b"one")
    brokers.until(lambda: ends(brokers) == [(1, 1)] * 2, advance_ms=10)

    def odd(ends: tuple[int, int], answer: Any) -> None:
        partition = PartitionData(partition_index=0, records=b"")
        if oddity == "diverges where it does not":
            partition.diverging_epoch = EpochEndOffset(epoch=0, end_offset=1)
        else:
            partition.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        topic_id = brokers[2].partition(A0).log.topic_id
        answer.responses = [FetchableTopicResponse(topic_id=topic_id, partitions=[partition])]

    brokers.until(lambda: brokers[2].parts.replicas.waits.fetches == 1, advance_ms=10)
    brokers.tamper = odd
    brokers.sent.clear()
    answer = brokers.run(_begun(brokers[2].produce(A0, b"two", timeout_ms=1_000_000)))
    brokers.work_for(10_000)
    assert not answer.done()
    assert 5 < brokers.sent.count((3, 2, "FetchRequest")) < 40, "ten seconds, with a longer rest each time"
    brokers.tamper = lambda ends, answer: None
    brokers.until(answer.done, advance_ms=10)
    assert bytes_of(brokers, 2) == bytes_of(brokers, 3)


def test_a_follower_that_led_in_an_epoch_of_which_its_leader_knows_nothing(
    in_memory: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither has a record of it, nor of the leader's own epoch, whose beginning the leader has lost."""
    brokers = in_memory
    brokers.create("a", (3, 2))
    produced(brokers, 3, b"one")
    brokers.until(lambda: ends(brokers) == [(1, 1)] * 2, advance_ms=10)
    brokers.leave(3)
    brokers.until(lambda: brokers[2].partition(A0).is_leader, advance_ms=10)
    brokers.start(3)
    brokers.until(lambda: set(brokers[2].partition(A0).role.isr) == {2, 3}, advance_ms=10)
    brokers.leave(2)
    leader = brokers[3].partition(A0)
    brokers.until(lambda: leader.is_leader, advance_ms=10)
    leader.log.forget_unused_epochs()
    brokers.start(2)
    brokers.until(lambda: set(leader.role.isr) == {2, 3}, advance_ms=10)
    told = [record.message for record in caplog.records if "knows nothing of that epoch" in record.message]
    assert len(told) == 1
    assert "a-0 cannot go on at offset 1 behind epoch 1:" in told[0]


def test_followers_say_as_whom_they_are_registered(three: Brokers) -> None:
    """So that the controller does not take one that has lost its power since for what it was."""
    three.create("a", (2, 3))
    produced(three, 2, b"one")

    def said() -> int | None:
        leading = three[2].partition(A0).leading
        return None if leading is None else leading.epochs.get(3)

    before = three[3].epoch
    assert said() == before
    three.run(three[3].session.expire())
    three.until(lambda: said() not in (None, before), advance_ms=10)
    assert said() == three[3].epoch
    three.until(lambda: set(three[2].partition(A0).role.isr) == {2, 3}, advance_ms=10)


def test_the_metrics_of_replicas_follow_what_becomes_of_them(in_memory: Brokers) -> None:
    brokers = in_memory
    registry = Registry()
    registry.add(lambda: partition_families(brokers[2].parts.replicas, lambda: 0, lambda: 0))

    def told(*names: str) -> list[int]:
        values = dict(line.rsplit(" ", 1) for line in registry.collect().splitlines())
        return [int(values[f"kafka_server_replicamanager_{name}"]) for name in names]

    states = ("leadercount", "underreplicatedpartitions", "atminisrpartitioncount", "underminisrpartitioncount")
    changes = ("isrshrinks_total", "isrexpands_total")
    brokers.create("a", (2, 1, 3), (2, 3, 1), (1, 2, 3), **{"min.insync.replicas": "2"})
    assert told("partitioncount", *states, *changes) == [3, 2, 0, 0, 0, 0, 0]
    assert produced(brokers, 2, b"before").error_code == 0
    brokers.leave(3)
    brokers.until(lambda: isr_of(brokers) == {1, 2}, advance_ms=10)
    assert told(*states, *changes)[:3] == [2, 2, 2]
    shrunk = told("isrshrinks_total")[0]
    assert shrunk > 0
    brokers.leave(1)
    brokers.until(lambda: isr_of(brokers) == {2}, advance_ms=10)
    assert told(*states) == [3, 3, 0, 3]
    assert told("isrshrinks_total")[0] > shrunk
    assert told("isrexpands_total") == [0]
    brokers.start(1, 3)
    brokers.until(lambda: isr_of(brokers) == {1, 2, 3}, advance_ms=10)
    assert told(*states)[1:] == [0, 0, 0]
    assert told("isrexpands_total")[0] >= 2
