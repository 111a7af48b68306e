"""Partitions of `__transaction_state` that real Kafka 3.9.2 and 4.3.1 wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kafkad.wire.records import Record, iter_batches, iter_records

DIRECTORY = Path(__file__).parent.parent / "golden" / "txn"


def records(release: str, kind: str) -> Iterator[Record]:
    """All of both partitions, in the order of each log."""
    for log in sorted((DIRECTORY / release / kind).glob("__transaction_state-*/*.log")):
        data = memoryview(log.read_bytes())
        for at, header in iter_batches(data):
            yield from iter_records(data, at, header)
