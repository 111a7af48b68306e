"""Creating and deleting topics and adding partitions, through the controller of one broker and of three."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from kafkad.broker.stored_topics import StoredTopics
from kafkad.controller.deletion import ASKED_AGAIN_MS
from kafkad.controller.term import Term
from kafkad.controller.topics import MorePartitions, NewTopic, new_partition
from kafkad.errors import ErrorCode, KafkaError
from kafkad.meta.embedded import EmbeddedSession
from kafkad.meta.store import ConnectionLoss, Create, MetaError, MultiFailed, Operation, Refused, Result, TooLarge
from kafkad.meta.znodes import Config, LogDirEvent, Topic, TopicDeletion
from kafkad.model import PartitionAssignment, PartitionState
from kafkad.names import NO_TOPIC_ID, TopicPartition, id_text
from kafkad.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kafkad.wire.messages.update_metadata import UpdateMetadataRequest
from tests.fakes import give_way_each_time
from tests.work import counting_turns

from .cluster import Cluster, with_brokers


def code(error: KafkaError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


async def try_create(cluster: Cluster, *topics: NewTopic, **more: Any) -> list[ErrorCode]:
    results = await cluster.controller.create_topics(topics, **({"timeout_ms": 1000} | more))
    return [code(result.error) for result in results]


@with_brokers(1)
async def test_a_new_topic_is_in_the_store_and_at_the_broker(cluster: Cluster) -> None:
    topic_id = await cluster.create("a", (1,), (1,), configs={"retention.ms": "5"})
    text = (await cluster.client.get("/brokers/topics/a"))[0]
    assert text.decode() == (
        f'{{"partitions":{{"0":[1],"1":[1]}},"topic_id":"{id_text(topic_id)}",'
        f'"adding_replicas":{{}},"removing_replicas":{{}},"version":3}}'
    )
    assert (await cluster.client.get("/config/topics/a"))[0] == b'{"version":1,"config":{"retention.ms":"5"}}'
    state = b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
    assert (await cluster.client.get("/brokers/topics/a/partitions/1/state"))[0] == state
    replica = cluster[1].replicas[TopicPartition("a", 1)]
    assert (replica.leader, replica.leader_epoch, replica.isr, replica.is_new) == (1, 0, [1], True)
    assert cluster[1].metadata[TopicPartition("a", 1)].leader == 1
    assert cluster[1].topic_ids["a"] == topic_id


@with_brokers(1, partitions=3)
async def test_defaults(cluster: Cluster) -> None:
    (result,) = await cluster.controller.create_topics([NewTopic(name="a")], timeout_ms=1000)
    assert (result.partitions, result.replication_factor, result.error) == (3, 1, None)
    assert result.topic_id != NO_TOPIC_ID


@with_brokers(1, 2)
async def test_many_partitions_are_made_in_turns_with_everybody_else(cluster: Cluster) -> None:
    """Each of the steps that a partition takes may be the last one of a turn: there are more than five for each."""
    results: list[Any] = []

    async def keep(asked: Awaitable[Sequence[Any]], turn: Callable[[], int]) -> None:
        results.extend(await asked)

    with pytest.MonkeyPatch.context() as patched:
        give_way_each_time(patched)
        for asked in (
            cluster.controller.create_topics([NewTopic("a", 500, 2)], timeout_ms=60_000),
            cluster.controller.create_partitions([MorePartitions(name="a", count=1000)], timeout_ms=60_000),
        ):
            assert await counting_turns(partial(keep, asked)) > 5 * 500
    assert [result.error for result in results] == [None, None]


@with_brokers(1)
async def test_who_meets_an_error_hears_of_it_when_nothing_of_the_request_goes_on(cluster: Cluster) -> None:
    """The controller takes the next event then, and may resign."""
    session = cluster.members[1].session
    working, goes_on = session.multi, asyncio.Event()

    async def multi(operations: Sequence[Operation]) -> list[Result]:
        paths = {operation.path for operation in operations}
        if Topic.path("a") in paths or TopicDeletion.path("a") in paths:
            raise RuntimeError("a bug")
        if Topic.path("b") in paths or TopicDeletion.path("b") in paths:
            await goes_on.wait()
        return await working(operations)

    async def fails_as_a_whole(asked: Awaitable[Any]) -> None:
        goes_on.clear()
        asked = asyncio.ensure_future(asked)
        await cluster.settle()
        assert not asked.done()
        goes_on.set()
        with pytest.raises(RuntimeError, match="a bug"):
            await asked

    session.multi = multi  # type: ignore[method-assign]
    names = ["a", "b"]
    await fails_as_a_whole(cluster.controller.create_topics([NewTopic(n, 1, 1) for n in names], timeout_ms=60_000))
    assert await cluster.client.exists(Topic.path("b")) is not None
    session.multi = working  # type: ignore[method-assign]
    await cluster.create("a", (1,))
    session.multi = multi  # type: ignore[method-assign]
    await fails_as_a_whole(cluster.controller.delete_topics(names, timeout_ms=60_000))
    await cluster.settle()
    assert await cluster.client.children("/brokers/topics") == ["a"], "the other one is deleted all the same"


@with_brokers(1, 2, 3, placement_start=0)
async def test_a_fixed_place(cluster: Cluster) -> None:
    await cluster.controller.create_topics([NewTopic(name="a", partitions=5, replication_factor=2)], timeout_ms=1000)
    placed = Topic.decode((await cluster.client.get("/brokers/topics/a"))[0]).partitions
    assert [placed[p].replicas for p in range(5)] == [(1, 2), (2, 3), (3, 1), (1, 2), (2, 3)]
    for broker in (1, 2, 3):
        assert len(cluster[broker].metadata) == 5
        assert {tp.partition for tp in cluster[broker].replicas} == {p for p in placed if broker in placed[p].replicas}


@with_brokers(1, 2, 3, placement_start=0)
async def test_the_fixed_place_may_change(cluster: Cluster) -> None:
    cluster.defaults = cluster.defaults._replace(placement_start=2)
    await cluster.controller.create_topics([NewTopic(name="a", partitions=2, replication_factor=1)], timeout_ms=1000)
    placed = Topic.decode((await cluster.client.get("/brokers/topics/a"))[0]).partitions
    assert [placed[p].replicas for p in range(2)] == [(3,), (1,)]


REFUSALS: list[tuple[ErrorCode, Mapping[str, Any]]] = [
    (ErrorCode.TOPIC_ALREADY_EXISTS, {"name": "there.is", "partitions": 0}),
    (ErrorCode.INVALID_CONFIG, {"name": "a", "configs": {"retention.ms": None}, "partitions": 0}),
    (ErrorCode.INVALID_CONFIG, {"name": "a", "configs": {"no.such": "1"}}),
    (ErrorCode.INVALID_REQUEST, {"name": "a", "partitions": 1, "assignment": {0: (1,)}}),
    (ErrorCode.INVALID_PARTITIONS, {"name": "", "partitions": 0}),
    (ErrorCode.INVALID_PARTITIONS, {"name": "a", "partitions": -2}),
    (ErrorCode.INVALID_REPLICATION_FACTOR, {"name": "a", "replication_factor": 0}),
    (ErrorCode.INVALID_REPLICATION_FACTOR, {"name": "a", "replication_factor": 2}),
    (ErrorCode.POLICY_VIOLATION, {"name": "a", "partitions": 2_000_000_000}),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": ""}),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": ".."}),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": "a" * 250}),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": "a/b"}),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": "é"}),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, {"name": "there_is"}),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, {"name": "a", "assignment": {0: (1,), 1: ()}}),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, {"name": "a", "assignment": {0: ()}}),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, {"name": "a", "assignment": {0: (1, 1)}}),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, {"name": "a", "assignment": {1: (1,)}}),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, {"name": "a", "assignment": {0: (9,)}}),
]


@pytest.mark.parametrize(("expected", "topic"), REFUSALS)
def test_refusals(expected: ErrorCode, topic: Mapping[str, Any]) -> None:
    @with_brokers(1)
    async def run(cluster: Cluster) -> None:
        await cluster.create("there.is", (1,))
        for validate_only in (True, False):
            assert await try_create(cluster, NewTopic(**topic), validate_only=validate_only) == [expected]
        assert await cluster.client.children("/brokers/topics") == ["there.is"]
        assert await cluster.client.children("/config/topics") == ["there.is"]

    run()


@with_brokers(1)
async def test_one_bad_topic_does_not_keep_the_others_back(cluster: Cluster) -> None:
    codes = await try_create(
        cluster,
        NewTopic(name="a"),
        NewTopic(name="bad/"),
        NewTopic(name="twice"),
        NewTopic(name="x.y"),
        NewTopic(name="x_y"),
        NewTopic(name="twice"),
    )
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert await cluster.client.children("/brokers/topics") == ["a", "x.y"]


@with_brokers(1)
async def test_a_topic_that_the_start_has_decoded_is_not_decoded_again(cluster: Cluster) -> None:
    for name in ("a", "b"):
        await cluster.create(name, (1,))
    await cluster.kill(1)
    known = StoredTopics({name: await cluster.client.get(Topic.path(name)) for name in ("a", "b")})
    assert known["a"] is not None
    decoded: list[bytes] = []
    decode = Topic.decode

    def decode_anew(data: bytes) -> Topic:
        decoded.append(data)
        return decode(data)

    cluster.known_topic = known.take
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Topic, "decode", decode_anew)
        await cluster.start(1)
    assert decoded == [(await cluster.client.get(Topic.path("b")))[0]]
    assert cluster[1].replicas.keys() == {TopicPartition("a", 0), TopicPartition("b", 0)}
    assert not known


@with_brokers(1)
async def test_no_topic_is_made_where_a_directory_of_another_was_left_alone(cluster: Cluster) -> None:
    cluster.left_alone["a"] = "/data/a-0"
    topics = [NewTopic(name="a"), NewTopic(name="b")]
    refused, made = await cluster.controller.create_topics(topics, timeout_ms=1000)
    assert refused.error is not None
    assert refused.error.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "/data/a-0 is of another topic that was named 'a': move it away" in str(refused.error)
    assert made.error is None
    assert await cluster.client.children("/brokers/topics") == ["b"]


@with_brokers(1)
async def test_what_nobody_waits_for_any_more_is_not_begun(cluster: Cluster) -> None:
    first, second = (asyncio.ensure_future(try_create(cluster, NewTopic(name=name))) for name in "ab")
    await asyncio.sleep(0)
    second.cancel()
    assert await first == [ErrorCode.NONE]
    await cluster.settle()
    assert await cluster.client.children("/brokers/topics") == ["a"]


REFUSED_AFTER_ITS_SIZE = [
    NewTopic(name="bad name", partitions=10_000),
    NewTopic(name="there_is", partitions=10_000),
    NewTopic(name="a", partitions=10_000, configs={"no.such": "1"}),
]


def test_a_refused_topic_is_not_placed_and_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request may have thousands of them."""
    placed = []
    monkeypatch.setattr("kafkad.controller.topics.place", lambda *what: placed.append(what) or {0: (1,)})

    @with_brokers(1)
    async def run(cluster: Cluster) -> None:
        await cluster.create("there.is", (1,))
        results = await cluster.controller.create_topics(REFUSED_AFTER_ITS_SIZE, timeout_ms=1000)
        assert not placed
        assert [result.error and result.error.__traceback__ for result in results] == [None] * 3
        assert all(result.error for result in results)

    run()


