"""Groups by the admin clients of the libraries, and what consumers are called back with when they have committed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import OffsetMetadataTooLargeError
from aiokafka.structs import OffsetAndMetadata as AioOffset
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as Partition
from kafka.structs import OffsetAndMetadata

from tests.clients.asker import Asker
from tests.clients.conftest import Broker
from tests.clients.members import wait_for_coordinator

SECONDS = 20
TOO_LONG = "m" * 5000


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    """An admin client, once groups are coordinated."""
    asker = Asker(int(broker.bootstrap.rpartition(":")[2]))
    with contextlib.closing(asker.client):
        wait_for_coordinator(asker, "any")
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic(admin: AdminClient, name: Callable[[], str]) -> str:
    topic = name()
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(SECONDS)
    return topic


@contextlib.contextmanager
def reading(broker: Broker, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """The only member of a group, which has its partitions."""
    assigned: list[TopicPartition] = []
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "reader", **settings})
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    try:
        until(lambda: bool(assigned), lambda: consumer.poll(0.1))
        yield consumer
    finally:
        consumer.close()


def until(done: Callable[[], bool], step: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline
        step()


def code_of(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(SECONDS)
    return int(refused.value.args[0].code())


@pytest.mark.client("confluent-kafka", "admin of groups")
def test_confluent(broker: Broker, admin: AdminClient, topic: str) -> None:
    group = f"{topic}-group"
    wanted = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 5)]

    def alter() -> list[TopicPartition]:
        [future] = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]).values()
        return future.result(SECONDS).topic_partitions  # type: ignore[no-any-return]

    with reading(broker, group, topic):
        described = admin.describe_consumer_groups([group])[group].result(SECONDS)
        assert (described.state, described.type, described.partition_assignor) == (
            ConsumerGroupState.STABLE, ConsumerGroupType.CLASSIC, "range",
        )  # fmt: skip
        [member] = described.members
        assert (member.client_id, len(member.assignment.topic_partitions)) == ("reader", 2)
        assert {one.error.code() for one in alter()} == {KafkaError.UNKNOWN_MEMBER_ID}
        assert code_of(admin.delete_consumer_groups([group])[group]) == KafkaError.NON_EMPTY_GROUP
    assert [one.error for one in alter()] == [None, None]
    [offsets] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], require_stable=True).values()
    found = {one.partition: one.offset for one in offsets.result(SECONDS).topic_partitions}
    assert found == {0: 3, 1: 5}
    for asked in ({"states": {ConsumerGroupState.EMPTY}}, {"types": {ConsumerGroupType.CLASSIC}}):
        assert group in {one.group_id for one in admin.list_consumer_groups(**asked).result(SECONDS).valid}
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(SECONDS)
    assert group not in {one.group_id for one in stable.valid}
    assert admin.delete_consumer_groups([group])[group].result(SECONDS) is None
    assert code_of(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.client("kafka-python", "admin of groups")
def test_kafka_python(broker: Broker, admin: AdminClient, topic: str) -> None:
    group = f"{topic}-group"
    first, second = Partition(topic, 0), Partition(topic, 1)
    with contextlib.closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as python:
        offsets = {first: OffsetAndMetadata(3, "why", -1), second: OffsetAndMetadata(5, "", 0)}
        python.alter_group_offsets(group, offsets)
        assert python.list_group_offsets(group) == {group: offsets}
        with reading(broker, group, topic):
            described = python.describe_groups([group])[group]
            assert (described["group_state"], len(described["members"])) == ("Stable", 1)
        listed = {one["group_id"]: one["group_state"] for one in map(dict, python.list_groups())}
        assert listed[group] == "Empty"
        python.delete_group_offsets(group, [second])
        assert python.list_group_offsets(group) == {group: {first: offsets[first]}}
        assert python.delete_groups([group]) == {group: "OK"}
        assert python.list_group_offsets(group) == {group: {}}


@pytest.mark.client("confluent-kafka", "called back after commits")
def test_confluent_is_called_back(broker: Broker, admin: AdminClient, topic: str) -> None:
    called: list[Any] = []
    with reading(broker, f"{topic}-group", topic, on_commit=lambda *said: called.append(said)) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=True)
        until(lambda: len(called) == 1, lambda: consumer.poll(0.1))
        consumer.commit(offsets=[TopicPartition(topic, 1, 3, TOO_LONG)], asynchronous=True)
        until(lambda: len(called) == 2, lambda: consumer.poll(0.1))
    (error, [done]), (_, [refused]) = called
    assert (error, done.offset, done.error) == (None, 3, None)
    assert refused.error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE


@pytest.mark.client("kafka-python", "called back after commits")
def test_kafka_python_is_called_back(broker: Broker, admin: AdminClient, topic: str) -> None:
    called: list[Any] = []
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=f"{topic}-group", enable_auto_commit=False)
    with contextlib.closing(consumer):
        for metadata in ("why", TOO_LONG):
            offsets = {Partition(topic, 0): OffsetAndMetadata(3, metadata, -1)}
            before = len(called)
            consumer.commit_async(offsets, callback=lambda *said: called.append(said))
            until(lambda before=before: len(called) > before, lambda: consumer.poll(100))  # type: ignore[misc]
        assert consumer.committed(Partition(topic, 0), metadata=True).metadata == "why"
    assert [type(result).__name__ for _, result in called] == ["NoneType", "OffsetMetadataTooLargeError"]


@pytest.mark.client("aiokafka", "commits and what is refused of them")
def test_aiokafka_hears_of_its_commits(broker: Broker, admin: AdminClient, topic: str) -> None:
    async def run() -> None:
        partition = AioPartition(topic, 0)
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=f"{topic}-group", enable_auto_commit=False
        )
        await consumer.start()
        try:
            await consumer.commit({partition: AioOffset(3, "why")})
            with pytest.raises(OffsetMetadataTooLargeError):
                await consumer.commit({partition: AioOffset(4, TOO_LONG)})
            assert await consumer.committed(partition) == 3
        finally:
            await consumer.stop()

    asyncio.run(run())
