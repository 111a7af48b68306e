"""SIGKILL at any moment: nothing acknowledged is lost, nothing half-written is served."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker import KafkadProcess
from tests.crash.writers import IdempotentWriter, RawWriter, Reader
from tests.log.consistency import check

KILLS = [pytest.param(20, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.long)]
CHECK_EVERY = 10
TOPIC = "crash"
PARTITIONS = 4

pytestmark = pytest.mark.timeout(1800)


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    small = {"segment.bytes": "200000", "index.interval.bytes": "1000"}
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config=small)])[TOPIC].result(30)


@pytest.mark.parametrize("kills", KILLS)
def test_kills_in_a_row(tmp_path: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    kafkad = KafkadProcess(tmp_path).start()
    create_topic(kafkad.bootstrap)
    reader = Reader(kafkad.bootstrap, TOPIC, PARTITIONS)
    writers = [RawWriter(kafkad.port, TOPIC, PARTITIONS, seed + i) for i in range(2)]
    idempotent = IdempotentWriter(kafkad.port, TOPIC, 0)
    with writers[0], writers[1], idempotent:
        for kill in range(1, kills + 1):
            time.sleep(chance.uniform(0, 0.4))
            kafkad.kill()
            kafkad.start()
            if kill % CHECK_EVERY == 0:
                reader.catch_up()
                idempotent.await_answer()  # on a busy machine it has none between two kills
    reader.catch_up()
    reader.close()
    assert kafkad.stop() == 0
    for writer in (*writers, idempotent):
        assert len(writer.acknowledged) > kills
        lost = {at: value for at, value in writer.acknowledged.items() if reader.seen.get(at) != value}
        assert not lost, f"{len(lost)} acknowledged records lost or changed, first {next(iter(lost.items()))}"
    once = [value for at, value in sorted(reader.seen.items()) if value.startswith(b"idempotent")]
    assert once == [b"idempotent %d" % i for i in range(idempotent.sent)]
    for partition in range(PARTITIONS):
        assert check(str(kafkad.log_directory() / f"{TOPIC}-{partition}")) == []