@with_brokers(1)
async def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    requests = len(cluster[1].requests)
    assert await try_create(cluster, NewTopic(name="a", partitions=2), validate_only=True) == [ErrorCode.NONE]
    assert await cluster.client.children("/brokers/topics") == []
    assert len(cluster[1].requests) == requests


@with_brokers(1)
async def test_without_time_a_topic_is_made_but_the_answer_is_late(cluster: Cluster) -> None:
    assert await try_create(cluster, NewTopic(name="a"), timeout_ms=0) == [ErrorCode.REQUEST_TIMED_OUT]
    assert await cluster.client.children("/brokers/topics") == ["a"]
    cluster[1].reachable.clear()
    assert await try_create(cluster, NewTopic(name="b"), timeout_ms=5) == [ErrorCode.REQUEST_TIMED_OUT]
    cluster[1].reachable.set()
    await cluster.settle()
    assert TopicPartition("b", 0) in cluster[1].replicas


# A store that refuses.


class Refusing:
    """Has a session refuse writes below `path`, carried out or not; all others take a while."""

    def __init__(self, session: EmbeddedSession, path: str, error: MetaError, *, carried_out: bool = False) -> None:
        self._working = session.multi
        self._path = path
        self._error = error
        self._carried_out = carried_out
        session.multi = self._multi  # type: ignore[method-assign]

    async def _multi(self, operations: Sequence[Operation]) -> list[Result]:
        concerned = any(operation.path.startswith(self._path) for operation in operations)
        if not concerned:
            await asyncio.sleep(0.001)
        if not concerned or self._carried_out:
            results = await self._working(operations)
            if not concerned:
                return results
        raise self._error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Refused("/brokers/topics/a", "ZooKeeper refused the request: NoAuthError"), ErrorCode.KAFKA_STORAGE_ERROR),
        (TooLarge("/brokers/topics/a"), ErrorCode.KAFKA_STORAGE_ERROR),
        (TooLarge("/config/topics/a"), ErrorCode.INVALID_CONFIG),
        (ConnectionLoss("/brokers/topics/a"), ErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
def test_a_topic_that_the_store_refuses_does_not_keep_the_others_back(error: MetaError, expected: ErrorCode) -> None:
    @with_brokers(1, 2)
    async def run(cluster: Cluster) -> None:
        await cluster.create("old", (1, 2))
        Refusing(cluster.members[1].session, "/brokers/topics/a", error)
        new = [NewTopic(name=name, assignment={0: (1, 2)}) for name in ("a", "b")]
        assert await try_create(cluster, *new) == [expected, ErrorCode.NONE]
        await cluster.settle()
        assert all(TopicPartition("b", 0) in cluster[broker].replicas for broker in (1, 2))
        assert await cluster.client.children("/brokers/topics") == ["b", "old"]

    run()


@with_brokers(1, 2)
async def test_a_topic_that_was_written_without_an_answer_is_told_to_all_brokers(cluster: Cluster) -> None:
    lost = ConnectionLoss("/brokers/topics/a", "lost")
    Refusing(cluster.members[1].session, "/brokers/topics/a", lost, carried_out=True)
    new = NewTopic(name="a", assignment={0: (2,)})
    assert await try_create(cluster, new) == [ErrorCode.KAFKA_STORAGE_ERROR]
    await cluster.settle()
    assert TopicPartition("a", 0) in cluster[2].replicas
    assert cluster[1].metadata[TopicPartition("a", 0)].leader == 2


@with_brokers(1, 2)
async def test_a_topic_of_a_tool_whose_states_the_store_refuses_keeps_no_other_back(cluster: Cluster) -> None:
    Refusing(cluster.members[1].session, "/brokers/topics/a", Refused("/brokers/topics/a", "refused"))
    for name in ("a", "b"):
        topic = Topic(name.encode() * 16, {0: PartitionAssignment(replicas=(2,))})
        await cluster.client.create(Topic.path(name), topic.encode())
    async with asyncio.timeout(10):
        while TopicPartition("b", 0) not in cluster[2].replicas:
            await asyncio.sleep(0.001)
    assert TopicPartition("a", 0) not in cluster[2].replicas


@with_brokers(1, 2)
async def test_partitions_that_the_store_refuses_do_not_keep_others_back(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        await cluster.create(name, (1, 2))
    Refusing(cluster.members[1].session, "/brokers/topics/b", Refused("/brokers/topics/b", "refused"))
    more = [MorePartitions(name=name, count=2) for name in ("a", "b", "c")]
    assert await try_add(cluster, *more) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NONE]
    await cluster.settle()
    assert {tp.topic for tp in cluster[2].metadata if tp.partition == 1} == {"a", "c"}


@pytest.mark.parametrize("path", ["/brokers/topics/b", "/admin/delete_topics/b"])
def test_a_deletion_that_the_store_refuses_keeps_no_other_back(path: str) -> None:
    @with_brokers(1, 2)
    async def run(cluster: Cluster) -> None:
        for name in ("a", "b", "c"):
            await cluster.create(name, (1, 2))
        Refusing(cluster.members[1].session, path, Refused(path, "refused"))
        results = await cluster.controller.delete_topics(["b", "a"], timeout_ms=1000)
        wished = path == "/brokers/topics/b"
        assert [code(r.error) for r in results] == [ErrorCode.NONE if wished else ErrorCode.KAFKA_STORAGE_ERROR, 0]
        (result,) = await cluster.controller.delete_topics(["c"], timeout_ms=1000)
        assert result.error is None
        await cluster.settle()
        assert await cluster.client.children("/brokers/topics") == ["b"]
        assert {tp.topic for tp in cluster[2].metadata} == (set() if wished else {"b"})

    run()


@with_brokers(1, 2, 3)
async def test_a_topic_that_is_removed_when_a_broker_dies_keeps_no_election_back(cluster: Cluster) -> None:
    """The store had refused to remove it."""
    for name in ("a", "b"):
        await cluster.create(name, (2, 3))
    session = cluster.members[1].session
    working = session.multi
    Refusing(session, "/brokers/topics/a", Refused("/brokers/topics/a", "refused"))
    await cluster.controller.delete_topics(["a"], timeout_ms=1000)
    assert await cluster.client.children("/brokers/topics") == ["a", "b"]
    session.multi = working  # type: ignore[method-assign]
    await cluster.kill(2)
    assert await cluster.client.children("/brokers/topics") == ["b"]
    assert (await cluster.state("b")).leader == 3


# Deletion.


@with_brokers(1)
async def test_delete_by_name_and_id(cluster: Cluster) -> None:
    await cluster.create("a", (1,), (1,), configs={"retention.ms": "5"})
    b = await cluster.create("b", (1,))
    results = await cluster.controller.delete_topics(["a", b, "none", bytes(15) + b"x"], timeout_ms=1000)
    assert [code(r.error) for r in results] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]
    assert [r.name for r in results] == ["a", "b", "none", None]
    for path in ("/brokers/topics", "/config/topics", TopicDeletion.PARENT):
        assert await cluster.client.children(path) == []
    assert not cluster[1].replicas
    assert not cluster[1].metadata
    stop = next(r for r in cluster[1].requests if isinstance(r, StopReplicaRequest))
    assert all(p.delete_partition and p.leader_epoch == -2 for t in stop.topic_states for p in t.partition_states)
    again = await cluster.create("b", (1,))
    assert again != b


