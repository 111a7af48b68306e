"""The second pass of compaction: decides, batch by batch, which records are kept.

Most are decided by their offsets alone: where nothing stays, or everything, no record is looked at.
"""

from __future__ import annotations

from kafkad.cleaner import old_formats
from kafkad.cleaner.cutting import cut, emptied, judge
from kafkad.cleaner.keymap import DROP, KEEP, TOMBSTONE, UNKNOWN_TOMBSTONE, KeyMap
from kafkad.cleaner.transactions import Transactions
from kafkad.config import LONG_MAX
from kafkad.log.batches import header_at
from kafkad.log.bodies import Body
from kafkad.log.compaction import CompactionJob
from kafkad.wire.control import read_control
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_HEADER,
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LENGTH,
    MAGIC,
    PREFIX_SIZE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL,
    Header,
    crc_matches,
    iter_records,
    records_body,
)

_WINDOW = 4 << 20
_DROP, _TOMBSTONE = bytes((DROP,)), bytes((TOMBSTONE,))

Kept = tuple[Header, bytes | bytearray]
"""A batch and its header."""


def body_of(data: bytes, at: int, header: Header) -> Body:
    if header[ATTRIBUTES] & CODEC_MASK:
        records = records_body(memoryview(data), at, header)
        return Body(records, 0, len(records))
    return Body(data, at + HEADER_SIZE, at + PREFIX_SIZE + header[LENGTH])


def check_crc(data: bytes, at: int, header: Header) -> None:
    """`Source` says where in the file the batch is; where in `data` would only confuse."""
    if not crc_matches(memoryview(data), at, header):
        raise ValueError("the batch fails its CRC")


def is_spent(data: bytes, at: int, header: Header, transactions: Transactions) -> bool:
    """True if the marker in a control batch has become needless; of kinds that end no transaction, none ever does."""
    if not header[RECORD_COUNT]:
        return transactions.is_spent(header, None)
    marker = read_control(next(iter_records(memoryview(data), at, header)))
    return marker is not None and transactions.is_spent(header, marker)


class Sieve:
    """Decides which records are kept. It must be given every batch of the log in order, from its start."""

    def __init__(self, job: CompactionJob, keys: KeyMap, transactions: Transactions) -> None:
        self.records_kept = 0
        self.old_tombstones_stay = True
        """Those of formats v0 and v1: to be set for each segment."""
        self._job = job
        self._keys = keys
        self._transactions = transactions
        self._known = bytearray()
        self._known_from = keys.first
        horizon = job.now_ms + job.delete_retention_ms
        self._horizon = horizon if horizon <= LONG_MAX else None
        """The horizon of tombstones and needless markers found for the first time; None when they stay for ever."""

    def sift(self, data: bytes, at: int, header: Header) -> Kept | None:
        """The part of the batch at data[at] that is kept. ValueError when it is damaged."""
        if header[MAGIC] < 2:
            return self._sift_old(data, at, header)
        attributes = header[ATTRIBUTES]
        horizon = header[BASE_TIMESTAMP] if attributes & DELETE_HORIZON else None
        passed = horizon is not None and horizon <= self._job.now_ms
        spent = False
        if attributes & CONTROL:
            check_crc(data, at, header)
            spent = is_spent(data, at, header, self._transactions)
            verdicts = bytearray((DROP if spent and passed else KEEP,)) * header[RECORD_COUNT]
        elif attributes & TRANSACTIONAL and self._transactions.is_aborted(header):
            verdicts = bytearray()
        else:
            verdicts = self._verdicts(data, at, header)
            if passed:
                verdicts = verdicts.replace(_TOMBSTONE, _DROP)
        kept = len(verdicts) - verdicts.count(DROP)
        if kept:
            self.records_kept += kept
            check_crc(data, at, header)
            mark = horizon is None and (spent or TOMBSTONE in verdicts or UNKNOWN_TOMBSTONE in verdicts)
            until = self._horizon if mark else None
            if kept == header[RECORD_COUNT] and until is None:
                return header, data[at : at + PREFIX_SIZE + header[LENGTH]]
            return _with_header(cut(body_of(data, at, header), header, verdicts, until))
        if self._is_last_of_round(header) or self._is_last_of_producer(header):
            check_crc(data, at, header)
            return _with_header(emptied(header))
        return None

    def _sift_old(self, data: bytes, at: int, header: Header) -> Kept | None:
        check_crc(data, at, header)
        kept, message = old_formats.sift(data, at, header, self._keys, self.old_tombstones_stay)
        self.records_kept += kept
        return None if message is None else (header_at(message, 0, len(message)), message)

    def _verdicts(self, data: bytes, at: int, header: Header) -> bytearray:
        first = header[BASE_OFFSET]
        count = header[LAST_OFFSET_DELTA] + 1
        keys = self._keys
        if first < keys.first or first + count - 1 > keys.latest:
            check_crc(data, at, header)
            return judge(body_of(data, at, header), header, keys)
        start = first - self._known_from
        if start + count > len(self._known):
            self._known = bytearray()
            self._known = keys.verdicts(first, max(count, min(_WINDOW, keys.latest + 1 - first)))
            self._known_from, start = first, 0
        return self._known[start : start + count]

    def _is_last_of_round(self, header: Header) -> bool:
        """True if it ends at the first offset that must not be cleaned: without it, readers would wait at a gap that
        ends where nothing was written yet."""
        return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1 == self._job.upto

    def _is_last_of_producer(self, header: Header) -> bool:
        """True for the last batch of a producer still remembered: its header stays, for the sequence or the epoch."""
        last = self._job.last_of_producer.get(header[PRODUCER_ID]) if header[PRODUCER_ID] >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] == last.offset
        return bool(header[ATTRIBUTES] & CONTROL) and header[PRODUCER_EPOCH] == last.epoch


def _with_header(batch: bytearray) -> Kept:
    return BATCH_HEADER.unpack_from(batch), batch
