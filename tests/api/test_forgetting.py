"""Traces of clients that must not stay for ever: deleted topics, long names, settings that were tried."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from kafkad.api import prepared, produce_repeat
from kafkad.api.produce_repeat import RepeatedProduce
from kafkad.broker.settings import Settings
from kafkad.config import load
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.list_groups import ListGroupsRequest
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.api.frames import Frames
from tests.api.test_produce import batch, produce, request
from tests.one_broker import OneBroker


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Frames]:
    frames = Frames(broker)
    yield frames
    frames.close()


def test_nothing_keeps_the_partitions_of_a_deleted_topic(frames: Frames, broker: OneBroker) -> None:
    broker.create("t", configs={"retention.ms": "123456789"})
    for _ in range(3):
        assert produce(frames, batch()).error_code == 0
    partition = weakref.ref(broker.replicas.get("t", 0))
    assert broker.configs.topic("t")
    assert frames.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 3).responses[0].error_code == 0
    broker.settle()
    gc.collect()
    assert partition() is None
    assert not broker.configs.topic("t")


def test_a_client_with_a_very_long_name_is_served_and_not_remembered(frames: Frames, broker: OneBroker) -> None:
    broker.create("t")
    for turn in range(3):
        answer = frames.ask(request(frames, 8, {0: batch()}), 8, "x" * 3000).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 3 * turn)
        assert not frames.connection.peer.prepared


def test_no_more_clients_are_remembered_than_there_is_room(
    frames: Frames, broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_MOST_PREPARED", 5)
    broker.create("t")
    peers = []
    for number in range(12):
        frames.connection = frames.connect()
        peers.append(frames.connection.peer)
        for client in "ab":
            answer = frames.ask(request(frames, 8, {0: batch()}), 8, f"client {number} {client}")
            assert answer.responses[0].partition_responses[0].error_code == 0
        kept = [peer.prepared[0] for peer in peers if peer.prepared]
        assert sum(len(each._targets) for each in kept if isinstance(each, RepeatedProduce)) == (2 * number + 2) % 6


def test_a_peer_has_only_so_many_answers(frames: Frames, broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_repeat, "_MOST_KNOWN", 5)
    broker.create("t")
    for number in range(12):
        frames.ask(request(frames, 8, {0: batch()}), 8, f"client {number}")
        repeated = frames.connection.peer.prepared[0]
        assert isinstance(repeated, RepeatedProduce)
        assert 1 <= len(repeated._targets) <= 5


def test_groups_with_long_names_commit_as_others_do(frames: Frames, broker: OneBroker) -> None:
    broker.create("t")
    group = "g" * 3000
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    commit = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=[topic])
    frames.ask(ListGroupsRequest(), 0)
    for _ in range(3):
        frames.ask(commit, 7)
    assert not frames.connection.peer.prepared


def test_settings_that_were_tried_are_forgotten() -> None:
    tried: dict[str, dict[str, str]] = {f"t{number}": {"retention.ms": str(number + 1)} for number in range(5000)}
    settings = Settings(load(None, [], {}))
    settings.follow(lambda topic: tried[topic])
    for number in range(5000):
        assert settings.of_topic(f"t{number}").retention_ms == number + 1
    assert len(settings._resolved) <= 1000