@with_brokers(1)
async def test_many_topics_are_deleted_in_groups(cluster: Cluster) -> None:
    names = [f"t{i}" for i in range(250)]
    await cluster.controller.create_topics([NewTopic(name=name, partitions=1) for name in names], timeout_ms=1000)
    results = await cluster.controller.delete_topics(names, timeout_ms=1000)
    assert [result.name for result in results if result.error is None] == names
    assert await cluster.client.children("/brokers/topics") == []
    stops = [r for r in cluster[1].requests if isinstance(r, StopReplicaRequest)]
    assert len(stops) > 2
    assert all(len(stop.topic_states) <= 100 for stop in stops)


@with_brokers(1, 2)
async def test_a_broker_that_is_down_holds_the_topic_in_the_store(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2), (2, 1))
    await cluster.kill(2)
    (result,) = await cluster.controller.delete_topics(["a"], timeout_ms=1000)
    assert result.error is None
    assert not cluster[1].metadata
    assert not cluster[1].replicas
    assert await cluster.client.children("/brokers/topics") == ["a"]
    assert await try_create(cluster, NewTopic(name="a")) == [ErrorCode.TOPIC_ALREADY_EXISTS]
    await cluster.start(2)
    assert await cluster.client.children("/brokers/topics") == []
    assert await cluster.client.children(TopicDeletion.PARENT) == []
    assert not cluster[2].replicas
    assert not cluster[2].metadata
    await cluster.create("a", (1, 2))


