"""The same transactions on real Kafka and on kafkad: Kafka's dump tool shows the same logs, but for ids and times.

Of the offsets that 4.3 has committed only the batches: their values are those of a release after 3.9.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker import KafkadProcess
from tests.oracle.kafka import Kafka, java, missing, tool
from tests.txn.story import (
    GROUP,
    LOGS,
    NAME,
    NUMBERS,
    OFFSETS,
    OUT,
    SETTINGS,
    SOURCE,
    STATES,
    prepare,
    settle,
    tell,
)

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(600)]

LEVELS = {"3.9": "0", "4.3": "2"}
"""What each release tells its clients; kafkad is told to tell the same."""
S = 60
JAVA_PROGRAM = Path(__file__).with_name("Transactions.java")

PRINTED = {STATES: "--transaction-log-decoder", OFFSETS: "--offsets-decoder"}
"""How the dump tool is to print records, if not as they are."""
TIMES = re.compile(r"(CreateTime|LastUpdateTimestampMs|StartTimestampMs|commitTimestamp|crc)(\"?[=:] ?)\d+")
PRODUCER_ID = re.compile(r"(producerId)(\"?[=:] ?)(\d+)", re.I)
SIZES = re.compile(r"(position|size): \d+")
SETS = re.compile(r'("transactionPartitions":)(\[.*?\](?=,"transaction))')


def by_librdkafka(port: int) -> None:
    """In transactions of version 0, whatever is offered."""
    bootstrap = f"127.0.0.1:{port}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": NAME, "linger.ms": 0})
    producer.init_transactions(S)
    for number in range(NUMBERS):
        producer.begin_transaction()
        for topic, partition in OUT:
            producer.produce(topic, b"v%d" % number, partition=partition)
            assert producer.flush(S) == 0
        position = [TopicPartition(*SOURCE, number + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), S)
        if number % 3 == 2:
            producer.abort_transaction(S)
        else:
            producer.commit_transaction(S)
    consumer.close()


def by_java(port: int) -> None:
    """In those of version 2 where that is offered."""
    command = java("4.3", str(JAVA_PROGRAM), f"127.0.0.1:{port}", str(NUMBERS), options=["-Xmx256m"])
    ran = subprocess.run(command, capture_output=True, text=True, timeout=2 * S, check=False)
    assert ran.returncode == 0, ran.stderr


class Run(NamedTuple):
    release: str
    client: Callable[[int], None]


RUNS = {
    "librdkafka as on Kafka 3.9": Run("3.9", by_librdkafka),
    "librdkafka as on Kafka 4.3": Run("4.3", by_librdkafka),
    "Java as on Kafka 3.9": Run("3.9", by_java),
    "Java as on Kafka 4.3": Run("4.3", by_java),
    "old raw requests as on Kafka 3.9": Run("3.9", lambda port: tell(port, new=False)),
    "old raw requests as on Kafka 4.3": Run("4.3", lambda port: tell(port, new=False)),
    "new raw requests as on Kafka 4.3": Run("4.3", lambda port: tell(port, new=True)),
}


@pytest.mark.parametrize("run", RUNS)
def test_the_logs_are_kafkas(run: str, tmp_path: Path) -> None:
    release, client = RUNS[run]
    for needed in {release, "4.3"}:
        if reason := missing(needed):
            pytest.skip(reason)
    with Kafka(release, data=tmp_path / "kafka", heap="512m", settings=SETTINGS) as kafka:
        act(kafka.ports[0], client)
    with KafkadProcess(tmp_path / "kafkad", SETTINGS | {"kafkad.transaction.version": LEVELS[release]}) as kafkad:
        act(kafkad.port, client)
    for partition in LOGS:
        of_kafka, ours = (dump(root / partition) for root in (tmp_path / "kafka", kafkad.log_directory()))
        if partition == OFFSETS and release == "4.3":
            of_kafka, ours = ([SIZES.sub("", line) for line in log if line[0] == "b"] for log in (of_kafka, ours))
        assert ours == of_kafka, partition


def act(port: int, client: Callable[[int], None]) -> None:
    prepare(port)
    client(port)
    settle(port)


def dump(partition: Path) -> list[str]:
    """The batches and records of a log, with ids in the order in which they come, and without times."""
    [log] = partition.glob("*.log")
    words = ["--deep-iteration", PRINTED.get(partition.name, "--print-data-log"), "--files", str(log)]
    done = subprocess.run(tool("4.3", "dump-log", *words), capture_output=True, text=True, timeout=S, check=False)
    assert done.returncode == 0, done.stderr
    ids: dict[str, int] = {}
    lines = [line for line in done.stdout.splitlines() if line.startswith(("baseOffset", "| offset"))]
    return [_without_ids_and_times(line, ids) for line in lines]


def _without_ids_and_times(line: str, ids: dict[str, int]) -> str:
    """Partitions are in the order of their names: in Kafka's records it is that of a hash set."""
    line = TIMES.sub(r"\1\2T", line)
    line = SETS.sub(lambda found: found[1] + json.dumps(sorted(json.loads(found[2]), key=str)), line)
    return PRODUCER_ID.sub(lambda found: f"{found[1]}{found[2]}{ids.setdefault(found[3], len(ids))}", line)
