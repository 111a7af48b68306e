"""Topics and members by librdkafka, for real brokers."""

from __future__ import annotations

import json
import threading
import time

import confluent_kafka

from kctl.errors import Exit
from tests.kctl.conftest import Kctl, until

SECONDS = 90


def fill(bootstrap: str, kctl: Kctl, topic: str, partitions: int, records: int, replication: int = 3) -> None:
    new = {"name": topic, "num_partitions": partitions, "replication_factor": replication}
    assert kctl("-y", "raw", "CreateTopics", json.dumps({"topics": [new]})).code == Exit.DONE
    until(lambda: kctl("topics", "list", topic).code == Exit.DONE, "the topic is known to all brokers")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(SECONDS) == 0


class Reader:
    """A member of librdkafka that commits nothing. A stuck one goes on sending heartbeats, and does not poll."""

    def __init__(self, bootstrap: str, group: str, name: str, topic: str, **settings: object) -> None:
        self.stuck = self.assigned = False
        self._stop = False
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=lambda *_: None)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _on_assign(self, *_: object) -> None:
        self.assigned = True

    def _read(self) -> None:
        while not self._stop:
            if self.stuck:
                time.sleep(0.05)
                continue
            self._consumer.poll(0.1)

    def close(self) -> None:
        self._stop = True
        self._thread.join()
        self._consumer.close()
