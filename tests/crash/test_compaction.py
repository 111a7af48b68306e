"""A compacted topic of a real broker: what stays, while it is written to and killed over and over."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkad.wire.records import Record, iter_batches, iter_records
from tests.broker import KafkadProcess
from tests.crash.writers import RawWriter
from tests.log.consistency import check

TOPIC = "compacted"
KILLS = [pytest.param(10, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.long)]
KEYS = 40
SECONDS = 60
SETTINGS = {"log.cleaner.backoff.ms": "20", "log.retention.check.interval.ms": "1000"}
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "60000",
    "index.interval.bytes": "1000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "500",
}


class KeyedWriter(RawWriter):
    """Few keys, every value new."""

    @staticmethod
    def key_of(value: bytes) -> bytes:
        return b"key %d" % (crc32(value) % KEYS)


def create_topic(kafkad: KafkadProcess, partitions: int, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=dict(config))])[TOPIC].result(30)


def stored(directory: Path) -> Iterator[Record]:
    """Every record of a partition at rest."""
    for path in sorted(directory.glob("*.log")):
        view = memoryview(path.read_bytes())
        for at, header in iter_batches(view):
            yield from iter_records(view, at, header)


def compare(directory: Path, partition: int, writer: KeyedWriter) -> int:
    """Checks a compacted partition against what was acknowledged; returns its number of records."""
    there = list(stored(directory))
    written = {offset: value for (number, offset), value in writer.acknowledged.items() if number == partition}
    offsets = [record.offset for record in there]
    assert offsets == sorted(set(offsets)), "in order, and none twice"
    changed = [r for r in there if written.get(r.offset, r.value) != r.value or r.key != writer.key_of(r.value or b"")]
    assert not changed, f"{len(changed)} records are not what was acknowledged, first {changed[0]}"
    newest = {record.key: record.offset for record in there}
    last_written = {writer.key_of(value): offset for offset, value in sorted(written.items())}
    lost = {key: offset for key, offset in last_written.items() if newest.get(key, -1) < offset}
    assert not lost, f"{directory} has no newest value of {len(lost)} keys: {lost}"
    assert check(str(directory)) == []
    return len(there)


def cleaned_until(kafkad: KafkadProcess) -> dict[int, int]:
    path = kafkad.log_directory() / "cleaner-offset-checkpoint"
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    return {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith(TOPIC)}


def await_pass(kafkad: KafkadProcess) -> None:
    before, end = cleaned_until(kafkad), time.monotonic() + SECONDS
    while cleaned_until(kafkad) == before:
        assert time.monotonic() < end, "nothing is compacted"
        time.sleep(0.02)


def test_a_topic_is_compacted_while_it_is_written(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path, SETTINGS) as kafkad:
        create_topic(kafkad, 1, CONFIG)
        with KeyedWriter(kafkad.port, TOPIC, 1, 1) as writer:
            end = time.monotonic() + SECONDS
            while cleaned_until(kafkad).get(0, 0) < 300:
                assert time.monotonic() < end, "nothing is compacted"
                time.sleep(0.02)
        active = max(int(path.stem) for path in (kafkad.log_directory() / f"{TOPIC}-0").glob("*.log"))
        while cleaned_until(kafkad).get(0, 0) < active:
            assert time.monotonic() < end, "compaction does not end"
            time.sleep(0.02)
    directory = kafkad.log_directory() / f"{TOPIC}-0"
    left = compare(directory, 0, writer)
    before_active = [record for record in stored(directory) if record.offset < active]
    assert len(before_active) <= KEYS < left + KEYS < len(writer.acknowledged)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", KILLS)
def test_kills_while_compaction_runs(tmp_path: Path, kills: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    partitions = 3
    with KafkadProcess(tmp_path, SETTINGS) as kafkad:
        create_topic(kafkad, partitions, CONFIG)
        with KeyedWriter(kafkad.port, TOPIC, partitions, seed) as writer:
            for number in range(kills):
                if not number % 3:
                    await_pass(kafkad)  # on a busy machine none might end between two kills
                time.sleep(chance.uniform(0.2, 1.2))
                kafkad.kill()
                kafkad.start()
        assert kafkad.stop() == 0
    total = sum(compare(kafkad.log_directory() / f"{TOPIC}-{n}", n, writer) for n in range(partitions))
    assert total < len(writer.acknowledged) // 3
