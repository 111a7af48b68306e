"""A real Kafka starts on a log directory that we opened and closed, and finds nothing to complain of."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.clock import SystemClock
from kafkad.log import clean_stop
from kafkad.log.files import Files
from kafkad.log.manager import LogManager
from kafkad.names import TopicPartition
from tests.log.conftest import append, batch
from tests.log.managers import config_for
from tests.oracle.kafka import Kafka, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.9") is not None, reason=str(missing("3.9"))),
]


def test_kafka_starts_on_what_we_closed(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dorg.slf4j.simpleLogger.log.kafka.log=warn")
    manager = LogManager([str(golden)], Files(), SystemClock())
    manager.lock()
    manager.claim("rqJN_tDlTSWz79bt_P852g", 1)
    manager.load(config_for)
    new = manager.create(TopicPartition("new", 0), bytes(range(16)), config_for("new"))
    for log in (new, manager.logs[TopicPartition("codec-none", 0)]):
        for sequence in range(50):
            data = batch(bytes(200), producer_id=9000, producer_epoch=0, base_sequence=sequence)
            append(log, data, epoch=3)
    ends = {topic_partition: log.end_offset for topic_partition, log in manager.logs.items()}
    manager.close(ends)
    told = (golden / clean_stop.FILE_NAME).read_bytes()
    assert clean_stop.read(str(golden), Files()).keys() == ends.keys()
    (golden / "meta.properties").unlink()  # this Kafka has a ZooKeeper, and so a cluster id, of its own
    with Kafka("3.9", heap="512m", data=golden) as kafka:
        broker = kafka.brokers[0]
        broker.process.terminate()
        broker.process.wait()
        complaints = [line for line in broker.output().splitlines() if "JAVA_TOOL_OPTIONS" not in line]
    assert complaints == []
    assert (golden / clean_stop.FILE_NAME).read_bytes() == told
    assert clean_stop.read(str(golden), Files()) == {}  # another broker has stopped here since
    again = LogManager([str(golden)], Files(), SystemClock())
    again.lock()
    again.load(config_for)
    assert again.directories[0].was_clean
    assert {topic_partition: log.end_offset for topic_partition, log in again.logs.items()} == ends
    again.close()
