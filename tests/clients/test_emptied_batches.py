"""A segment of which compaction left the header of one batch alone: who fetches there gets it, and steps over it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.wire.records import HEADER_SIZE, Record, build_batch, iter_batches
from tests.broker import KafkadProcess
from tests.clients.asker import STAMP_MS, Asker, produce
from tests.clients.conftest import Broker
from tests.clients.probes import fetch
from tests.clients.test_compacted_directories import SETTINGS
from tests.oracle.kafka import Kafka, missing

SECONDS = 60
TOPIC = "emptied"
SEGMENT_BYTES = 1_000
EMPTIED = 7
"""The offset of the batch: six records are there when a topic has been made, and one stays before it."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(params=["kafkad", pytest.param("kafka", marks=[pytest.mark.long, pytest.mark.java])])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Broker, Path]]:
    settings = {**SETTINGS, "log.segment.bytes": str(SEGMENT_BYTES), "log.cleaner.delete.retention.ms": "100"}
    if request.param == "kafkad":
        with KafkadProcess(tmp_path / "kafkad", settings, log_dirs=[tmp_path / "data"]) as kafkad:
            yield kafkad, tmp_path / "data"
        return
    if reason := missing("3.9"):
        pytest.skip(reason)
    with Kafka("3.9", data=tmp_path / "data", heap="512m", settings=settings) as kafka:
        yield kafka, tmp_path / "data"


def numbered(producer: int, sequence: int, key: bytes) -> bytes:
    """A batch that fills a segment, so that compaction has no room for another one beside it."""
    record = Record(0, STAMP_MS, key, bytes(895))
    return bytes(build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=sequence))


def sizes(data: Path) -> dict[int, int]:
    return {int(path.stem): path.stat().st_size for path in (data / f"{TOPIC}-0").glob("*.log")}


def test_a_fetch_may_bring_nothing_but_an_emptied_batch(broker: tuple[Broker, Path]) -> None:
    """As a reader knows from it where to go on, also where it asks for fewer bytes than the header has. Kafka's own
    compaction tester takes an empty poll, which this is to it, for the end of the log."""
    server, data = broker
    asker = Asker(int(server.bootstrap.rpartition(":")[2]))
    asker.create(TOPIC)
    for producer, sequence, key in ((8, 0, b"stays"), (7, 0, b"a"), (8, 1, b"a"), (8, 2, b"b")):
        answer = asker.ask("Produce", 7, produce(TOPIC, numbered(producer, sequence, key)))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
    patience = time.monotonic() + SECONDS
    while HEADER_SIZE not in sizes(data).values():
        assert time.monotonic() < patience, sizes(data)
        time.sleep(0.1)

    def fetched(offset: int, max_bytes: int) -> list[tuple[int, int, int]]:
        asked = fetch(TOPIC, offset, topic_id=bytes(16))
        asked["topics"][0]["partitions"][0]["partition_max_bytes"] = max_bytes
        [partition] = asker.ask("Fetch", 11, asked).responses[0].partitions
        assert partition.error_code == 0
        headers = [header for _, header in iter_batches(memoryview(partition.records or b""))]
        return [(header.base_offset, header.last_offset, header.record_count) for header in headers]

    [emptied] = [base for base, size in sizes(data).items() if size == HEADER_SIZE]
    for max_bytes in (1, 1 << 20):
        assert fetched(emptied, max_bytes) == [(EMPTIED, EMPTIED, 0)]
    assert fetched(EMPTIED + 1, 1 << 20)[0][0] > EMPTIED
    asker.client.close()
