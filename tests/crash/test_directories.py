"""Data directories that are full, read-only or in use."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker import KafkadProcess
from tests.crash.writers import Reader

SECONDS = 30
NEEDS_ROOT = "mounting a small disk needs root"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason=NEEDS_ROOT)


@contextlib.contextmanager
def mounted(directory: Path, *options: str) -> Iterator[Path]:
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def create_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for name in names:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(SECONDS)


def produce(bootstrap: str, topic: str, count: int, size: int) -> list[int]:
    """Sends the records one by one and returns the acknowledged offsets; the first error is raised."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        errors.append(error) if error else offsets.append(message.offset())  # type: ignore[attr-defined]

    producer = Producer({"bootstrap.servers": bootstrap, "delivery.timeout.ms": 3000, "log_level": 0, "retries": 0})
    for _ in range(count):
        producer.produce(topic, os.urandom(size), partition=0, on_delivery=delivered)
        assert producer.flush(SECONDS) == 0
        if errors:
            raise KafkaException(errors[0], offsets)
    return offsets


@needs_root
@pytest.mark.slow
def test_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=6m") as small:
        roomy = tmp_path / "roomy"
        with KafkadProcess(tmp_path / "kafkad", log_dirs=[small, roomy]) as kafkad:
            create_topics(kafkad.bootstrap, "one", "two")
            (full,) = [topic for topic in ("one", "two") if (small / f"{topic}-0").exists()]
            (other,) = {"one", "two"} - {full}
            with pytest.raises(KafkaException) as refused:
                produce(kafkad.bootstrap, full, 20, 600_000)
            error, offsets = refused.value.args
            assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
            assert len(produce(kafkad.bootstrap, other, 20, 600_000)) == 20
            reader = Reader(kafkad.bootstrap, full, 1)
            reader.catch_up()
            reader.close()
            assert [offset for _, offset in reader.seen] == offsets
            assert str(small) in next(line for line in kafkad.log.splitlines() if "No space left" in line)


@needs_root
@pytest.mark.slow
def test_read_only_directory(tmp_path: Path) -> None:
    with mounted(tmp_path / "locked", "size=1m", "ro") as locked:
        alone = KafkadProcess(tmp_path / "alone", log_dirs=[locked]).start(wait=False)
        assert alone.process is not None
        assert alone.process.wait(SECONDS) not in (0, -6, -11)
        assert str(locked) in alone.log
        assert "Traceback" not in alone.log
        with KafkadProcess(tmp_path / "kafkad", log_dirs=[tmp_path / "good", locked]) as kafkad:
            create_topics(kafkad.bootstrap, "one", "two")
            assert produce(kafkad.bootstrap, "one", 3, 100) == [0, 1, 2]
            assert produce(kafkad.bootstrap, "two", 3, 100) == [0, 1, 2]
            assert str(locked) in kafkad.log


def test_second_kafkad_on_the_same_directory(tmp_path: Path) -> None:
    with KafkadProcess(tmp_path / "first") as first:
        second = KafkadProcess(tmp_path / "second", log_dirs=first.log_dirs).start(wait=False)
        assert second.process is not None
        assert second.process.wait(SECONDS) != 0
        assert str(first.log_directory() / ".lock") in second.log
        assert "Traceback" not in second.log
        create_topics(first.bootstrap, "still-here")
