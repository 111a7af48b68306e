"""One partition's part of a Fetch response: how far it goes, at once, and its records, when they are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafkad.names import TopicPartition
from kafkad.wire.records import (
    MAGIC_AT,
    PREFIX_SIZE,
    BatchHeader,
    Record,
    RecordsError,
    crc_matches,
    iter_records,
    read_header,
)
from kafkad.wire.values import values_of
from kctl.errors import KctlError
from kctl.records.read_committed import Aborted

if TYPE_CHECKING:
    from kafkad.wire.messages.fetch import PartitionData

_LENGTH_AT = 8


class DamagedBatch(KctlError):
    """`start` is its first offset; `end` that from which reading may go on after it, or `start` again if the next Fetch
    has to tell."""

    def __init__(self, where: TopicPartition, start: int, end: int, why: str) -> None:
        offsets = f"offset {start}" if end <= start + 1 else f"offsets {start} to {end - 1}"
        super().__init__(f"{where} has a damaged batch at {offsets}: {why}", code="CORRUPT_MESSAGE")
        self.where = where
        self.start = start
        self.end = end


class Fetched:
    """`next` is the offset to go on from; the last batch, which the broker may have cut off, is left for then."""

    __slots__ = ("_aborted", "_batches", "_high_watermark", "_view", "end", "next", "size", "start", "where")

    def __init__(self, where: TopicPartition, part: PartitionData, start: int, end: int, *, more: bool = False) -> None:
        """The records of `part` of a FetchResponse from `start` up to, not including, `end`. With `more`, a larger
        response may be asked for."""
        self.where = where
        self.start = start
        self.end = end
        self._view = memoryview(part.records or b"")
        self._aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()]
        self._high_watermark = part.high_watermark
        self._batches: list[tuple[int, BatchHeader]] = []
        self.next = start
        at = 0
        while _is_whole(self._view, at):
            try:
                header = read_header(self._view, at)
            except RecordsError as error:
                if self.next > start:
                    break  # what is before it can be read; the next Fetch begins with it
                what = f"{where} has a damaged batch at offset {start}, and nothing after it can be read: {error}"
                raise KctlError(what, code="CORRUPT_MESSAGE") from None
            self._begins_at(header.base_offset)
            least = start if at else start + 1
            self.next = max(self.next, least, header.base_offset + 1, header.last_offset + 1)
            if header.base_offset < end:  # its last offset may be what is damaged, so that does not count
                self._batches.append((at, header))
            at += header.size
        behind = self._base_offset(at)
        self._begins_at(behind)
        if more and behind < 0 and len(self._batches) == 1 and self.next > part.high_watermark:
            self.next = start  # no batch ends there: a larger response tells where this one does
        self.size = at if self.next > start else 0

    def _begins_at(self, base_offset: int) -> None:
        """Drops the batches before the one that begins here, if nothing of them is wanted: they came only because the
        last offset in the header of the first is damaged."""
        if self._batches and self._batches[-1][1].base_offset < base_offset <= self.start:
            self._batches.clear()
            self.next = self.start

    def _base_offset(self, at: int) -> int:
        """That of the batch here, of which the broker may have cut off all else; -1 if it is not there either."""
        data = self._view[at : at + _LENGTH_AT]
        return int.from_bytes(data, "big", signed=True) if len(data) == _LENGTH_AT else -1

    def _damaged(self, at: int, header: BatchHeader, why: str) -> DamagedBatch:
        """The last offset in its header may be what is damaged, so the next batch says where it ends: if none is here,
        that which comes with it when it is fetched again, as the first; and if none comes, the end of the log."""
        base = header.base_offset
        end = self._base_offset(at + header.size)
        if end <= base:
            if base > self.start:
                return DamagedBatch(self.where, base, base, why)
            end = min(max(base, header.last_offset) + 1, self._high_watermark)
        return DamagedBatch(self.where, base, max(end, self.start + 1), why)

    def check(self) -> int:
        """The number of records, by the batches' headers; DamagedBatch when a checksum is wrong."""
        count = 0
        for at, header in self._batches:
            self._check(at, header)
            count += max(header.record_count, 0)
        return count

    def _check(self, at: int, header: BatchHeader) -> None:
        if not crc_matches(self._view, at, header):
            raise self._damaged(at, header, "its checksum does not fit")

    def records(self) -> Iterator[Record]:
        """DamagedBatch at a batch that is damaged, after all records before it and none of its own."""
        for at, header in self._shown():
            with self._telling(at, header):
                found = list(self._records_of(at, header))
            yield from found

    def values(self) -> Iterator[list[bytes | None]]:
        """Likewise the values of these records, for much less: those of each batch."""
        for at, header in self._shown():
            with self._telling(at, header):
                found = self._values_of(at, header)
            yield found

    def _shown(self) -> Iterator[tuple[int, BatchHeader]]:
        """The batches that no aborted transaction hides."""
        aborted = Aborted(self._aborted) if self._aborted else None
        for at, header in self._batches:
            self._check(at, header)
            if not header.is_control:
                if aborted is None or not aborted.hides(header):
                    yield at, header
            elif aborted is not None:
                with self._telling(at, header):
                    for record in iter_records(self._view, at, header):
                        aborted.marker(header, record)

    @contextmanager
    def _telling(self, at: int, header: BatchHeader) -> Iterator[None]:
        try:
            yield
        except RecordsError as error:
            raise self._damaged(at, header, str(error)) from None

    def _records_of(self, at: int, header: BatchHeader) -> Iterable[Record]:
        records = iter_records(self._view, at, header)
        if self._is_asked_for(header):
            return records
        return (record for record in records if self.start <= record.offset < self.end)

    def _values_of(self, at: int, header: BatchHeader) -> list[bytes | None]:
        if self._is_asked_for(header):
            return values_of(self._view, at, header)
        return [record.value for record in self._records_of(at, header)]

    def _is_asked_for(self, header: BatchHeader) -> bool:
        """True if its header shows that all of it is wanted; a message of an old format may hold other records."""
        return header.magic == 2 and header.base_offset >= self.start and header.last_offset < self.end


def _is_whole(view: memoryview, at: int) -> bool:
    left = len(view) - at
    if left <= MAGIC_AT:
        return False
    return left >= PREFIX_SIZE + int.from_bytes(view[at + _LENGTH_AT : at + PREFIX_SIZE], "big", signed=True)
