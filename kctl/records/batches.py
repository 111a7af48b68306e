"""Records on their way to a partition: gathered into batches, and numbered so that a repeated batch is taken once."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from kafkad.wire.compression import compress
from kafkad.wire.records import (
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Record,
    assemble_batch,
    encode_record,
    encode_values,
    most_around_value,
    next_sequence,
    parse_records,
)

NO_LIMIT = 2**63


class Producer(NamedTuple):
    """Our producer id and epoch at the broker; -1 without idempotence."""

    id: int = -1
    epoch: int = -1
    transactional: bool = False


NOBODY = Producer()


class Batch:
    """`pieces` joined are its `count` records as they will stand in it, before compression. `marks` are what came with
    each, such as its line; `tries` and `sequence` are those of its sendings."""

    __slots__ = ("base_timestamp", "bytes", "count", "marks", "max_timestamp", "pieces", "sequence", "since", "tries")

    def __init__(self, since: float, base_timestamp: int = 0) -> None:
        self.pieces: list[bytes] = []
        self.count = 0
        self.marks: list[int] = []
        self.bytes = HEADER_SIZE
        self.since = since
        self.base_timestamp = self.max_timestamp = base_timestamp
        self.sequence = -1
        self.tries = 0

    def add(self, record: Record, mark: int, limit: int = NO_LIMIT) -> int:
        """The number of bytes it takes; 0 if the batch would be larger than `limit` with it, and is not empty."""
        _, timestamp, key, value, headers = record
        encoded = encode_record(self.count, timestamp - self.base_timestamp, key, value, headers)
        size = len(encoded)
        if self.bytes + size > limit and self.count:
            return 0
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.pieces.append(encoded)
        self.count += 1
        self.marks.append(mark)
        self.bytes += size
        return size

    def extend(self, values: Sequence[bytes], timestamp: int, mark: int, limit: int) -> int:
        """Adds records of that time that are only values, as `add` does one; returns how many it has taken."""
        delta = timestamp - self.base_timestamp
        room, around = max(limit - self.bytes, 0), most_around_value(limit, delta)
        ends = list(accumulate([len(value) + around for value in values[: room // around + 1]]))
        count = bisect_right(ends, room) or int(not self.count)
        if count:
            pieces = encode_values(values[:count], self.count, delta)
            self.max_timestamp = max(self.max_timestamp, timestamp)
            self.pieces += pieces
            self.count += count
            self.marks += range(mark, mark + count)
            self.bytes += sum(map(len, pieces))
        return count

    def built(self, producer: Producer, codec: int, level: int | None) -> bytearray:
        """The batch as it goes to the broker."""
        body = b"".join(self.pieces)
        return assemble_batch(self._header(producer, codec), compress(codec, body, level) if codec else body)

    def _header(self, producer: Producer, codec: int) -> BatchHeader:
        return BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=-1,
            magic=2,
            crc=0,
            attributes=codec | (TRANSACTIONAL if producer.transactional else 0),
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=self.sequence,
            record_count=self.count,
        )

    def part(self, start: int, stop: int) -> Batch:
        """The records from `start` up to, but not including, `stop` as a batch of their own."""
        chosen = list(parse_records(b"".join(self.pieces), self._header(NOBODY, 0)))[start:stop]
        part = Batch(self.since, chosen[0].timestamp)
        for record, mark in zip(chosen, self.marks[start:stop], strict=True):
            part.add(record, mark)
        part.tries = self.tries
        if self.sequence >= 0:
            part.sequence = next_sequence(self.sequence, start)
        return part


class PartitionQueue:
    """The batches of one partition, oldest first. At most the first is on its way: that keeps the order."""

    __slots__ = ("_next_sequence", "batches", "in_flight")

    def __init__(self) -> None:
        self.batches: deque[Batch] = deque()
        self.in_flight = False
        self._next_sequence = 0

    def add(self, record: Record, mark: int, limit: int, now: float) -> int:
        """The number of bytes it takes. The first batch does not grow while it is on its way, or had been."""
        last = self._growing()
        if last and (size := last.add(record, mark, limit)):
            return size
        last = Batch(now, record.timestamp)
        self.batches.append(last)
        return last.add(record, mark)

    def extend(self, values: Sequence[bytes], timestamp: int, mark: int, limit: int, now: float) -> tuple[int, int]:
        """Adds the first of these values, as many as go into one batch; returns how many, and their bytes."""
        last = self._growing()
        before = last.bytes if last else 0
        if last and (count := last.extend(values, timestamp, mark, limit)):
            return count, last.bytes - before
        last = Batch(now, timestamp)
        self.batches.append(last)
        count = last.extend(values, timestamp, mark, limit)
        return count, last.bytes - HEADER_SIZE

    def _growing(self) -> Batch | None:
        if not self.batches:
            return None
        last = self.batches[-1]
        return None if last.tries or (self.in_flight and len(self.batches) == 1) else last

    def is_due(self, now: float, linger: float) -> bool:
        """True if its first batch is to be sent: it is full (another one waits behind it), or old enough."""
        if self.in_flight or not self.batches:
            return False
        return len(self.batches) > 1 or self.batches[0].tries > 0 or now - self.batches[0].since >= linger

    def encoded(self, producer: Producer, codec: int, level: int | None = None) -> bytes:
        """The first batch as bytes. Its sequence is given once: a repetition has to have the same."""
        batch = self.batches[0]
        if producer.id >= 0 and batch.sequence < 0:
            batch.sequence = self._next_sequence
            self._next_sequence = next_sequence(self._next_sequence, batch.count)
        batch.tries += 1
        return bytes(batch.built(producer, codec, level))

    def split(self) -> None:
        """The first batch into two, which a broker refused as too large."""
        whole = self.batches.popleft()
        middle = whole.count // 2
        self.batches.extendleft((whole.part(middle, whole.count), whole.part(0, middle)))

    def drop(self) -> Batch:
        """Drops the first batch, which the broker certainly has not taken: its numbers are free again."""
        batch = self.batches.popleft()
        if batch.sequence >= 0:
            self._next_sequence = batch.sequence
            for waiting in self.batches:
                waiting.sequence = -1
        return batch
