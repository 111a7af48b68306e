"""Records on their way to a partition: gathered into batches, and numbered so that a repeated batch is taken once."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kafkad.wire.records import HEADER_SIZE, Record, build_batch, next_sequence

_RECORD_OVERHEAD = 20
"""About what a record takes beside key, value and headers."""


class Producer(NamedTuple):
    """Who the broker takes us for; -1 without idempotence."""

    id: int = -1
    epoch: int = -1
    transactional: bool = False


NOBODY = Producer()


class Batch:
    """`marks` are what came with each record, such as its line; `tries` and `sequence` are those of its sendings."""

    __slots__ = ("bytes", "marks", "records", "sequence", "since", "tries")

    def __init__(self, since: float) -> None:
        self.records: list[Record] = []
        self.marks: list[int] = []
        self.bytes = HEADER_SIZE
        self.since = since
        self.sequence = -1
        self.tries = 0


def record_size(record: Record) -> int:
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"") + 4
    return size


class PartitionQueue:
    """The batches of one partition, oldest first. At most the first is on its way: that keeps the order."""

    __slots__ = ("_next_sequence", "batches", "in_flight")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.in_flight = False
        self._next_sequence = 0

    def add(self, record: Record, mark: int, limit: int, now: float) -> int:
        """The number of bytes it takes. The first batch does not grow while it is on its way, or had been."""
        size = record_size(record)
        last = self.batches[-1] if self.batches else None
        if last is None or last.bytes + size > limit or last.tries or (self.in_flight and len(self.batches) == 1):
            last = Batch(now)
            self.batches.append(last)
        last.records.append(record._replace(offset=len(last.records)))
        last.marks.append(mark)
        last.bytes += size
        return size

    def is_due(self, now: float, linger: float) -> bool:
        """Whether its first batch is to be sent: full (another one waits behind it), or old enough."""
        if self.in_flight or not self.batches:
            return False
        return len(self.batches) > 1 or self.batches[0].tries > 0 or now - self.batches[0].since >= linger

    def encoded(self, producer: Producer, codec: int, level: int | None = None) -> bytes:
        """The first batch as bytes. Its sequence is given once: a repetition has to have the same."""
        batch = self.batches[0]
        if producer.id >= 0 and batch.sequence < 0:
            batch.sequence = self._next_sequence
            self._next_sequence = next_sequence(self._next_sequence, len(batch.records))
        batch.tries += 1
        data = build_batch(
            batch.records,
            codec=codec,
            level=level,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=batch.sequence,
            transactional=producer.transactional,
        )
        return bytes(data)

    def split(self) -> None:
        """The first batch into two, which a broker refused as too large."""
        whole = self.batches.popleft()
        middle = len(whole.records) // 2
        for start, end in ((middle, len(whole.records)), (0, middle)):
            part = Batch(whole.since)
            part.records = [record._replace(offset=at) for at, record in enumerate(whole.records[start:end])]
            part.marks = whole.marks[start:end]
            part.bytes = HEADER_SIZE + sum(map(record_size, part.records))
            part.tries = 1
            if whole.sequence >= 0:
                part.sequence = next_sequence(whole.sequence, start)
            self.batches.appendleft(part)

    def drop(self) -> Batch:
        """Give up the first batch, which the broker surely has not taken: its numbers are free again."""
        batch = self.batches.popleft()
        if batch.sequence >= 0:
            self._next_sequence = batch.sequence
            for waiting in self.batches:
                waiting.sequence = -1
        return batch
