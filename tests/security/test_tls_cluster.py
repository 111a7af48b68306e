"""Brokers that reach each other, and their controller, by TLS with certificates on both sides."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker import KafkadProcess
from tests.certificates import Authority
from tests.oracle.kafka import free_port
from tests.security.test_tls_listeners import wait_for

pytestmark = pytest.mark.slow


def test_replicas_follow_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    trusted, keys = authority.write(tmp_path / "ca.pem"), authority.issue().write(tmp_path / "keys.pem")
    port = free_port()
    brokers = KafkadProcess(tmp_path)
    brokers.arguments = ["--brokers", "2"]
    brokers.settings |= {
        "listeners": f"SSL://localhost:{port}",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.location": str(trusted),
    }
    del brokers.settings["broker.id"]
    client = {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(trusted),
        "ssl.certificate.location": str(keys),
        "ssl.key.location": str(keys),
        "log_level": 0,
    }
    try:
        brokers.start(wait=False)
        wait_for(lambda: "all brokers are ready" in brokers.log)
        admin = AdminClient(client)
        for future in admin.create_topics([NewTopic("t", 4, 2)]).values():
            future.result(20)
        producer = Producer({**client, "acks": "all", "partitioner": "random", "delivery.timeout.ms": 20_000})
        failures: list[object] = []
        for size in [100] * 1000 + [900_000] * 5:
            producer.produce("t", bytes(size), callback=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(30) == 0
        assert not failures
        found = admin.list_topics("t", timeout=20).topics["t"].partitions.values()
        assert {len(partition.isrs) for partition in found} == {2}
        assert "by User:CN=localhost from" in brokers.log
    finally:
        if brokers.alive():
            brokers.stop()


@pytest.mark.parametrize("between", ["PLAINTEXT", "SSL"])
def test_the_controller_s_listener_has_keys_of_its_own(tmp_path: Path, between: str) -> None:
    """Of another authority than the listener between brokers, or it alone is encrypted."""
    theirs, control = Authority("brokers"), Authority("control")
    (tmp_path / "control").mkdir()
    ports = free_port(), free_port()
    brokers = KafkadProcess(tmp_path)
    brokers.arguments = ["--brokers", "2"]
    brokers.settings |= {
        "listeners": f"{between}://localhost:{ports[0]},CONTROL://localhost:{ports[1]}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROL:SSL",
        "inter.broker.listener.name": between,
        "control.plane.listener.name": "CONTROL",
        "ssl.client.auth": "required",
        "ssl.keystore.location": str(theirs.issue().write(tmp_path / "keys.pem")),
        "ssl.truststore.location": str(theirs.write(tmp_path / "ca.pem")),
        "listener.name.control.ssl.keystore.location": str(control.issue().write(tmp_path / "control" / "keys.pem")),
        "listener.name.control.ssl.truststore.location": str(control.write(tmp_path / "control" / "ca.pem")),
    }
    del brokers.settings["broker.id"]
    client = {
        "bootstrap.servers": f"localhost:{ports[0]}",
        "security.protocol": between.lower(),
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "keys.pem"),
        "ssl.key.location": str(tmp_path / "keys.pem"),
        "log_level": 0,
    }
    try:
        brokers.start(wait=False)
        wait_for(lambda: "all brokers are ready" in brokers.log)
        admin = AdminClient(client)
        for future in admin.create_topics([NewTopic("t", 4, 2)]).values():
            future.result(20)
        producer = Producer({**client, "acks": "all", "delivery.timeout.ms": 20_000})
        producer.produce("t", b"for all")
        assert producer.flush(30) == 0
        assert "internal error" not in brokers.log
    finally:
        if brokers.alive():
            brokers.stop()
