"""Cuts a log back to an offset: another replica's history goes on from there."""

from __future__ import annotations

from typing import NamedTuple

from kafkad.log import recovery
from kafkad.log.batches import BadBatch
from kafkad.log.files import disk_errors, final_disk_errors
from kafkad.log.log import Log
from kafkad.log.producers import ProducerStates
from kafkad.log.snapshots import Snapshots
from kafkad.log.transactions import index_of
from kafkad.turns import Pieces, at_once


class Ahead(NamedTuple):
    """What was read for a cut before it is made."""

    history: int
    end: int
    producers: ProducerStates


def read_ahead(log: Log, offset: int) -> Pieces[Ahead | None]:
    """Read, in pieces, what a cut at `offset` has to know of what will be left: as of a long segment who its producers
    are. None if that is nothing, or the log has become another meanwhile; the cut reads it itself then.
    """
    if log.producers.is_empty or not max(log.segments.first_base, log.start_offset + 1) <= offset < log.end_offset:
        return None
    history = log.history
    with disk_errors(log.directory, "looking for producers"):
        segment = log.segments.starting_at(offset)[0]
        try:
            _, end = segment.place_of_cut(offset)
        except BadBatch:
            return None
        if end <= log.start_offset:
            return None
        reading = _reading_producers(log, end)
        segments = log.segments.all
        while True:
            if log.retired or log.history != history or log.segments.all is not segments:
                return None
            try:
                next(reading)
            except StopIteration as read:
                return Ahead(history, end, read.value)
            yield


def truncate_to(log: Log, offset: int, ahead: Ahead | None = None) -> None:
    """Cut off the batch that holds `offset` and everything after it. `ahead` is what was read for that.

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
            producers = None if log.producers.is_empty else _producers_as_of(log, end, ahead)
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
            broken = set(_snapshots_within(log, end)).difference(producers.snapshots.offsets)
            log.producers.become(producers)
            for offset in broken:
                log.producers.snapshots.delete(offset)
            log.producers.snapshots.keep_within(log.start_offset, end)


def _producers_as_of(log: Log, end: int, ahead: Ahead | None) -> ProducerStates:
    if ahead is not None and (ahead.history, ahead.end) == (log.history, end):
        return ahead.producers
    return at_once(_reading_producers(log, end))


def _reading_producers(log: Log, end: int) -> Pieces[ProducerStates]:
    """From its snapshots, of which broken ones are deleted on the way, and the batches after them."""
    remove = log.producers.snapshots.remove
    snapshots = Snapshots(log.directory, log.files, _snapshots_within(log, end), remove)
    producers = ProducerStates(snapshots, expiration_ms=log.producers.expiration_ms)
    segments = log.segments[: log.segments.number_of(end) + 1]
    yield from recovery.reloading_producers(producers, segments, log.start_offset, end, log.clock.now_ms())
    return producers


def _snapshots_within(log: Log, end: int) -> list[int]:
    return [offset for offset in log.producers.snapshots.offsets if log.start_offset < offset <= end]
