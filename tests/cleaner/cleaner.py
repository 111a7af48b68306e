"""A cleaner as simple as can be, for tests of what is done with its product: the last record of each key stays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from kafkad.log.compaction import CLEANED, Replacement
from kafkad.log.files import Files
from kafkad.log.log import Log
from kafkad.log.segment import SUFFIXES, Segment
from kafkad.turns import at_once
from kafkad.wire.records import BatchHeader, Record, build_batch, iter_batches, iter_records, read_header

Batch = tuple[BatchHeader, list[Record]]


def clean(log: Log, segments: Sequence[Segment] | None = None) -> Replacement:
    """One segment out of several (all but the active one), beside them, with the suffix `.cleaned`."""
    segments = log.segments[:-1] if segments is None else segments
    latest = _latest(log.segments[:-1])
    keep = {last.offset for last in at_once(log.producers.last_of_each()).values()}
    found = []
    for header, records in batches_of(segments):
        kept = [record for record in records if header.is_control or latest[record.key] == record.offset]
        if kept or header.last_offset in keep:
            found.append((header, kept))
    return write_cleaned(log, [segment.base for segment in segments], found)


def write_cleaned(log: Log, old: Sequence[int], batches: Iterable[Batch]) -> Replacement:
    files = Files()
    scratch = os.path.join(log.directory, "scratch")
    files.mkdir(scratch)
    segment = Segment(files, scratch, old[0], 0, log.config.index_interval_bytes, 0)
    segment.create_files()
    segment.start_indexes()
    for header, records in batches:
        data = rebuilt(header, records)
        files.write_all(segment.file.fd, bytes(data), segment.size)
        segment.note(read_header(memoryview(data), 0))
    segment.complete_indexes()
    aborted = [entry for old_one in log.segments if old_one.base in old for entry in old_one.transactions.entries]
    for entry in aborted:
        segment.transactions.append(entry)
    for suffix in SUFFIXES:
        path = segment.path(suffix)
        if os.path.exists(path):
            os.rename(path, os.path.join(log.directory, os.path.basename(path) + CLEANED))
    files.rmdir(scratch)
    return Replacement(old[0], segment.size, tuple(old))


def rebuilt(header: BatchHeader, records: Sequence[Record]) -> bytearray:
    return build_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        codec=header.codec,
        transactional=header.is_transactional,
        control=header.is_control,
    )


def batches_of(segments: Iterable[Segment]) -> Iterable[Batch]:
    for segment in segments:
        data = os.pread(segment.file.fd, segment.size, 0)
        view = memoryview(data)
        for at, header in iter_batches(view):
            yield header, list(iter_records(view, at, header))


def _latest(segments: Iterable[Segment]) -> dict[bytes | None, int]:
    return {
        record.key: record.offset
        for header, records in batches_of(segments)
        if not header.is_control
        for record in records
    }
