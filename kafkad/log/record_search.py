"""Search for a record by its time in one batch: here if that is quick, otherwise in a worker process. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafkad.log.validate import QUICK_BYTES, QUICK_PLAIN_BYTES, QUICK_RECORDS
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_HEADER,
    DECOMPRESSED_LIMIT,
    LENGTH,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    MAX_TIMESTAMP,
    RECORD_COUNT,
    Header,
    RecordsError,
    iter_records,
    read_header,
    read_varint,
    records_body,
)

_ANY, _NONE = -(2**63), 2**63
"""Timestamp deltas that every record reaches, and none."""

Stamp = tuple[int, int]
"""Timestamp and offset of a record."""


class RecordSearch(NamedTuple):
    """Asks a batch for its first record from `start_offset` on that is not older than `timestamp`; with `largest` for
    the first that has the largest timestamp of these. Plain values, so that it crosses to a worker process cheaply."""

    batch: bytes
    start_offset: int
    timestamp: int
    largest: bool = False

    @property
    def most_records(self) -> int:
        """How many the batch says that it has; batches of old formats do not say it."""
        known = self.batch[MAGIC_AT] == 2
        return BATCH_HEADER.unpack_from(self.batch)[RECORD_COUNT] if known else 2**31


class SearchResult(NamedTuple):
    """A value also where the records are damaged, since exceptions do not cross from a worker process whole."""

    found: Stamp | None
    damage: str = ""

    def unwrap(self) -> Stamp | None:
        if self.damage:
            raise RecordsError(self.damage, 0)
        return self.found


def look_through(search: RecordSearch, limit: int = DECOMPRESSED_LIMIT) -> SearchResult:
    """The answer; `limit` bounds what a compressed batch may grow to."""
    view = memoryview(search.batch)
    try:
        wanted = (
            stamp
            for stamp in _stamps(view, read_header(view, 0), search.timestamp, limit)
            if stamp[1] >= search.start_offset
        )
        return SearchResult(max(wanted, key=_timestamp, default=None) if search.largest else next(wanted, None))
    except RecordsError as error:
        return SearchResult(None, str(error))


def look_through_quickly(search: RecordSearch, header: Header) -> SearchResult | None:
    """The answer; None when that may take more than a millisecond."""
    if header[LENGTH] > QUICK_BYTES or not 0 <= header[RECORD_COUNT] <= QUICK_RECORDS:
        return None
    result = look_through(search, QUICK_PLAIN_BYTES)
    return None if result.damage else result  # it may only be larger than this


def _timestamp(stamp: Stamp) -> int:
    return stamp[0]


def _stamps(view: memoryview, header: Header, timestamp: int, limit: int) -> Iterator[Stamp]:
    """Those that are not older."""
    if header[MAGIC] < 2:
        records = iter_records(view, 0, header, limit)
        return ((record.timestamp, record.offset) for record in records if record.timestamp >= timestamp)
    return _stamps_in(records_body(view, 0, header, limit), header, timestamp)


def _stamps_in(data: bytes, header: Header, timestamp: int) -> Iterator[Stamp]:
    """Reads only the beginning of each record: what follows it takes longer, and says nothing about times."""
    base_offset, base_timestamp, count = header[BASE_OFFSET], header[BASE_TIMESTAMP], header[RECORD_COUNT]
    append_time = header[MAX_TIMESTAMP] if header[ATTRIBUTES] & LOG_APPEND_TIME else None
    least = timestamp - base_timestamp if append_time is None else _ANY if append_time >= timestamp else _NONE
    cursor, size = 0, len(data)
    try:
        for _ in range(count):
            if (length := data[cursor]) < 128 and not length & 1:
                length >>= 1
                start = cursor + 1
            else:
                length, start = read_varint(data, cursor)
            if (delta := data[start + 1]) < 128:
                delta = delta >> 1 ^ -(delta & 1)
                after = start + 2
            else:
                delta, after = read_varint(data, start + 1)
            cursor = start + length
            if not after < cursor <= size:
                raise RecordsError(f"a record of {length} bytes where {size - start} are left", start)
            if delta >= least:
                number, _ = read_varint(data, after)
                yield base_timestamp + delta if append_time is None else append_time, base_offset + number
    except IndexError:
        raise RecordsError(f"{count} records do not fit in {size} bytes", 0) from None
