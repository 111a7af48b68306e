"""The same transactions on any broker, by raw requests: ends that are repeated, an id that another producer takes over,
and the logs that they leave behind."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, NamedTuple

from kafkad.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from kafkad.txn.records import decode
from kafkad.txn.transaction import Transaction
from kafkad.wire.records import Record, iter_batches, iter_records
from tests.txn.producer import RawProducer
from tests.txn.raw import Raw

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
NAME, GROUP = "mover", "movers"
OUT = [("out", 0), ("out", 1)]
SOURCE = ("in", 0)
NUMBERS = 6
STATES, OFFSETS = f"{TRANSACTIONS_TOPIC}-0", f"{GROUPS_TOPIC}-0"
LOGS = ("out-0", "out-1", STATES, OFFSETS)
"""The partitions that are written to."""


def prepare(port: int) -> None:
    """Topics and coordinators are there."""
    raw = Raw(port)
    with contextlib.closing(raw):
        raw.create(SOURCE[0], 1)
        raw.create(OUT[0][0], len(OUT))
        raw.coordinator([NAME], 1)
        raw.coordinator([GROUP], 0)
        raw.until_loaded([NAME])
        raw.committed_offset(GROUP, SOURCE)


def settle(port: int) -> None:
    """The last transaction is complete."""
    raw = Raw(port)
    with contextlib.closing(raw):
        raw.settled(NAME)


def tell(port: int, *, new: bool) -> None:
    """By a new client or an old one; every third transaction is aborted."""
    raw = Raw(port)
    with contextlib.closing(raw):
        raw.know(OUT[0][0])
        producer = RawProducer(raw, NAME, new=new)
        producer.begin()
        for number in range(NUMBERS):
            before, commit = (producer.producer_id, producer.epoch), number % 3 != 2
            producer.write(dict.fromkeys(OUT, b"v%d" % number), GROUP, {SOURCE: number + 1})
            if number == 3:
                producer.begin()
                continue
            producer.end(commit=commit)
            raw.settled(NAME)
            assert not raw.end(NAME, *before, commit, version=5 if new else 3).error_code, "repeated"
        if new:
            producer.end(commit=False)  # of nothing


class Batch(NamedTuple):
    """As it was written, with producer ids in the order in which they came, and without times."""

    offset: int
    size: int
    attributes: int
    producer: int
    epoch: int
    sequence: int
    records: tuple[Any, ...]


def batches(partition: Path) -> list[Batch]:
    """All of a partition's log."""
    [path] = partition.glob("*.log")
    data = memoryview(path.read_bytes())
    ids: dict[int, int] = {-1: -1}
    return [
        Batch(
            header.base_offset,
            header.size,
            header.attributes,
            ids.setdefault(header.producer_id, len(ids)),
            header.producer_epoch,
            header.base_sequence,
            tuple(_told(partition.name, record, ids) for record in iter_records(data, at, header)),
        )
        for at, header in iter_batches(data)
    ]


def _told(partition: str, record: Record, ids: dict[int, int]) -> Any:
    key, value = record.key or b"", record.value or b""
    if partition == OFFSETS and len(value) > 6:
        return key, value[:-8]  # the time of the commit
    if partition != STATES:
        return key, value
    known = decode(key, value)
    assert isinstance(known, Transaction)
    return value[:2], known._replace(
        producer_id=ids.setdefault(known.producer_id, len(ids)),
        previous_producer_id=ids.setdefault(known.previous_producer_id, len(ids)),
        next_producer_id=ids.setdefault(known.next_producer_id, len(ids)),
        updated_ms=0,
        started_ms=min(known.started_ms, 0),
    )
