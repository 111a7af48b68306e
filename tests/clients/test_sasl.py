"""Clients that log in: each with every mechanism it has, and with a wrong password.

Few wrong ones: from the tenth within a minute on they wait.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import kafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from kctl.cli import run
from tests.broker import KafkadProcess
from tests.certificates import Authority
from tests.oracle.kafka import free_port

pytestmark = pytest.mark.slow

PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SECONDS = 20
USER, PASSWORD = "müller", "pä ss,=word"


class SaslBroker(KafkadProcess):
    """Clients log in at the listeners of these protocols; the other one is open."""

    def __init__(self, directory: Path) -> None:
        self.login = {protocol: f"127.0.0.1:{free_port()}" for protocol in PROTOCOLS}
        authority = Authority()
        self.trusted = authority.write(directory / "ca.pem")
        jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required "user_{USER}"="{PASSWORD}";'
        super().__init__(
            directory, {f"listener.name.{each.lower()}.plain.sasl.jaas.config": jaas for each in PROTOCOLS}
        )
        listeners = [f"PLAINTEXT://127.0.0.1:{self.port}", *(f"{name}://{at}" for name, at in self.login.items())]
        self.settings |= {
            "listeners": ",".join(listeners),
            "ssl.keystore.location": str(authority.issue().write(directory / "broker.pem")),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        upsertions = [
            UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        ]
        for done in admin.alter_user_scram_credentials(upsertions).values():
            done.result(SECONDS)
        described = admin.describe_user_scram_credentials([USER])[USER].result(SECONDS)
        assert [info.iterations for info in described.scram_credential_infos] == [4096, 4096]
        yield broker


def confluent(broker: SaslBroker, mechanism: str, password: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {
        "bootstrap.servers": broker.login[protocol],
        "security.protocol": protocol,
        "ssl.ca.location": str(broker.trusted),
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


def others(broker: SaslBroker, mechanism: str, password: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.login[protocol],
        "security_protocol": protocol,
        "ssl_context": ssl.create_default_context(cafile=str(broker.trusted)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


@pytest.mark.client("confluent-kafka")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent(broker: SaslBroker, mechanism: str, protocol: str) -> None:
    topic = f"confluent-{mechanism}-{protocol}"
    settings = confluent(broker, mechanism, PASSWORD, protocol)
    producer = Producer(settings)
    producer.produce(topic, b"x" * 100_000)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(SECONDS)
    assert message is not None
    assert message.value() == b"x" * 100_000
    consumer.close()


@pytest.mark.client("confluent-kafka")
def test_confluent_with_a_wrong_password(broker: SaslBroker) -> None:
    told: list[str] = []
    settings = {**confluent(broker, "SCRAM-SHA-256", "wrong"), "error_cb": lambda error: told.append(str(error))}
    admin = AdminClient(settings)
    end = time.monotonic() + SECONDS
    while not any("uthentication failed" in each for each in told) and time.monotonic() < end:
        admin.poll(0.1)
    assert any("uthentication failed" in each for each in told)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)


@pytest.mark.client("kafka-python")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: SaslBroker, mechanism: str, protocol: str) -> None:
    settings = others(broker, mechanism, PASSWORD, protocol)
    topic = f"python-{mechanism}-{protocol}"
    producer = kafka.KafkaProducer(**settings)
    producer.send(topic, b"x" * 100_000).get(SECONDS)
    producer.close()
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(**settings, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([partition])
    [record] = consumer.poll(SECONDS * 1000)[partition]
    assert record.value == b"x" * 100_000
    consumer.close()


@pytest.mark.client("kafka-python")
def test_kafka_python_with_a_wrong_password(broker: SaslBroker) -> None:
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**others(broker, "PLAIN", "wrong"), bootstrap_timeout_ms=500).list_topics()


@pytest.mark.client("aiokafka")
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: SaslBroker, mechanism: str, protocol: str) -> None:
    topic = f"aio-{mechanism}-{protocol}"

    async def main() -> None:
        settings = others(broker, mechanism, PASSWORD, protocol)
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"x" * 100_000, partition=0)
        async with AIOKafkaConsumer(**settings, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            record = await asyncio.wait_for(consumer.getone(), SECONDS)
            assert record.value == b"x" * 100_000

    asyncio.run(main())


@pytest.mark.client("aiokafka")
def test_aiokafka_with_a_wrong_password(broker: SaslBroker) -> None:
    async def main() -> None:
        producer = AIOKafkaProducer(**others(broker, "SCRAM-SHA-512", "wrong"))
        try:
            with pytest.raises(AioKafkaError):
                await producer.start()
        finally:
            await producer.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("mechanism", "password"), [*((mechanism, PASSWORD) for mechanism in MECHANISMS), ("SCRAM-SHA-256", "wrong")]
)
def test_kctl_with_a_context(
    broker: SaslBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    mechanism: str,
    password: str,
) -> None:
    """It says at which step a login fails."""
    monkeypatch.setenv("KCTL_CONFIG", str(tmp_path / "contexts.yaml"))
    properties = tmp_path / "client.properties"
    lines = [
        f"bootstrap.servers={broker.login['SASL_PLAINTEXT']}",
        "security.protocol=SASL_PLAINTEXT",
        f"sasl.mechanism={mechanism}",
        f"sasl.username={USER}",
        f"sasl.password={password}",
    ]
    properties.write_text("\n".join(lines), encoding="utf-8")
    properties.chmod(0o600)
    assert run(["contexts", "import", "--name", "here", str(properties)]) == 0
    capfd.readouterr()
    code = run(["-c", "here", "contexts", "test"])
    said = capfd.readouterr()
    assert (code == 0) == (password == PASSWORD), said
    if password != PASSWORD:
        assert f"could not log in with {mechanism}" in said.out + said.err
