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
