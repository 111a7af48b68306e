"""Compaction across brokers: what one compacted the other serves and compacts on; Kafka's own tester finds nothing."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from random import randbytes

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker import KafkadProcess
from tests.clients.conftest import Broker
from tests.clients.test_data_directories import read
from tests.clients.test_dump_log import COMPLAINTS, dump
from tests.log.consistency import check
from tests.oracle.adoption import AdoptingKafka
from tests.oracle.kafka import VERSIONS, Kafka, missing, tool

SECONDS = 60
CODECS = ("none", "lz4")
"""Each of a topic of that name."""
KEYS = 50
SETTINGS = {
    "log.cleanup.policy": "compact",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.bytes": "20000",
}
GAPS = re.compile(r"Non-consecutive offsets in .*\n(  -?\d+ is followed by \d+\n)*")
"""The gaps that compaction leaves, as Kafka's tool names them."""

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


def broker(kind: str, scratch: Path, *, adopts: bool) -> AbstractContextManager[Broker]:
    if kind == "kafkad":
        return KafkadProcess(scratch / "kafkad", SETTINGS, log_dirs=[scratch / "data"])
    if not adopts:
        return Kafka("3.9", data=scratch / "data", heap="512m", settings=SETTINGS)
    kafka = AdoptingKafka(scratch / "data")
    kafka.settings.update(SETTINGS)
    return kafka


Model = dict[bytes, bytes | None]


def write(bootstrap: str, codec: str, turn: int, model: Model) -> None:
    """Updates of all keys over several segments, tombstones among them."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "batch.num.messages": 20})
    for n in range(1500):
        key, value = b"key %d" % (n * 7 % KEYS), None if n % 31 == 0 else b"%d of turn %d " % (n, turn) + randbytes(100)
        producer.produce(codec, value, key, 0, timestamp=int(time.time() * 1000))
        model.pop(key, None)
        model[key] = value
    assert producer.flush(SECONDS) == 0


def compacted(data: Path) -> dict[str, int]:
    """By codec, up to which offset."""
    path = data / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return {line.split()[0]: int(line.split()[2]) for line in lines if line.startswith(CODECS)}


def wait_until_compacted(data: Path) -> None:
    """All of it, but for the active segments."""
    end = time.monotonic() + SECONDS
    while True:
        active = {codec: max(int(path.stem) for path in (data / f"{codec}-0").glob("*.log")) for codec in CODECS}
        if (until := compacted(data)) == active:
            return
        assert time.monotonic() < end, (active, until)
        time.sleep(0.1)


@pytest.mark.client("compacted directories", "of {first}, then of {second}")
@pytest.mark.parametrize(("first", "second"), [("kafka", "kafkad"), ("kafkad", "kafka"), ("kafkad", "kafkad")])
def test_what_one_compacted_the_other_compacts_on(first: str, second: str, tmp_path: Path) -> None:
    if reason := missing("3.9"):
        pytest.skip(reason)
    models: dict[str, Model] = {codec: {} for codec in CODECS}
    data = tmp_path / "data"
    with broker(first, tmp_path, adopts=False) as one:
        admin = AdminClient({"bootstrap.servers": one.bootstrap})
        for created in admin.create_topics([NewTopic(codec, 1, 1) for codec in CODECS]).values():
            created.result(SECONDS)
        for codec, model in models.items():
            write(one.bootstrap, codec, 1, model)
        wait_until_compacted(data)
    before = compacted(data)
    with broker(second, tmp_path, adopts=True) as other:
        for codec, model in models.items():
            assert {m.key: m.value for m in read(other.bootstrap, codec, 0)} == model
            write(other.bootstrap, codec, 2, model)
        wait_until_compacted(data)
        messages = {codec: read(other.bootstrap, codec, 0) for codec in CODECS}
    for codec, model in models.items():
        assert compacted(data)[codec] > before[codec]
        assert {m.key: m.value for m in messages[codec]} == model
        assert len(messages[codec]) < 600, "of three thousand"
        assert check(str(data / f"{codec}-0")) == []
    files = [path for codec in CODECS for path in sorted((data / f"{codec}-0").glob("*.log"))]
    for version in VERSIONS:
        said = GAPS.sub("", dump(version, files))
        assert not COMPLAINTS.search(said), said[-2000:]


@pytest.mark.client("Kafka's LogCompactionTester", "{codec}, {deletes} % deletes")
@pytest.mark.parametrize(("codec", "deletes"), [("none", 0), ("none", 30), ("zstd", 20)])
def test_kafkas_compaction_tester(codec: str, deletes: int, tmp_path: Path) -> None:
    if reason := missing("4.3"):
        pytest.skip(reason)
    settings = {**SETTINGS, "log.cleanup.policy": "delete", "log.segment.bytes": "100000"}
    with KafkadProcess(tmp_path, settings) as kafkad:
        words = ["--bootstrap-server", kafkad.bootstrap, "--messages", "40000", "--topics", "2", "--sleep", "15"]
        words += ["--percent-deletes", str(deletes), "--compression-type", codec]
        java, *tester = tool("4.3", "org.apache.kafka.tools.LogCompactionTester", *words)
        leaving = f"-Djava.io.tmpdir={tmp_path}"  # it leaves its data behind
        done = subprocess.run([java, leaving, *tester], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Validated \d+ values, 0 mismatches", done.stdout), done.stdout
    reduction = re.search(r"(\d+) rows of data produced, (\d+) rows of data consumed", done.stdout)
    assert reduction and int(reduction[2]) < int(reduction[1]) / 2, "it was compacted"
