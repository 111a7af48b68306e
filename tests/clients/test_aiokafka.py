"""aiokafka: produce, consume by assignment, admin; it speaks older versions of every API than the others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError

from tests.clients.conftest import Broker
from tests.clients.sample import CODECS, START_MS, Message, sample

SECONDS = 20

pytestmark = pytest.mark.client("aiokafka")


@contextlib.asynccontextmanager
async def admin_of(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def create(broker: Broker, topic: str, partitions: int = 1) -> str:
    async with admin_of(broker) as admin:
        response = await admin.create_topics([NewTopic(topic, partitions, 1)])
        assert [error[1] for error in response.topic_errors] == [0]
    return topic


async def produce(broker: Broker, topic: str, messages: list[Message], **settings: object) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=20, **settings) as producer:
        sent = [
            await producer.send(topic, m.value, m.key, 0, timestamp_ms=m.timestamp, headers=list(m.headers))
            for m in messages
        ]
        return [(await future).offset for future in sent]


async def consume(broker: Broker, topic: str, count: int, offset: int = 0) -> list[Message]:
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, auto_offset_reset="none"
    ) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        messages = []
        while len(messages) < count:
            r = await asyncio.wait_for(consumer.getone(), SECONDS)
            messages.append(Message(key=r.key, value=r.value, headers=tuple(r.headers), timestamp=r.timestamp))
        return messages


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(broker: Broker, name: Callable[[], str], codec: str) -> None:
    async def scenario() -> None:
        topic = await create(broker, name())
        compression = None if codec == "none" else codec
        offsets = await produce(broker, topic, sample(), compression_type=compression, enable_idempotence=True)
        assert offsets == list(range(len(sample())))
        assert await consume(broker, topic, len(sample())) == sample()
        assert await consume(broker, topic, 20, offset=len(sample()) - 20) == sample()[-20:]

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [1, "all"])
def test_produce_without_idempotence(broker: Broker, name: Callable[[], str], acks: int | str) -> None:
    async def scenario() -> None:
        topic = await create(broker, name())
        await produce(broker, topic, sample(10), acks=acks)
        assert await consume(broker, topic, 10) == sample(10)

    asyncio.run(scenario())


def test_large_messages(broker: Broker, name: Callable[[], str]) -> None:
    async def scenario() -> None:
        topic = await create(broker, name())
        messages = [Message(key=None, value=bytes([n]) * 900_000, headers=(), timestamp=START_MS) for n in range(3)]
        await produce(broker, topic, messages)
        assert await consume(broker, topic, 3) == messages
        too_large = [Message(key=None, value=bytes(1_500_000), headers=(), timestamp=START_MS)]
        with pytest.raises(MessageSizeTooLargeError):
            await produce(broker, topic, too_large, max_request_size=5_000_000)

    asyncio.run(scenario())


def test_offsets_by_consumer(broker: Broker, name: Callable[[], str]) -> None:
    async def scenario() -> None:
        topic = await create(broker, name())
        records = [Message(key=None, value=b"x", headers=(), timestamp=START_MS + i * 1000) for i in range(5)]
        await produce(broker, topic, records)
        partition = TopicPartition(topic, 0)
        async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as consumer:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 5}
            found = await consumer.offsets_for_times({partition: START_MS + 1500})
            assert found[partition].offset == 2

    asyncio.run(scenario())


def test_admin(broker: Broker, name: Callable[[], str]) -> None:
    async def scenario() -> None:
        topic = await create(broker, name())
        await produce(broker, topic, sample(10))
        partition = TopicPartition(topic, 0)
        async with admin_of(broker) as admin:
            again = await admin.create_topics([NewTopic(topic, 1, 1)])
            assert [error[1] for error in again.topic_errors] == [36]
            assert topic in await admin.list_topics()
            (described,) = await admin.describe_topics([topic])
            assert (described["error_code"], len(described["partitions"])) == (0, 1)
            cluster = await admin.describe_cluster()
            assert len(cluster["brokers"]) == 1
            await admin.delete_records({partition: RecordsToDelete(before_offset=6)})
            await admin.create_partitions({topic: NewPartitions(3)})
            deleted = await admin.delete_topics([topic])
            assert [code for _, code in deleted.topic_error_codes] == [0]

    asyncio.run(scenario())


def test_configs(broker: Broker, name: Callable[[], str]) -> None:
    async def retention(admin: AIOKafkaAdminClient, topic: str) -> str:
        (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        ((_, _, _, _, entries),) = described.resources
        return next(str(entry[1]) for entry in entries if entry[0] == "retention.ms")

    async def scenario() -> None:
        topic = await create(broker, name())
        async with admin_of(broker) as admin:
            changed = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "77000"})
            (altered,) = await admin.alter_configs([changed])
            assert [resource[0] for resource in altered.resources] == [0]
            async with asyncio.timeout(SECONDS):
                while await retention(admin, topic) != "77000":
                    pass

    asyncio.run(scenario())