@with_brokers(1, 2, 3)
async def test_a_broker_that_has_not_heard_of_a_deletion_hears_of_it_from_the_next_controller(cluster: Cluster) -> None:
    """It has no replica, so nobody waits for it. That controller knows nothing of the topic, and says what there is."""
    await cluster.create("a", (2,))
    await cluster.create("b", (2,))
    cluster[3].reachable.clear()
    (result,) = await cluster.controller.delete_topics(["a"], timeout_ms=1000)
    assert result.error is None
    assert await cluster.client.children("/brokers/topics") == ["b"]
    await cluster.kill(1)
    assert TopicPartition("a", 0) in cluster[3].metadata
    cluster[3].reachable.set()
    await cluster.settle()
    assert cluster[3].metadata.keys() == {TopicPartition("b", 0)}


@with_brokers(1, 2, 3)
async def test_nobody_is_told_that_a_topic_is_gone_which_the_controller_cannot_read(cluster: Cluster) -> None:
    await cluster.create("a", (2,))
    await cluster.create("b", (2,))
    await cluster.client.set("/brokers/topics/a", b"damaged")
    await cluster.kill(1)
    assert cluster[3].metadata.keys() == {TopicPartition("a", 0), TopicPartition("b", 0)}
    await cluster.client.delete("/brokers/topics/a/partitions/0/state")
    await cluster.client.delete("/brokers/topics/a/partitions/0")
    await cluster.client.delete("/brokers/topics/a/partitions")
    await cluster.client.delete("/brokers/topics/a")
    await cluster.settle()
    await cluster.kill(2)
    assert cluster[3].metadata.keys() == {TopicPartition("b", 0)}


