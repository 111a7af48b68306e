"""Random logs compacted by us and by real Kafka: the same batches stay, and its dump tool reads ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from kafkad.wire.records import BatchHeader
from tests.cleaner.compacting import Partition
from tests.cleaner.test_compact_model import Work
from tests.oracle.kafka import Kafka, missing, tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.9") is not None, reason=str(missing("3.9"))),
]

SEEDS = range(6)
SEGMENT_BYTES = 1 << 20
WAIT_SECONDS = 60
COMPLAINTS = ("ismatch", "isvalid: false", "Exception", "corrupt", "out of order", "Invalid")


def write(directory: Path, seed: int) -> Work:
    """With the present time, or Kafka would have forgotten the producers; the last segment is the active one."""
    work = Work(directory, seed)
    work.now_ms = time.time_ns() // 1_000_000
    actions = [work.batch] * 12 + [work.marker] * 3 + [work.roll] * 2
    for _ in range(150):
        work.random.choice(actions)()
    write_more(work)
    return work


def write_more(work: Work) -> None:
    """The active segment ends, in some logs with records of which none stays, and another one becomes it."""
    for _ in range(40):
        work.random.choice([work.batch] * 5 + [work.marker])()
    work.batch([None])
    while work.open:
        work.marker()
    work.roll()
    work.batch()
    while work.open:
        work.marker()
    work.store()


def dump(paths: list[Path]) -> str:
    files = ",".join(map(str, paths))
    command = tool("3.9", "dump-log", "--deep-iteration", "--print-data-log", "--files", files)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout + done.stderr


def test_kafkas_tools_accept_the_files(tmp_path: Path) -> None:
    work = write(tmp_path / "t-0", 1)
    work.last_of_producer.clear()  # the tool complains about the timestamps of batches that were emptied, Kafka's too
    work.compact()
    cleaned = [base for base in work.partition.bases if base < work.dirty]
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        text = dump(
            [work.partition.path(base, suffix) for base in cleaned if work.partition.path(base, suffix).exists()]
        )
        for complaint in COMPLAINTS:
            assert complaint not in text, text
        if suffix == ".log":
            found = [int(offset) for offset in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
            assert found == [r.offset for batch in work.partition.batches(work.dirty) for r in batch.records]


def comparable(header: BatchHeader) -> BatchHeader:
    """Without what depends on the clock, and on which record timestamps are counted from."""
    return header._replace(length=0, crc=0, base_timestamp=0)


def test_the_same_stays_as_with_kafkas_cleaner(tmp_path: Path) -> None:
    """Twice: the second time delete horizons have passed, and markers have nothing left to mark."""
    works = {f"t{seed}": write(tmp_path / f"ours-{seed}", seed) for seed in SEEDS}
    data = tmp_path / "kafka"
    for topic, work in works.items():
        shutil.copytree(work.partition.directory, data / f"{topic}-0")
    clean_with_kafka(data, works)
    firsts = {}
    for topic, work in works.items():
        compare(work, Partition(data / f"{topic}-0"), first_dirty=0)
        firsts[topic] = work.base
        write_more(work)
        for base in (firsts[topic], work.base):
            for path in (data / f"{topic}-0").glob(f"{base:020d}.*"):
                path.unlink()
            shutil.copyfile(work.partition.path(base), data / f"{topic}-0" / work.partition.path(base).name)
    forget(data)
    clean_with_kafka(data, works)
    for topic, work in works.items():
        compare(work, Partition(data / f"{topic}-0"), first_dirty=firsts[topic])


def clean_with_kafka(data: Path, works: dict[str, Work]) -> None:
    settings = {
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.delete.retention.ms": "1",
        "log.cleaner.min.cleanable.ratio": "0.0",
        "log.cleanup.policy": "compact",
        "log.segment.bytes": str(SEGMENT_BYTES),
        "log.initial.task.delay.ms": "100",
    }
    with Kafka("3.9", settings=settings, data=data, heap="512m") as kafka:
        for topic in works:
            create = ["--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1"]
            command = tool("3.9", "topics", "--bootstrap-server", kafka.bootstrap, *create)
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        wait_for_checkpoint(data, {topic: work.base for topic, work in works.items()})


def forget(data: Path) -> None:
    """Removes files that would tell Kafka that this is another cluster, or that nothing follows the recovery point."""
    for name in ("meta.properties", ".kafka_cleanshutdown"):
        (data / name).unlink()
    for path in data.glob("*/partition.metadata"):
        path.unlink()


def compare(work: Work, kafkas: Partition, first_dirty: int) -> None:
    upto = work.base
    work.partition.compact(
        first_dirty=first_dirty,
        upto=upto,
        now_ms=time.time_ns() // 1_000_000,
        delete_retention_ms=1,
        last_of_producer=work.last_of_producer,
        segment_bytes=SEGMENT_BYTES,
    )
    ours = [(comparable(batch.header), batch.records) for batch in work.partition.batches(upto)]
    assert ours == [(comparable(batch.header), batch.records) for batch in kafkas.batches(upto)]
    assert work.partition.aborted() == kafkas.aborted()


def wait_for_checkpoint(data: Path, wanted: dict[str, int]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    path = data / "cleaner-offset-checkpoint"
    reached: dict[str, int] = {}
    while time.monotonic() < end:
        lines = path.read_text().splitlines()[2:] if path.exists() else []
        reached = {topic: int(offset) for topic, _, offset in map(str.split, lines)}
        if wanted.items() <= reached.items():
            return
        time.sleep(0.1)
    raise AssertionError(f"Kafka cleaned up to {reached}, not {wanted}")
