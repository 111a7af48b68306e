"""The claims of docs/claims.md about files: what is written, flushed, indexed, sent, and kept in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from kctl.cli import run
from tests.broker import KafkadProcess
from tests.claims.recorded import RecordedKafkad
from tests.clients.asker import Asker, batch, produce
from tests.clients.test_confluent import create

SECONDS = 60


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def make(kafkad: KafkadProcess, topic: str, partitions: int = 1, **config: str) -> str:
    return create(AdminClient({"bootstrap.servers": kafkad.bootstrap}), topic, partitions, **config)


def fill(kafkad: KafkadProcess, topic: str, records: int, size: int) -> None:
    producer = Producer({"bootstrap.servers": kafkad.bootstrap, "linger.ms": 5, "batch.size": 16384})
    for number in range(records):
        producer.produce(topic, bytes(size), str(number).encode(), partition=0)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0


def read_all(kafkad: KafkadProcess, topic: str, records: int) -> int:
    """Bytes of the values."""
    consumer = Consumer({"bootstrap.servers": kafkad.bootstrap, "group.id": "claims", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = size = 0
    while got < records:
        messages = consumer.consume(min(records - got, 10_000), SECONDS)
        assert messages, f"{got} of {records} records came"
        got += len(messages)
        size += sum(len(message.value()) for message in messages)
    consumer.close()
    return size


def test_records_are_only_appended_and_sent_from_the_file(tmp_path: Path) -> None:
    """Claims 17 and 22: each write begins where the one before it ended; sendfile gives records to who reads."""
    with RecordedKafkad(tmp_path) as kafkad:
        topic = make(kafkad, "t", segment_bytes=str(1 << 20))
        fill(kafkad, topic, 3_000, 1_000)
        size = read_all(kafkad, topic, 3_000)
        writes = [call for call in kafkad.calls("pwrite") if call.is_of(".log") and "/t-0/" in call.path]
        ends: dict[str, int] = {}
        for call in writes:
            assert call.position == ends.get(call.path, 0)
            ends[call.path] = call.position + call.length
        assert len(ends) >= 3, "segments follow each other"
        assert [call.path for call in writes] == sorted(call.path for call in writes)
        sent = [call for call in kafkad.calls("sendfile") if "/t-0/" in call.path]
        assert sum(call.length for call in sent) > size / 2, "small answers are copied"


@pytest.mark.parametrize(
    ("setting", "value", "least"),
    [("flush.messages", "3", 10), ("kafkad.flush.bytes", "400", 2)],
)
def test_flush_by_count_or_bytes(tmp_path: Path, setting: str, value: str, least: int) -> None:
    """Claims 19 and 74: an fsync for each three records, or each 400 bytes; and none without the setting."""
    with RecordedKafkad(tmp_path) as kafkad:
        asker = Asker(kafkad.port)
        asker.create("plain")
        asker.create("flushed", **{setting.replace(".", "_"): value})

        def flushes(topic: str) -> int:
            calls = kafkad.calls("fsync", "fdatasync")
            return sum(call.is_of(".log") and f"/{topic}-0/" in call.path for call in calls)

        before = flushes("flushed")
        for topic in ("plain", "flushed"):
            for _ in range(10):
                answer = asker.ask("Produce", 7, produce(topic, batch(3)))
                assert answer.responses[0].partition_responses[0].error_code == 0
        assert least <= flushes("flushed") - before <= 10
        assert flushes("plain") == 0
        asker.client.close()


@pytest.mark.slow
def test_flush_by_time(tmp_path: Path) -> None:
    """Claim 19."""
    with RecordedKafkad(tmp_path) as kafkad:
        asker = Asker(kafkad.port)
        asker.create("flushed", flush_ms="1")
        asker.client.close()
        until(lambda: any(call.is_of(".log") for call in kafkad.calls("fsync", "fdatasync")))


def test_who_reads_gets_only_what_was_flushed(tmp_path: Path) -> None:
    """Claim 20: with an fsync that is never due but for the option, records are seen once it has been done."""
    with RecordedKafkad(tmp_path) as kafkad:
        topic = make(kafkad, "t", kafkad_read_flushed_only="true")
        fill(kafkad, topic, 10, 10)
        read_all(kafkad, topic, 10)
        assert any(call.is_of(".log") for call in kafkad.calls("fsync", "fdatasync"))


def test_index_has_an_entry_for_each_interval_of_bytes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Claim 14: relative offset and position, 4096 bytes apart at least; found by the last that is not later."""
    with KafkadProcess(tmp_path) as kafkad:
        fill(kafkad, make(kafkad, "t"), 2_000, 500)
        directory = kafkad.log_directory() / "t-0"
        kafkad.stop()
    index = next(directory.glob("*.index"))
    entries = list(struct.iter_unpack(">ii", index.read_bytes()))
    positions = [position for _, position in entries]
    assert len(entries) > 10
    assert all(later - earlier > 4096 for earlier, later in pairwise(positions))
    for offset in (entries[3][0], entries[3][0] + 1):
        assert run(["dump-index", str(index), "--lookup", str(offset)]) == 0
        assert str(positions[3]) in capfd.readouterr().out


def test_index_of_a_log_that_begins_later_keeps_differences(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Claim 14's example: in a segment that begins with 368769, offset 368773 is entry 4."""
    index = tmp_path / "00000000000000368769.index"
    index.write_bytes(struct.pack(">iiiiii", 1, 0, 4, 497, 6, 1407))
    (tmp_path / "00000000000000368769.log").write_bytes(b"")
    assert run(["dump-index", str(index)]) == 0
    shown = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert any("368773" in line and "497" in line for line in shown)


def resident(path: Path) -> float:
    """The part of a file that is in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    size = path.stat().st_size
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with path.open("rb") as file:
        address = libc.mmap(
            None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0)
        )
        answer = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages)
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    assert answer == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages) / len(pages)


def rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.mark.slow
def test_page_cache_holds_what_was_written_and_outlives_the_broker(tmp_path: Path) -> None:
    """Claim 75."""
    with KafkadProcess(tmp_path) as kafkad:
        fill(kafkad, make(kafkad, "t"), 5_000, 1_000)
        kafkad.restart()
        [segment] = (kafkad.log_directory() / "t-0").glob("*.log")
        assert resident(segment) > 0.9
        assert read_all(kafkad, "t", 5_000) == 5_000_000


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    """Claim 75: of what was read the broker keeps nothing; a group's position is an offset that the group commits."""
    with KafkadProcess(tmp_path) as kafkad:
        fill(kafkad, make(kafkad, "t"), 1_000, 100)
        directory = kafkad.log_directory() / "t-0"

        def state() -> dict[str, bytes]:
            return {path.name: path.read_bytes() for path in directory.iterdir()}

        before = state()
        read_all(kafkad, "t", 1_000)
        read_all(kafkad, "t", 1_000)
        assert state() == before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_memory_stays_while_gigabytes_are_served(tmp_path: Path) -> None:
    """Claim 18: what is read comes from the page cache, not from memory of the process."""
    with KafkadProcess(tmp_path) as kafkad:
        fill(kafkad, make(kafkad, "t"), 100_000, 1_000)
        read_all(kafkad, "t", 100_000)
        before = rss(kafkad.pid)
        served = sum(read_all(kafkad, "t", 100_000) for _ in range(20))
        assert served == 2_000_000_000
        assert rss(kafkad.pid) - before < 20 << 20