@with_brokers(1, 2, 3)
async def test_nobody_is_told_that_a_topic_is_gone_whose_only_state_cannot_be_read(cluster: Cluster) -> None:
    await cluster.create("a", (3,))
    await cluster.create("b", (2,))
    cluster[3].requests.clear()
    await cluster.client.set("/brokers/topics/a/partitions/0/state", b"damaged")
    await cluster.kill(1)
    assert TopicPartition("a", 0) in cluster[3].metadata
    told = [request.type for request in cluster[3].requests if isinstance(request, UpdateMetadataRequest)]
    assert told == [0] * len(told)


@with_brokers(1)
async def test_a_disk_that_cannot_delete(cluster: Cluster) -> None:
    await cluster.create("a", (1,))
    cluster[1].undeletable.add(TopicPartition("a", 0))
    (result,) = await cluster.controller.delete_topics(["a"], timeout_ms=1000)
    assert result.error is None
    assert await cluster.client.children("/brokers/topics") == ["a"]


@with_brokers(1, 2)
async def test_a_disk_that_could_not_delete_is_asked_again_now_and_then(cluster: Cluster) -> None:
    """It may have hung, and nobody says when it is over. Those that have answered are not asked."""
    tp = TopicPartition("a", 0)
    await cluster.create("a", (1, 2))
    cluster[1].undeletable.add(tp)
    await cluster.controller.delete_topics(["a"], timeout_ms=1000)

    def asked() -> list[int]:
        return [sum(isinstance(r, StopReplicaRequest) for r in cluster[broker].requests) for broker in (1, 2)]

    async def later(ms: float) -> None:
        controller = cluster.controller
        controller._timers.expire(controller._clock.monotonic_ms() + ms)
        await cluster.settle()

    assert asked() == [1, 1]
    await later(ASKED_AGAIN_MS / 2)
    assert asked() == [1, 1]
    await later(ASKED_AGAIN_MS)
    assert asked() == [2, 1]
    assert await cluster.client.children("/brokers/topics") == ["a"]
    cluster[1].undeletable.clear()
    await later(ASKED_AGAIN_MS)
    assert await cluster.client.children("/brokers/topics") == []
    await later(ASKED_AGAIN_MS)
    assert asked() == [3, 1]


