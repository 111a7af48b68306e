"""10,000 written partitions, and fewer open files than that: no request is lost, connections included."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.broker import API_VERSIONS_V0, KafkadProcess, RawClient
from tests.clients.asker import Asker, batch

LIMIT = 1024
TOPICS, PARTITIONS = 10, 1000
CONNECTIONS = 400

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


class LimitedKafkad(KafkadProcess):
    def command(self) -> list[str]:
        return ["prlimit", f"--nofile={LIMIT}:{LIMIT}", *super().command()]


def new_topic(number: int) -> dict[str, object]:
    return {
        "name": f"t{number}",
        "num_partitions": PARTITIONS,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }


def write(asker: Asker, topic: str, partitions: list[int], records: bytes) -> None:
    data = [{"index": partition, "records": records} for partition in partitions]
    question = {"acks": -1, "timeout_ms": 30000, "topic_data": [{"name": topic, "partition_data": data}]}
    answer = asker.ask("Produce", 7, question)
    refused = [part for part in answer.responses[0].partition_responses if part.error_code]
    assert not refused, refused[0]


def read(asker: Asker, topic: str, partitions: list[int]) -> None:
    wanted = [{"partition": p, "fetch_offset": 0, "partition_max_bytes": 1 << 16} for p in partitions]
    question = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26}
    answer = asker.ask("Fetch", 4, question | {"topics": [{"topic": topic, "partitions": wanted}]})
    parts = answer.responses[0].partitions
    assert [part.error_code for part in parts] == [0] * len(partitions)
    assert all(part.records for part in parts)


def test_more_partitions_than_files_may_be_open(tmp_path: Path) -> None:
    chance = random.Random(7)
    records = batch(2)
    with LimitedKafkad(tmp_path, {"log.flush.scheduler.interval.ms": "500"}) as kafkad:
        asker = Asker(kafkad.port)
        for number in range(TOPICS):
            answer = asker.ask("CreateTopics", 4, {"topics": [new_topic(number)], "timeout_ms": 60000})
            assert answer.topics[0].error_code == 0, answer
        clients = []
        for number in range(TOPICS):
            for begin in range(0, PARTITIONS, 100):
                write(asker, f"t{number}", list(range(begin, begin + 100)), records)
            clients += [RawClient(kafkad.port) for _ in range(CONNECTIONS // TOPICS)]
        for _ in range(50):
            topic, some = f"t{chance.randrange(TOPICS)}", chance.sample(range(PARTITIONS), 100)
            write(asker, topic, some, records)
            read(asker, topic, some)
        for client in clients:
            assert client.exchange(API_VERSIONS_V0)
        assert len(os.listdir(f"/proc/{kafkad.pid}/fd")) <= LIMIT
        for client in clients:
            client.close()
        asker.client.close()
        assert "Too many open files" not in kafkad.log
        assert "ERROR" not in kafkad.log
