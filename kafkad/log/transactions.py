"""The aborted transactions of a log, whose records a `read_committed` reader leaves out."""

from __future__ import annotations

from kafkad.log import recovery
from kafkad.log.batches import BadBatch, read_header
from kafkad.log.files import Slice, disk_errors
from kafkad.log.log import Log
from kafkad.log.segment import Segment
from kafkad.log.txnindex import AbortedTransaction, BrokenTransactionIndexError, TransactionIndex
from kafkad.wire.records import BASE_OFFSET


def aborted_transactions(log: Log, start: int, upto: int, read: Slice | None = None) -> list[tuple[int, int]]:
    """HOT. (producer id, first offset) of those with records in [start, upto), and within what was `read` from `start`
    on."""
    aborted: list[AbortedTransaction] = []
    for segment in log.segments.starting_at(start):
        if segment.has_transactions:
            if read is not None:
                with disk_errors(log.directory, "looking for the end of a read"):
                    upto, read = min(upto, _offset_behind(log, read, start)), None
            some, complete = index_of(log, segment).collect(start, upto)
            aborted += some
            if complete:
                break
    return [(entry.producer_id, entry.first_offset) for entry in aborted]


def _offset_behind(log: Log, read: Slice, start: int) -> int:
    """The offset at which the batch behind these begins; a later one, if that cannot be told."""
    end = read.position + read.length
    holder = next((each for each in log.segments.starting_at(start) if each.file is read.file), None)
    if holder is None or end >= holder.size:
        return log.end_offset
    try:
        return read_header(holder.files.pread, read.file.fd, end, holder.size)[BASE_OFFSET]
    except BadBatch:
        return log.end_offset


def index_of(log: Log, segment: Segment) -> TransactionIndex:
    """A segment's, made anew from the log where its file makes no sense."""
    index = segment.transactions
    with disk_errors(log.directory, "reading a transaction index"):
        try:
            _ = index.entries
        except BrokenTransactionIndexError:
            until = log.segments[: log.segments.number_of(segment.base) + 1]
            try:
                recovery.rebuild_transactions(log.producers.snapshots, until, log.clock.now_ms())
            except BadBatch as error:
                raise log.unreadable(error, segment) from None
    return index