@with_brokers(1)
async def test_who_is_the_controller_no_more_does_not_ask_disks_again(cluster: Cluster) -> None:
    await cluster.create("a", (1,), (1,))
    cluster[1].undeletable |= {TopicPartition("a", 0), TopicPartition("a", 1)}
    await cluster.controller.delete_topics(["a"], timeout_ms=1000)
    timers = cluster.controller._timers
    assert len(timers)
    await cluster.kill(1)
    assert not len(timers)


@with_brokers(1, 2)
async def test_an_answer_to_what_was_asked_of_a_broker_before_it_started_again_counts_no_more(cluster: Cluster) -> None:
    """The broker refuses it by its epoch, when the controller has heard of the new one but has not come to that yet."""
    await cluster.create("a", (2,))
    started, idle = asyncio.Event(), asyncio.Event()

    async def resent(request: StopReplicaRequest) -> StopReplicaResponse:
        await started.wait()
        return StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)

    async def busy() -> None:
        await idle.wait()

    cluster[2].stop_replica = resent  # type: ignore[method-assign]
    deleting = asyncio.create_task(cluster.controller.delete_topics(["a"], timeout_ms=30_000))
    await cluster.settle()
    cluster.controller._queue.put_nowait(busy)
    await cluster.kill(2)
    await cluster.start(2)
    started.set()
    await cluster.settle()
    idle.set()
    await deleting
    await cluster.settle()
    assert await cluster.client.children("/brokers/topics") == []


@with_brokers(1, 2)
async def test_a_replica_that_its_broker_would_not_let_lead_is_deleted(cluster: Cluster) -> None:
    await cluster.create("a", (2, 1))
    cluster[2].failed.add(TopicPartition("a", 0))
    await cluster.client.create(LogDirEvent.PREFIX, LogDirEvent.encode(2), sequential=True)
    await cluster.settle()
    assert (await cluster.state("a", 0)).isr == (1,)
    await cluster.controller.delete_topics(["a"], timeout_ms=1000)
    assert await cluster.client.children("/brokers/topics") == []


@with_brokers(1)
async def test_a_deletion_written_by_a_tool(cluster: Cluster) -> None:
    await cluster.create("a", (1,))
    await cluster.client.create(TopicDeletion.path("a"))
    await cluster.client.create(TopicDeletion.path("unknown"))
    await cluster.settle()
    assert await cluster.client.children("/brokers/topics") == []
    assert await cluster.client.children(TopicDeletion.PARENT) == []


@with_brokers(1)
async def test_a_topic_written_by_a_tool(cluster: Cluster) -> None:
    text = json.dumps({"version": 1, "partitions": {"0": [1], "1": [1]}}).encode()
    await cluster.client.create("/brokers/topics/old", text)
    await cluster.settle()
    assert len(cluster[1].replicas) == 2
    assert Topic.decode((await cluster.client.get("/brokers/topics/old"))[0]).topic_id == cluster[1].topic_ids["old"]
    assert (await cluster.state("old", 1)).leader == 1


