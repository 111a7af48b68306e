"""Prepared answers belong to one peer, and are forgotten when what they rest on is no longer so."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any, cast

import pytest

from kafkad.api import prepared
from kafkad.api.peer import Peer
from kafkad.api.prepared import Grounds, PreparedAnswers
from kafkad.api.produce import ProduceApi
from kafkad.api.routes import FETCH, OFFSET_COMMIT, PRODUCE
from kafkad.cluster.metadata import MetadataCache
from kafkad.errors import StorageError
from kafkad.names import TopicId
from kafkad.net.connection import Connection
from kafkad.security.authorizer import ALLOW_ALL, Principal
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.api.frames import Frames
from tests.api.test_produce import batch, request
from tests.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path, "offsets.topic.num.partitions=1")
    coordination = broker.context.group_coordination
    broker.run(coordination.prepare())
    broker.run_until(lambda: bool(list(coordination.shards())))
    yield broker
    broker.stop()


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Frames]:
    frames = Frames(broker)
    for topic in ("t", "u"):
        broker.create(topic)
    yield frames
    frames.close()


def produce(frames: Frames) -> Any:
    [topic] = frames.ask(request(frames, 9, {0: batch()}), 9).responses
    return topic.partition_responses[0].error_code


def fetch(frames: Frames) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    message = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    return frames.ask(message, 12).responses[0].partitions[0].error_code


def commit(frames: Frames) -> Any:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    message = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])
    return frames.ask(message, 8).topics[0].partitions[0].error_code


ASKED: dict[int, Callable[[Frames], Any]] = {PRODUCE: produce, FETCH: fetch, OFFSET_COMMIT: commit}


def prepare(frames: Frames) -> None:
    for ask in ASKED.values():
        assert ask(frames) == 0
    assert set(frames.connection.peer.prepared) == set(ASKED)


def delete(broker: OneBroker, frames: Frames, topic: str) -> None:
    [deleted] = frames.ask(DeleteTopicsRequest(topic_names=[topic], timeout_ms=5000), 3).responses
    assert deleted.error_code == 0
    broker.settle()


CHANGES: dict[str, Callable[[OneBroker, Frames], None]] = {
    "led elsewhere": lambda broker, frames: broker.lead("t", 0, leader=2),
    "led in another epoch": lambda broker, frames: broker.lead("t", 0, leader=1),
    "deleted": lambda broker, frames: delete(broker, frames, "t"),
    "its disk lost": lambda broker, frames: broker.replicas.directory_failed(
        StorageError(os.path.dirname(broker.replicas.get("t", 0).log.directory), "gone")
    ),
    "other permissions": lambda broker, frames: frames.dispatcher.permissions_changed(),
    "closed": lambda broker, frames: frames.connection.peer.closed(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_no_longer_holds_is_forgotten_at_once_and_by_everybody(
    broker: OneBroker, frames: Frames, change: str
) -> None:
    prepare(frames)
    CHANGES[change](broker, frames)
    assert not frames.connection.peer.prepared
    broker.settle()
    assert not frames.dispatcher._grounds._resting


def test_what_becomes_of_another_topic_is_no_reason_to_forget(broker: OneBroker, frames: Frames) -> None:
    prepare(frames)
    broker.lead("u", 0, leader=1)
    delete(broker, frames, "u")
    broker.create("v")
    broker.settle()
    assert set(frames.connection.peer.prepared) == set(ASKED)


def test_answers_are_right_again_after_each_change(broker: OneBroker, frames: Frames) -> None:
    prepare(frames)
    broker.lead("t", 0, leader=2)
    assert [ASKED[key](frames) for key in (PRODUCE, FETCH, OFFSET_COMMIT)] == [6, 0, 0], "followers serve consumers"
    broker.lead("t", 0, leader=1)
    prepare(frames)
    delete(broker, frames, "t")
    assert [ASKED[key](frames) for key in (PRODUCE, FETCH, OFFSET_COMMIT)] == [3, 3, 3]


def test_what_is_prepared_for_one_peer_serves_no_other(frames: Frames, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    serve = ProduceApi.serve

    def counted(api: ProduceApi, connection: Connection, *rest: Any) -> Any:
        served.append(connection)
        return serve(api, connection, *rest)

    monkeypatch.setattr(ProduceApi, "serve", counted)
    alice = frames.connection
    for _ in range(3):
        produce(frames)
    assert served == [cast(Connection, alice)]
    frames.connection = bob = frames.connect()
    produce(frames)
    assert served == [cast(Connection, alice), cast(Connection, bob)]
    assert not set(alice.peer.prepared.values()) & set(bob.peer.prepared.values())


def test_peers_that_ask_nothing_more_keep_nothing_of_a_deleted_topic(broker: OneBroker, frames: Frames) -> None:
    prepare(frames)
    frames.connection = frames.connect()
    prepare(frames)
    partition = weakref.ref(broker.replicas.get("t", 0))
    frames.connection = frames.connect()
    delete(broker, frames, "t")
    gc.collect()
    assert partition() is None


def test_who_logs_in_finds_nothing_prepared_for_whoever_it_was_before() -> None:
    peer = Peer("PLAINTEXT", "host", ALLOW_ALL, Grounds(), must_authenticate=True)
    peer.prepare(PRODUCE, cast(PreparedAnswers, object()), "t")
    peer.identify(Principal("User", "alice"))
    assert (str(peer.principal), peer.authenticated, dict(peer.prepared)) == ("User:alice", True, {})


def test_a_peer_of_very_many_topics_pays_no_more_for_the_last_than_for_the_first() -> None:
    peer = Peer("PLAINTEXT", "host", ALLOW_ALL, Grounds())
    answers = cast(PreparedAnswers, object())
    before = process_time()
    for number in range(20_000):
        peer.prepare(PRODUCE, answers, f"topic-{number}")
    assert process_time() - before < 1


@pytest.mark.parametrize("change", ["a topic", "permissions", "too many"])
def test_what_is_dropped_is_cleared_away_later(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """One step for each peer; what is prepared meanwhile stays."""
    later: list[Callable[[], None]] = []
    monkeypatch.setattr(prepared, "_MOST_PREPARED", 40 * 100)
    grounds = Grounds(later.append)
    peers = [Peer("PLAINTEXT", "host", ALLOW_ALL, grounds) for _ in range(40)]
    answers = cast(PreparedAnswers, object())
    for peer in peers:
        for number in range(100):
            peer.prepare(PRODUCE, answers, f"topic-{number}")
    assert not later
    if change == "a topic":
        grounds.topic_changed("topic-7")
    elif change == "permissions":
        grounds.everything_changed()
    else:
        peers[0].prepare(PRODUCE, answers, "topic-0")
    assert not any(peer.prepared for peer in peers)
    assert len(later) == 40
    monkeypatch.setattr(prepared, "_MOST_PREPARED", 2 * 40 * 100)
    peers[0].prepare(PRODUCE, answers, "topic-1")
    for action in later:
        action()
    assert list(grounds._resting) == ["topic-1"]
    grounds.topic_changed("topic-1")
    assert not peers[0].prepared


def test_a_topic_made_anew_under_its_name_is_told_of() -> None:
    told: list[str] = []
    metadata = MetadataCache()
    metadata.on_topic_gone.append(told.append)

    def update(topic_id: TopicId, leader: int = 1) -> None:
        state = UpdateMetadataPartitionState(partition_index=0, leader=leader, leader_epoch=0, isr=[1], replicas=[1])
        topic = UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=[state])
        metadata.apply(UpdateMetadataRequest(controller_id=1, topic_states=[topic]))

    update(b"a" * 16)
    update(b"a" * 16)
    assert told == []
    update(b"b" * 16)
    assert told == ["t"]
    update(b"b" * 16, leader=-2)
    assert told == ["t", "t"]
