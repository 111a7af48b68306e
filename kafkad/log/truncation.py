"""Cuts a log back to an offset: another replica's history goes on from there."""

from __future__ import annotations

from kafkad.log import recovery
from kafkad.log.batches import BadBatch
from kafkad.log.files import disk_errors, final_disk_errors
from kafkad.log.log import Log
from kafkad.log.producers import ProducerStates
from kafkad.log.segment import Segment
from kafkad.log.transactions import index_of


def truncate_to(log: Log, offset: int) -> None:
    """Cut off the batch that holds `offset` and everything after it.

    An epoch without a record goes in any case: a leader that was deposed before it could append anything noted one,
    and would be told for ever that its history ends in an epoch which the next leader does not know.
    """
    if offset >= log.end_offset:
        log.forget_unused_epochs()
        return
    if offset < log.segments.first_base:
        log.truncate_fully_at(offset)
        return
    with disk_errors(log.directory, "truncating"):
        log.seal()
        segment, *after = log.segments.starting_at(offset)
        try:
            position, end = segment.place_of_cut(offset)
            segment.open_for_cut()
        except BadBatch as error:
            raise log.unreadable(error, segment) from None
        if end > log.start_offset:
            left = log.segments[: len(log.segments) - len(after)]
            producers = None if log.producers.is_empty else _producers_as_of(log, end, left)
            transactions = index_of(log, segment) if segment.has_transactions else None
    if end <= log.start_offset:
        log.truncate_fully_at(end)  # only records that had been deleted are left
        return
    with final_disk_errors(log.directory, "truncating"):
        log.doom(reversed(after))  # a crash leaves a log without gaps
        segment.cut(position, end)
        if transactions is not None:
            transactions.truncate(end)
            segment.has_transactions = bool(transactions.entries)
        log.was_cut(left, log.start_offset, end)
        if producers is None:
            log.producers.stay_empty(log.start_offset, end)
        else:
            log.producers.become(producers)


def _producers_as_of(log: Log, end: int, segments: list[Segment]) -> ProducerStates:
    producers = ProducerStates(log.producers.snapshots, expiration_ms=log.producers.expiration_ms)
    recovery.reload_producers(producers, segments, log.start_offset, end, log.clock.now_ms())
    return producers
