"""Brokers that reach each other, and their controller, by TLS with certificates on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker import KafkadProcess
from tests.certificates import Authority
from tests.oracle.kafka import free_port
from tests.security.test_tls_listeners import wait_for

pytestmark = pytest.mark.slow


def stores(authority: Authority, directory: Path, of: str = "") -> dict[str, str]:
    """Certificates of that authority in that directory, as settings of a listener."""
    directory.mkdir(exist_ok=True)
    return {
        f"{of}ssl.keystore.location": str(authority.issue().write(directory / "keys.pem")),
        f"{of}ssl.truststore.location": str(authority.write(directory / "ca.pem")),
    }


@contextmanager
def two_brokers(tmp_path: Path, settings: Mapping[str, str]) -> Iterator[KafkadProcess]:
    brokers = KafkadProcess(tmp_path)
    brokers.arguments = ["--brokers", "2"]
    brokers.settings |= settings
    del brokers.settings["broker.id"]
    try:
        brokers.start(wait=False)
        wait_for(lambda: "all brokers are ready" in brokers.log)
        yield brokers
    finally:
        if brokers.alive():
            brokers.stop()


def client(port: int, protocol: str, directory: Path) -> dict[str, str | int]:
    """The configuration of a client that shows the certificate in that directory."""
    return {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": protocol.lower(),
        "ssl.ca.location": str(directory / "ca.pem"),
        "ssl.certificate.location": str(directory / "keys.pem"),
        "ssl.key.location": str(directory / "keys.pem"),
        "log_level": 0,
    }


def with_topic(config: Mapping[str, str | int]) -> AdminClient:
    """Its topic `t` has 4 partitions of 2 replicas."""
    admin = AdminClient(dict(config))
    for future in admin.create_topics([NewTopic("t", 4, 2)]).values():
        future.result(20)
    return admin


def test_replicas_follow_over_tls(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "listeners": f"SSL://localhost:{port}",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
    }
    with two_brokers(tmp_path, settings | stores(Authority(), tmp_path)) as brokers:
        config = client(port, "SSL", tmp_path)
        admin = with_topic(config)
        producer = Producer({**config, "acks": "all", "partitioner": "random", "delivery.timeout.ms": 20_000})
        failures: list[object] = []
        for size in [100] * 1000 + [900_000] * 5:
            producer.produce("t", bytes(size), callback=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(30) == 0
        assert not failures
        found = admin.list_topics("t", timeout=20).topics["t"].partitions.values()
        assert {len(partition.isrs) for partition in found} == {2}
        assert "by User:CN=localhost from" in brokers.log


@pytest.mark.parametrize("between", ["PLAINTEXT", "SSL"])
def test_the_controller_s_listener_has_keys_of_its_own(tmp_path: Path, between: str) -> None:
    """Of another authority than the listener between brokers, or it alone is encrypted."""
    ports = free_port(), free_port()
    settings = {
        "listeners": f"{between}://localhost:{ports[0]},CONTROL://localhost:{ports[1]}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROL:SSL",
        "inter.broker.listener.name": between,
        "control.plane.listener.name": "CONTROL",
        "ssl.client.auth": "required",
    }
    settings |= stores(Authority("brokers"), tmp_path)
    settings |= stores(Authority("control"), tmp_path / "control", of="listener.name.control.")
    with two_brokers(tmp_path, settings) as brokers:
        config = client(ports[0], between, tmp_path)
        with_topic(config)
        producer = Producer({**config, "acks": "all", "delivery.timeout.ms": 20_000})
        producer.produce("t", b"for all")
        assert producer.flush(30) == 0
        assert "internal error" not in brokers.log
