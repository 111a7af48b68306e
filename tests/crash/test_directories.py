"""Data directories that are full, read-only or in use."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
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


def set_retention(admin: AdminClient, topic: str, ms: int) -> None:
    entry = ConfigEntry("retention.ms", str(ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)


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


def fill(directory: Path) -> Path:
    """A file that takes all the room there is."""
    filler = directory / "filler"
    with filler.open("wb", 0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def takes_writes(bootstrap: str, topic: str) -> None:
    end = time.monotonic() + SECONDS
    while True:
        try:
            produce(bootstrap, topic, 1, 100)
        except KafkaException:
            assert time.monotonic() < end, f"{topic} takes no writes"
            time.sleep(0.2)
        else:
            return


@needs_root
@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("metadata", ["on the same disk", "elsewhere"])
def test_full_disk_and_a_restart(tmp_path: Path, how: str, metadata: str) -> None:
    settings = {"offsets.topic.num.partitions": "1", "log.segment.bytes": "1000000"}
    if metadata == "elsewhere":
        settings["kafkad.metadata.dir"] = str(tmp_path / "metadata")
    small = tmp_path / "small"
    kafkad = KafkadProcess(tmp_path / "kafkad", settings, log_dirs=[small])
    with mounted(small, "size=6m"), kafkad:
        create_topics(kafkad.bootstrap, "full", "other", "short")
        admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
        with pytest.raises(KafkaException) as refused:
            produce(kafkad.bootstrap, "full", 20, 600_000)
        offsets = refused.value.args[1]
        filler = fill(small)
        if metadata == "elsewhere":
            create_topics(kafkad.bootstrap, "meanwhile")
        kafkad.stop() if how == "stop" else kafkad.kill()
        kafkad.start()
        reader = Reader(kafkad.bootstrap, "full", 1)
        reader.catch_up()
        reader.close()
        assert [offset for _, offset in reader.seen] == offsets
        with pytest.raises(KafkaException):
            produce(kafkad.bootstrap, "full", 1, 600_000)
        filler.unlink()
        takes_writes(kafkad.bootstrap, "other")
        create_topics(kafkad.bootstrap, "later")
        for topic in ("later", *(["meanwhile"] if metadata == "elsewhere" else [])):
            takes_writes(kafkad.bootstrap, topic)
        admin.delete_topics(["short"])["short"].result(SECONDS)
        assert "Traceback" not in kafkad.log
        assert "offline" not in kafkad.log


@needs_root
@pytest.mark.slow
def test_a_full_disk_lets_an_operator_make_room(tmp_path: Path) -> None:
    """By changes of metadata, for which there is room beside the rest, also after a restart."""
    settings = {"offsets.topic.num.partitions": "1", "log.segment.delete.delay.ms": "0"}
    small = tmp_path / "small"
    kafkad = KafkadProcess(tmp_path / "kafkad", settings, log_dirs=[small])
    with mounted(small, "size=6m"), kafkad:
        create_topics(kafkad.bootstrap, "full", "other")
        with pytest.raises(KafkaException):
            produce(kafkad.bootstrap, "full", 20, 600_000)
        filler = fill(small)
        admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
        assert "no topics are created until there is room" in create_until_refused(admin)
        for number in range(100):
            set_retention(admin, "other", number + 10**12)
        kafkad.kill()
        kafkad.start()
        assert "no topics are created until there is room" in create_until_refused(admin)
        admin.delete_topics(["full"])["full"].result(SECONDS)
        takes_writes(kafkad.bootstrap, "other")
        filler.unlink()
        create_topics(kafkad.bootstrap, "later")


def create_until_refused(admin: AdminClient) -> str:
    """The refusal of topics that a full disk has no room for; 10,000 are more than it has."""
    for number in range(100):
        made = admin.create_topics([NewTopic(f"{number}-{time.time_ns()}", 1, 1) for _ in range(100)])
        for topic in made.values():
            try:
                topic.result(SECONDS)
            except KafkaException as refused:
                assert refused.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
                return str(refused.args[0].str())
    raise AssertionError("they were all created")


@pytest.mark.parametrize("broken", ["a file", "below a file"])
def test_unusable_first_directory_is_named(tmp_path: Path, broken: str) -> None:
    (tmp_path / "first").write_text("no directory")
    first = tmp_path / "first" if broken == "a file" else tmp_path / "first" / "data"
    kafkad = KafkadProcess(tmp_path / "kafkad", log_dirs=[first, tmp_path / "second"]).start(wait=False)
    assert kafkad.process is not None
    assert kafkad.process.wait(SECONDS) == 1
    assert f"{tmp_path / 'first'}: Not a directory" in kafkad.log.splitlines()[-1]
    assert "Traceback" not in kafkad.log


@pytest.mark.slow
def test_directory_whose_disk_is_not_mounted(tmp_path: Path) -> None:
    first, second, away = tmp_path / "first", tmp_path / "second", tmp_path / "away"
    with KafkadProcess(tmp_path / "kafkad", log_dirs=[first, second]) as kafkad:
        create_topics(kafkad.bootstrap, "one", "two")
        produce(kafkad.bootstrap, "one", 3, 100)
        produce(kafkad.bootstrap, "two", 3, 100)
        (gone,) = [topic for topic in ("one", "two") if (second / f"{topic}-0").exists()]
        (there,) = {"one", "two"} - {gone}
        for _ in range(2):  # what it finds out at the first start it must not forget at the next
            kafkad.stop()
            if not away.exists():
                second.rename(away)
                second.mkdir()
            kafkad.start()
            assert produce(kafkad.bootstrap, there, 1, 100)
            with pytest.raises(KafkaException):
                produce(kafkad.bootstrap, gone, 1, 100)
            assert not (second / f"{gone}-0").exists()
        assert f"log directory {second} was this broker's, and is empty now" in kafkad.log
        kafkad.stop()
        shutil.rmtree(second)
        away.rename(second)
        kafkad.start()
        assert produce(kafkad.bootstrap, gone, 1, 100) == [3]


@pytest.mark.slow
def test_a_new_disk_is_taken_once_somebody_has_said_that_it_is_one(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with KafkadProcess(tmp_path / "kafkad", log_dirs=[first, second]) as kafkad:
        create_topics(kafkad.bootstrap, "one", "two")
        (gone,) = [topic for topic in ("one", "two") if (second / f"{topic}-0").exists()]
        produce(kafkad.bootstrap, gone, 3, 100)
        kafkad.stop()
        shutil.rmtree(second)
        second.mkdir()
        kafkad.start()
        kafkad.stop()
        [command] = set(re.findall(r"begin empty after: (\(.*\) > \S+)", kafkad.log))
        subprocess.run(["bash", "-c", command], check=True)
        kafkad.start()
        assert produce(kafkad.bootstrap, gone, 1, 100) == [0]
        assert (second / f"{gone}-0").exists()


def test_new_directory_is_taken(tmp_path: Path) -> None:
    kafkad = KafkadProcess(tmp_path / "kafkad", log_dirs=[tmp_path / "first"])
    with kafkad:
        create_topics(kafkad.bootstrap, "one")
    kafkad.settings["log.dirs"] += f",{tmp_path / 'second'}"
    with kafkad:
        create_topics(kafkad.bootstrap, "two")
        assert (tmp_path / "second" / "two-0").exists()


def test_metadata_whose_disk_is_not_mounted(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    kafkad = KafkadProcess(tmp_path / "kafkad", log_dirs=[first, second])
    with kafkad:
        create_topics(kafkad.bootstrap, "one", "two")
    first.rename(tmp_path / "away")
    first.mkdir()
    kafkad.start(wait=False)
    assert kafkad.process is not None
    assert kafkad.process.wait(SECONDS) == 1
    assert f"{first} is empty, and a new metadata store would be made in it" in kafkad.log.splitlines()[-1]
    assert os.listdir(first) == [".lock"]


def test_directories_in_another_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    kafkad = KafkadProcess(tmp_path / "kafkad", log_dirs=[first, second])
    with kafkad:
        create_topics(kafkad.bootstrap, "one", "two")
    kafkad.settings["log.dirs"] = f"{second},{first}"
    for brokers in (1, 2):
        kafkad.settings["kafkad.brokers"] = str(brokers)
        kafkad.start(wait=False)
        assert kafkad.process is not None
        assert kafkad.process.wait(SECONDS) == 1
        assert f"but there is {first}/kafkad-metadata.journal" in kafkad.log.splitlines()[-1]
        assert not (second / "kafkad-metadata.journal").exists()


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
