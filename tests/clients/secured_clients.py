"""What each client needs to come in at a listener: it writes records and reads them back, or says why it cannot."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import ssl
import subprocess
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import kafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.clients.one_jvm import Tools
from tests.clients.secured import LONGEST, SECONDS, USER, Access, in_properties
from tests.clients.tools import Outcome, Step


class Client(Protocol):
    def back(self, access: Access, topic: str, values: Sequence[bytes]) -> list[bytes]:
        """What is read of partition 0 after `values` were written to it."""
        ...

    def refusal(self, access: Access) -> str:
        """What it says of why it is not let in, or does not go in."""
        ...


class Confluent:
    def back(self, access: Access, topic: str, values: Sequence[bytes]) -> list[bytes]:
        settings = self._settings(access)
        producer = Producer(settings)
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(SECONDS) == 0
        consumer = Consumer({**settings, "group.id": topic, "enable.auto.commit": False})
        consumer.assign([ConfluentPartition(topic, 0, 0)])
        messages = consumer.consume(len(values), SECONDS)
        consumer.close()
        return [message.value() or b"" for message in messages]

    def refusal(self, access: Access) -> str:
        told: list[str] = []

        def note(error: KafkaError) -> None:
            told.append(error.str())

        admin = AdminClient({**self._settings(access), "error_cb": note})
        end = time.monotonic() + SECONDS
        while not told and time.monotonic() < end:
            admin.poll(0.05)
        return told[0]

    def _settings(self, access: Access) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": access.bootstrap,
            "security.protocol": access.protocol,
            "message.max.bytes": LONGEST,
            "log_level": 0,
        }
        if access.encrypted:
            settings["ssl.ca.location"] = str(access.trusted)
        if access.identity:
            settings |= {f"ssl.{what}.location": str(access.identity) for what in ("certificate", "key")}
        if access.mechanism:
            settings["sasl.mechanism"] = access.mechanism
        if access.mechanism == "OAUTHBEARER":
            settings["oauth_cb"] = lambda _: (access.token.read_text(), time.time() + SECONDS)
        elif access.mechanism:
            settings |= {"sasl.username": USER, "sasl.password": access.password}
        return settings


def _python_settings(access: Access) -> dict[str, Any]:
    """Of kafka-python and aiokafka."""
    settings: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.encrypted:
        settings["ssl_context"] = context = ssl.create_default_context(cafile=str(access.trusted))
        if access.identity:
            context.load_cert_chain(access.identity)
    if access.mechanism:
        settings["sasl_mechanism"] = access.mechanism
    if access.mechanism not in ("", "OAUTHBEARER"):
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": access.password}
    return settings


@contextmanager
def _logged(name: str) -> Iterator[list[str]]:
    """Lines of this logger. The errors of kafka-python and aiokafka only say that there is no broker; and they leave
    sockets open then."""
    lines: list[str] = []

    class Note(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger(name), Note(logging.WARNING)
    logger.addHandler(handler)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield lines
        gc.collect()
    logger.removeHandler(handler)


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, file: Path) -> None:
        self.file = file

    def token(self) -> str:
        return self.file.read_text()


class KafkaPython:
    def back(self, access: Access, topic: str, values: Sequence[bytes]) -> list[bytes]:
        settings = self._settings(access)
        producer = kafka.KafkaProducer(**settings, max_request_size=LONGEST)
        for value in values:
            producer.send(topic, value, partition=0).get(SECONDS)
        producer.close()
        consumer = kafka.KafkaConsumer(
            **settings,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=LONGEST,
            consumer_timeout_ms=1000 * SECONDS,
        )
        consumer.assign([kafka.TopicPartition(topic, 0)])
        found = [next(consumer).value for _ in values]
        consumer.close()
        return found

    def refusal(self, access: Access) -> str:
        with _logged("kafka") as lines, suppress(PythonKafkaError):
            once = {"bootstrap_timeout_ms": 3000, "reconnect_backoff_ms": 9000, "reconnect_backoff_max_ms": 9000}
            kafka.KafkaAdminClient(**self._settings(access), **once)
        return "\n".join(lines)

    def _settings(self, access: Access) -> dict[str, Any]:
        settings = _python_settings(access)
        if access.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _Token(access.token)
        return settings


class _AioToken(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, file: Path) -> None:
        self.file = file

    async def token(self) -> str:
        return self.file.read_text()


class AioKafka:
    def back(self, access: Access, topic: str, values: Sequence[bytes]) -> list[bytes]:
        async def main() -> list[bytes]:
            settings = self._settings(access)
            async with AIOKafkaProducer(**settings, max_request_size=LONGEST) as producer:
                for value in values:
                    await producer.send_and_wait(topic, value, partition=0)
            reading = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
            async with AIOKafkaConsumer(**settings, **reading, max_partition_fetch_bytes=LONGEST) as consumer:
                consumer.assign([TopicPartition(topic, 0)])
                return [(await asyncio.wait_for(consumer.getone(), SECONDS)).value for _ in values]

        return asyncio.run(main())

    def refusal(self, access: Access) -> str:
        async def main() -> None:
            producer = AIOKafkaProducer(**self._settings(access))
            with suppress(AioKafkaError):
                await producer.start()
            await producer.stop()

        with _logged("aiokafka") as lines:
            asyncio.run(main())
        return "\n".join(lines)

    def _settings(self, access: Access) -> dict[str, Any]:
        settings = _python_settings(access)
        if access.mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = _AioToken(access.token)
        return settings


class Java:
    """Kafka's own client of one release, as its tools use it."""

    def __init__(self, release: str, tools: Tools, directory: Path) -> None:
        self._tools = tools
        self._directory = directory
        new = release != "3.9"
        """They have other names for the same flags."""
        self._producer, self._property, self._consumer = (
            "--command-config" if new else "--producer.config",
            "--command-property" if new else "--producer-property",
            "--command-config" if new else "--consumer.config",
        )

    def back(self, access: Access, topic: str, values: Sequence[bytes]) -> list[bytes]:
        config = self._config(access)
        words = f"--topic {topic} {self._producer} {config} {self._property} max.request.size={LONGEST}"
        written = self._run(
            Step("write", "console-producer", f"{words} --sync --request-timeout-ms {1000 * SECONDS}", _lines(values)),
            access,
        )
        assert written.status == 0, written
        assert not written.stdout + written.stderr, written
        words = (
            f"--topic {topic} --partition 0 --offset earliest --max-messages {len(values)} {self._consumer} {config}"
        )
        read = self._run(Step("read", "console-consumer", f"{words} --timeout-ms {1000 * SECONDS}"), access)
        return [line.encode() for line in read.stdout.splitlines()]

    def refusal(self, access: Access) -> str:
        ran = self._run(Step("list", "topics", f"--list --command-config {self._config(access)}"), access)
        assert ran.status != 0, ran
        return ran.stdout + ran.stderr

    def _run(self, step: Step, access: Access) -> Outcome:
        return self._tools.run(step, access.bootstrap, self._directory)

    def _config(self, access: Access) -> Path:
        module = "org.apache.kafka.common.security"
        settings = {"security.protocol": access.protocol}
        if access.encrypted:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(access.trusted)}
        if access.identity:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(access.identity)}
        if access.mechanism:
            settings["sasl.mechanism"] = access.mechanism
        if access.mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.jaas.config": f"{module}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{module}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": f"file://{access.token}",
            }
        elif access.mechanism:
            name = "plain.PlainLoginModule" if access.mechanism == "PLAIN" else "scram.ScramLoginModule"
            line = f'{module}.{name} required username="{USER}" password="{access.password}";'
            settings["sasl.jaas.config"] = line
        config = self._directory / "client.properties"
        config.write_text("".join(f"{name}={in_properties(value)}\n" for name, value in settings.items()))
        return config


class FranzGo:
    def __init__(self, program: Path) -> None:
        self._program = program

    def back(self, access: Access, topic: str, values: Sequence[bytes]) -> list[bytes]:
        ran = self._run(access, "back", topic, lines=_lines(values))
        assert ran.returncode == 0, ran.stderr
        return [line.encode() for line in ran.stdout.splitlines()]

    def refusal(self, access: Access) -> str:
        ran = self._run(access, "ping")
        assert ran.returncode == 1, ran.stderr
        return ran.stderr

    def _run(self, access: Access, *words: str, lines: str = "") -> subprocess.CompletedProcess[str]:
        told = {
            "Bootstrap": access.bootstrap,
            "Trusted": str(access.trusted) if access.encrypted else "",
            "Identity": str(access.identity or ""),
            "Mechanism": access.mechanism,
            "User": USER,
            "Password": access.password,
            "Token": access.token.read_text(),
        }
        command = [self._program, "secured", json.dumps(told), *words]
        return subprocess.run(command, input=lines, capture_output=True, text=True, timeout=SECONDS)


def _lines(values: Sequence[bytes]) -> str:
    return "".join(f"{value.decode()}\n" for value in values)