@with_brokers(1)
async def test_a_topic_whose_id_the_store_refuses_is_read_later_and_keeps_no_other_back(cluster: Cluster) -> None:
    session = cluster.members[1].session
    write = session.multi

    async def refuse(operations: Sequence[Operation]) -> list[Result]:
        if any(each.path == "/brokers/topics/a" for each in operations):
            raise MultiFailed(1, Refused("/brokers/topics/a", "for a test"))
        return await write(operations)

    session.multi = refuse  # type: ignore[method-assign]
    text = json.dumps({"version": 1, "partitions": {"0": [1]}}).encode()
    await cluster.client.multi([Create(f"/brokers/topics/{name}", text) for name in ("a", "b")])
    await cluster.settle()
    await cluster.client.create("/brokers/topics/c", text)
    await cluster.settle()
    assert sorted(tp.topic for tp in cluster[1].replicas) == ["b", "c"]
    session.multi = write  # type: ignore[method-assign]
    await cluster.client.create("/brokers/topics/d", text)
    await cluster.settle()
    assert sorted(tp.topic for tp in cluster[1].replicas) == ["a", "b", "c", "d"]


@with_brokers(1)
async def test_few_tasks_at_a_time_make_and_delete_what_a_tool_wrote(cluster: Cluster) -> None:
    """Thousands that begin in one turn of the loop would hold up everybody else."""
    most = 0

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        nonlocal most
        most = max(most, len(asyncio.all_tasks(loop)))
        return asyncio.Task(coroutine, loop=loop, **more)

    asyncio.get_running_loop().set_task_factory(make)
    text = json.dumps({"version": 1, "partitions": {str(p): [1] for p in range(1500)}}).encode()
    await cluster.client.create("/brokers/topics/large", text)
    while len(cluster[1].replicas) < 1500:
        await cluster.settle()
    await cluster.controller.delete_topics(["large"], timeout_ms=10_000)
    assert await cluster.client.children("/brokers/topics") == []
    assert most < 300


# More partitions.


async def try_add(cluster: Cluster, *requests: MorePartitions, **more: Any) -> list[ErrorCode]:
    results = await cluster.controller.create_partitions(requests, **({"timeout_ms": 1000} | more))
    return [code(result.error) for result in results]


@with_brokers(1, 2, 3)
async def test_more_partitions(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2), (2, 3))
    assert await try_add(cluster, MorePartitions(name="a", count=4), validate_only=True) == [ErrorCode.NONE]
    assert len(cluster[1].metadata) == 2
    assert await try_add(cluster, MorePartitions(name="a", count=4)) == [ErrorCode.NONE]
    topic = Topic.decode((await cluster.client.get("/brokers/topics/a"))[0])
    assert [topic.partitions[p].replicas for p in range(4)] == [(1, 2), (2, 3), (3, 1), (1, 3)]
    assert len(cluster[1].metadata) == 4
    assert (await cluster.state("a", 2)).leader == 3
    assert await try_add(cluster, MorePartitions(name="a", count=5, assignment=[(3, 2)])) == [ErrorCode.NONE]
    assert cluster[3].replicas[TopicPartition("a", 4)].replicas == [3, 2]


@with_brokers(1, 2)
async def test_partitions_whose_first_states_are_written_already(cluster: Cluster) -> None:
    """By a request of which the store has refused the rest."""
    await cluster.create("a", (1, 2))
    state = PartitionState(leader=2, leader_epoch=0, isr=(2, 1), controller_epoch=1)
    await cluster.client.multi(new_partition("a", 1, state))
    topic = Topic.decode((await cluster.client.get(Topic.path("a")))[0])
    topic.partitions[1] = topic.partitions[2] = PartitionAssignment(replicas=(2, 1))
    await cluster.client.set(Topic.path("a"), topic.encode())
    await cluster.settle()
    assert [cluster[1].replicas[TopicPartition("a", p)].leader for p in (1, 2)] == [2, 2]
    assert [cluster[2].metadata[TopicPartition("a", p)].leader for p in (1, 2)] == [2, 2]


