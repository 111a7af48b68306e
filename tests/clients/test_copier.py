"""Kafka's TransactionalMessageCopier, the program of its own system tests, while the broker is killed: each record
once."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker import KafkadProcess
from tests.oracle.kafka import missing, tool

COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
RECORDS, KILLS, S = 6_000, 4, 60
INTERNAL = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(600)]


def copier(release: str, bootstrap: str, output: Path) -> subprocess.Popen[bytes]:
    words = (
        "--input-topic from --input-partition 0 --output-topic to --transactional-id copier --consumer-group copiers "
        f"--broker-list {bootstrap} --transaction-size 50 --transaction-timeout 30000 --enable-random-aborts"
    ).split()
    with output.open("ab") as out:
        return subprocess.Popen(tool(release, COPIER, *words), stdout=out, stderr=subprocess.STDOUT)


def left(output: Path) -> int:
    """So many records the copier says that it has still to copy."""
    said = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    return min((int(one["remaining"]) for one in said if "remaining" in one), default=RECORDS)


@pytest.mark.parametrize("release", ["3.9", "4.3"])
def test_each_record_is_copied_once(tmp_path: Path, release: str) -> None:
    if reason := missing(release):
        pytest.skip(reason)
    output = tmp_path / "copier.log"
    with KafkadProcess(tmp_path / "kafkad", INTERNAL) as kafkad:
        admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
        for made in admin.create_topics([NewTopic("from", 1, 1), NewTopic("to", 1, 1)]).values():
            made.result(S)
        producer = Producer({"bootstrap.servers": kafkad.bootstrap})
        for number in range(RECORDS):
            producer.produce("from", b"%d" % number, partition=0)
        assert producer.flush(S) == 0
        running = copier(release, kafkad.bootstrap, output)
        try:
            for number in range(1, KILLS + 1):
                running = until_left(RECORDS - number * RECORDS // (KILLS + 1), running, release, kafkad, output)
                kafkad.kill()
                kafkad.start()
            running = until_left(0, running, release, kafkad, output)
        except AssertionError:
            print(output.read_text()[-3000:])
            raise
        finally:
            running.kill()
            running.wait()
        assert committed(kafkad.bootstrap) == list(range(RECORDS))


def until_left(
    wanted: int, running: subprocess.Popen[bytes], release: str, kafkad: KafkadProcess, output: Path
) -> subprocess.Popen[bytes]:
    """As in Kafka's tests, a copier that an error has ended is started again."""
    end = time.monotonic() + 2 * S
    while left(output) > wanted:
        assert time.monotonic() < end, f"{left(output)} are still to be copied, {wanted} should be"
        if running.poll() is not None:
            running = copier(release, kafkad.bootstrap, output)
        time.sleep(0.02)
    return running


def committed(bootstrap: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("to", 0, 0)])
    found: list[int] = []
    while True:
        message = consumer.poll(S)
        assert message is not None
        if message.error() is None:
            found.append(int(message.value() or b""))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return found
