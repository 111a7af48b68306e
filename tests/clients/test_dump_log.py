"""Kafka's own dump tool reads every file that kafkad wrote, and has nothing to complain about."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker import KafkadProcess
from tests.clients.sample import CODECS, sample
from tests.oracle.kafka import VERSIONS, missing, tool

SETTINGS = {"log.segment.bytes": "10000", "log.index.interval.bytes": "500"}
COMPLAINTS = re.compile(
    r"Mismatch|Non-consecutive|Found timestamp|not valid|corrupt|invalid|larger than|Exception", re.I
)
FALSE_ALARM = re.compile(r"Non-consecutive offsets in .*\n  -1 is followed by \d+\n")
"""Said by 4.3's tool of every segment that does not begin at 0, real Kafka's included."""

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


def write(bootstrap: str) -> None:
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "batch.num.messages": 20,
             "enable.idempotence": codec != "none"}
        )  # fmt: skip
        for m in sample() * 4:
            producer.produce(codec, m.value, m.key, 0, timestamp=m.timestamp, headers=list(m.headers))
        assert producer.flush(30) == 0


def dump(version: str, files: list[Path]) -> str:
    words = ["--deep-iteration", "--print-data-log", "--files", ",".join(map(str, files))]
    done = subprocess.run(tool(version, "dump-log", *words), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return FALSE_ALARM.sub("", done.stdout + done.stderr)


@pytest.mark.client("Kafka's dump tool", "{version}, after a {ending}")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ending", ["clean stop", "crash and recovery"])
def test_dump(tmp_path: Path, version: str, ending: str) -> None:
    if reason := missing(version):
        pytest.skip(reason)
    with KafkadProcess(tmp_path, SETTINGS) as kafkad:
        write(kafkad.bootstrap)
        if ending == "crash and recovery":
            kafkad.kill()
            kafkad.start()
    segments = [path for codec in CODECS for path in sorted((kafkad.log_directory() / f"{codec}-0").glob("*.log"))]
    assert len(segments) > len(CODECS)
    said = dump(version, segments)
    assert not COMPLAINTS.search(said), said[-2000:]
    assert said.count("| offset: ") == len(CODECS) * len(sample()) * 4
    for kind in ("index", "timeindex", "snapshot"):
        files = sorted(kafkad.log_directory().glob(f"*/*.{kind}"))
        assert files
        said = dump(version, files)
        assert not COMPLAINTS.search(said), said[-2000:]