@with_brokers(1, 2)
async def test_refused_partitions(cluster: Cluster) -> None:
    await cluster.create("a", (1, 2))
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for count, assignment, expected in (
        (1, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (2_000_000_000, None, ErrorCode.POLICY_VIOLATION),
        (2, [(1, 9)], bad),
        (2, [(1, 2), (2, 1)], bad),
        (2, [(1, 1)], bad),
        (2, [(1,)], bad),
        (2, [()], bad),
    ):
        assert await try_add(cluster, MorePartitions(name="a", count=count, assignment=assignment)) == [expected]
    assert await try_add(cluster, MorePartitions(name="b", count=2)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    twice = MorePartitions(name="a", count=3)
    assert await try_add(cluster, twice, twice) == [ErrorCode.INVALID_REQUEST] * 2
    assert len(cluster[1].metadata) == 1


@with_brokers(1)
async def test_one_request_adds_only_so_many_partitions_to_all_its_topics(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        await cluster.create(name, (1,))
    asked = [MorePartitions(name=name, count=count) for name, count in (("a", 6_001), ("b", 6_001), ("c", 4_001))]
    expected = [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]
    assert await try_add(cluster, *asked, validate_only=True) == expected


def test_partitions_for_many_topics_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    give_way_each_time(monkeypatch)

    @with_brokers(1)
    async def run(cluster: Cluster) -> None:
        adding = asyncio.ensure_future(try_add(cluster, *[MorePartitions(name=f"no-{n}", count=2) for n in range(50)]))
        turns = 0
        while not adding.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 50

    run()


@with_brokers(1)
async def test_left_over_settings_of_a_topic_are_replaced(cluster: Cluster) -> None:
    await cluster.client.create("/config/topics/a", Config.encode({"retention.ms": "1"}))
    await cluster.create("a", (1,))
    assert (await cluster.client.get("/config/topics/a"))[0] == b'{"version":1,"config":{}}'


@with_brokers(1, 2)
async def test_partitions_that_are_written_into_the_store_by_hand(cluster: Cluster) -> None:
    topic_id = await cluster.create("a", (1, 2))
    path = Topic.path("a")
    for count in (2, 3):
        replicas = [PartitionAssignment(replicas=(2, 1))] * count
        await cluster.client.set(path, Topic(topic_id, dict(enumerate(replicas))).encode())
        await cluster.settle()
        new = TopicPartition("a", count - 1)
        assert cluster[1].metadata[new].leader == cluster[2].replicas[new].leader == 2
        assert (await cluster.state(*new)).isr == (2, 1)
    assert cluster[1].metadata[TopicPartition("a", 0)].replicas == [1, 2], "others are moved by reassignments only"


@with_brokers(1)
async def test_partitions_that_are_written_into_a_topic_which_took_the_place_of_another(cluster: Cluster) -> None:
    """The controller makes it before it hears that the other one's node is gone."""
    controller = cluster.controller
    during, held = controller._during, []

    def hold_news(term: Term, event: Any) -> None:
        if isinstance(event, partial) and event.func is Term._topics_changed:
            held.append((term, event))
        else:
            during(term, event)

    await cluster.create("a", (1,))
    await cluster.settle()
    controller._during = hold_news  # type: ignore[method-assign]
    await controller.delete_topics(["a"], timeout_ms=1000)
    topic_id = await cluster.create("a", (1,))
    controller._during = during  # type: ignore[method-assign]
    for news in held:
        during(*news)
    await cluster.settle()
    written = Topic(topic_id, {number: PartitionAssignment(replicas=(1,)) for number in range(2)})
    await cluster.client.set(Topic.path("a"), written.encode())
    await cluster.settle()
    assert len(cluster[1].replicas) == 2


@with_brokers(1, 2)
async def test_a_topic_that_is_being_deleted_gets_no_more_partitions(cluster: Cluster) -> None:
    topic_id = await cluster.create("a", (1, 2))
    await cluster.kill(2)
    await cluster.controller.delete_topics(["a"], timeout_ms=1000)
    path = Topic.path("a")
    before = (await cluster.client.get(path))[0]
    replicas = [PartitionAssignment(replicas=(1, 2))] * 2
    await cluster.client.set(path, Topic(topic_id, dict(enumerate(replicas))).encode())
    await cluster.settle()
    assert (await cluster.client.get(path))[0] == before
    assert await cluster.client.exists("/brokers/topics/a/partitions/1") is None


@with_brokers(1)
async def test_no_topic_is_deleted_by_hand_where_none_may_be(cluster: Cluster) -> None:
    await cluster.create("a", (1,))
    cluster.deletes_topics = False
    await cluster.client.create(TopicDeletion.path("a"))
    await cluster.settle()
    assert await cluster.client.children(TopicDeletion.PARENT) == []
    assert cluster[1].replicas.keys() == {TopicPartition("a", 0)}
    cluster.deletes_topics = True
    await cluster.client.create(TopicDeletion.path("a"))
    await cluster.settle()
    assert not cluster[1].replicas
