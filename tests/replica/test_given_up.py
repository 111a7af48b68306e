"""Replicas that a broker gives up when it hears that others have them, or that their topic is gone."""

from __future__ import annotations

import pytest

from kafkad.errors import ErrorCode
from kafkad.model import ALL_TOPICS
from kafkad.names import TopicPartition
from kafkad.wire.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.one_broker import OneBroker
from tests.replica.requests import ID, NEW, OLD, OTHER_ID, give, give_without_room, made


@pytest.mark.parametrize(
    ("topic_id", "controller_epoch", "leader_epoch", "holders", "stays"),
    [
        (ID, NEW, 2, [2, 3], False),
        (ID, NEW, 1, [2, 3], True),
        (ID, NEW, 2, [2, 1], True),
        (ID, OLD, 2, [2, 3], True),
        (OTHER_ID, OLD, 2, [2, 3], True),
    ],
    ids=["moved", "late", "here", "of an old controller", "another topic of an old controller"],
)
def test_what_only_others_have_in_a_later_epoch_is_given_up(
    broker: OneBroker, topic_id: bytes, controller_epoch: int, leader_epoch: int, holders: list[int], stays: bool
) -> None:
    """Its log is left alone, and goes on when the partition is moved back."""
    replicas = broker.replicas
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    log = replicas.get("a", 0).log
    told: list[TopicPartition] = []
    replicas.on_roles_changed = lambda changed: told.extend(partition.tp for partition in changed)
    state = UpdateMetadataPartitionState(leader=2, leader_epoch=leader_epoch, isr=holders, replicas=holders)
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=topic_id, partition_states=[state])
    request = UpdateMetadataRequest(controller_epoch=controller_epoch, topic_states=[topic])
    broker.run(replicas.update_metadata(request))
    assert sorted(replicas.of_topic("a")) == ([0, 1] if stays else [1])
    assert told == ([] if stays else [TopicPartition("a", 0)])
    assert give(broker, ID, 0) == [ErrorCode.STALE_CONTROLLER_EPOCH if stays else ErrorCode.NONE]
    assert replicas.get("a", 0).log is log


@pytest.mark.parametrize("holders", [[2, 3], [1, 2]], ids=["elsewhere", "here"])
def test_what_is_of_an_earlier_topic_is_given_up(broker: OneBroker, holders: list[int]) -> None:
    """The new one's epochs begin anew. Its log is left alone, and not taken for the new one's."""
    replicas = broker.replicas
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    log = replicas.get("a", 0).log
    state = UpdateMetadataPartitionState(leader=2, leader_epoch=0, isr=holders, replicas=holders)
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=OTHER_ID, partition_states=[state])
    broker.run(replicas.update_metadata(UpdateMetadataRequest(controller_epoch=NEW, topic_states=[topic])))
    assert sorted(replicas.of_topic("a")) == [1]
    assert give(broker, OTHER_ID, 0) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert replicas.logs.get(TopicPartition("a", 0)) is log
    assert give(broker, ID, 0) == [ErrorCode.NONE]
    assert replicas.get("a", 0).log is log


def test_a_leader_is_given_up_when_another_topic_of_its_name_is_to_be_led(broker: OneBroker) -> None:
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    assert give(broker, OTHER_ID, 0) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert sorted(broker.replicas.of_topic("a")) == [1]


@pytest.mark.parametrize(("kind", "left"), [(0, ["a", "b"]), (ALL_TOPICS, ["b"])], ids=["some topics", "all topics"])
def test_what_is_of_no_topic_is_given_up_by_who_hears_of_all_topics(
    broker: OneBroker, kind: int, left: list[str]
) -> None:
    broker.create("b")
    assert give(broker, ID, 0, 1) == [ErrorCode.NONE, ErrorCode.NONE]
    give_without_room(broker, ID, 2)
    broker.run(
        broker.replicas.update_metadata(
            UpdateMetadataRequest(controller_epoch=NEW, type=kind, topic_states=[state_of_b(broker)])
        )
    )
    assert sorted({partition.tp.topic for partition in broker.replicas}) == left
    assert TopicPartition("a", 0) in broker.replicas.logs.logs
    assert not (kind == ALL_TOPICS and broker.replicas.refused_count)


def state_of_b(broker: OneBroker) -> UpdateMetadataTopicState:
    topic = broker.replicas.metadata.topic("b")
    return UpdateMetadataTopicState(topic_name="b", topic_id=topic.id, partition_states=list(topic.partitions.values()))


def test_a_replica_that_waits_for_room_is_given_up_where_only_others_have_it(broker: OneBroker) -> None:
    give_without_room(broker, ID, 0, 1)
    state = UpdateMetadataPartitionState(leader=2, leader_epoch=2, isr=[2, 3], replicas=[2, 3])
    topic = UpdateMetadataTopicState(topic_name="a", topic_id=ID, partition_states=[state])
    broker.run(broker.replicas.update_metadata(UpdateMetadataRequest(controller_epoch=NEW, topic_states=[topic])))
    assert made(broker) == [1]
