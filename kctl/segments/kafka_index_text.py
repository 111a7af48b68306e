"""The text of Kafka 3.9's own dump tool of the files beside a segment, and what it has to say against them."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kafkad.log.batches import BadBatch, walk
from kafkad.log.files import LogFile
from kafkad.log.index import OFFSET_ENTRY_SIZE, TIME_ENTRY_SIZE
from kafkad.log.names import base_of
from kafkad.wire.records import BASE_OFFSET, LAST_OFFSET_DELTA, MAX_TIMESTAMP, Header
from kctl.segments.files import FILES, Segment
from kctl.segments.kafka_text import optional
from kctl.segments.lookup import search

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class IndexText(NamedTuple):
    """The lines of one file, and what its tool says at its end of entries that do not fit the log."""

    lines: list[str]
    complaints: list[str]


def text_of(path: str, kind: str, rows: Sequence[Mapping[str, Any]], *, verify_only: bool, sanity: bool) -> IndexText:
    """The text of a .index, .timeindex, .txnindex or .snapshot; its entries are in `rows`."""
    head = [f"Dumping {path}"]
    if kind not in ("index", "timeindex"):
        return IndexText([*head, *_row_lines(kind, rows)], [])
    directory, name = os.path.split(path)
    segment = Segment(os.path.join(directory, name.replace(f".{kind}", ".log", 1)), base_of(name) or 0)
    if kind == "index" and not _whole(path, OFFSET_ENTRY_SIZE):
        return IndexText([*head, f"{path} is empty."], [])
    if sanity:
        problem = sanity_problem(segment, path)
        if problem:
            return IndexText(head, [f"{path}: {problem}"])
        return IndexText([*head, f"{path} passed sanity check."], [])
    text = (offset_index_text if kind == "index" else time_index_text)(segment, path, verify_only=verify_only)
    return IndexText(head + text.lines, text.complaints)


def offset_index_text(segment: Segment, path: str, *, verify_only: bool) -> IndexText:
    """Each entry, and whether the batch it leads to ends with its offset."""
    entries = [
        (segment.base + offset, position)
        for offset, position in _OFFSET_ENTRY.iter_unpack(_whole(path, OFFSET_ENTRY_SIZE))
    ]
    entries = _until_zeros(entries, [offset for offset, _ in entries], segment.base)
    log = _log(segment)
    mismatches = []
    for offset, position in entries:
        header = next(_headers(log, position), None)
        last = -1 if header is None else _last_offset(header)
        if last != offset:
            mismatches.append(f"  Index offset: {offset}, log offset: {last}")
    lines = [] if verify_only else [f"offset: {offset} position: {position}" for offset, position in entries]
    return IndexText(lines, _complaint(f"Mismatches in :{os.path.abspath(path)}", mismatches[::-1]))


def time_index_text(segment: Segment, path: str, *, verify_only: bool) -> IndexText:
    """Each entry, and whether the batch that ends with its offset has its time as the latest."""
    entries = [(time, segment.base + offset) for time, offset in _TIME_ENTRY.iter_unpack(_whole(path, TIME_ENTRY_SIZE))]
    entries = _until_zeros(entries, [offset for _, offset in entries], segment.base)
    index = list(_OFFSET_ENTRY.iter_unpack(_whole(segment.sibling(".index"), OFFSET_ENTRY_SIZE)))
    index = _until_zeros(index, [offset for offset, _ in index], 0)
    indexed = [offset for offset, _ in index]
    log = _log(segment)
    mismatches, disordered, missing = [], [], []
    previous = -1
    for time, offset in entries:
        found = search(indexed, offset - segment.base, OFFSET_ENTRY_SIZE).found
        start = 0 if found is None else index[found][1]
        header = next((header for header in _headers(log, start) if _last_offset(header) >= offset), None)
        if header is None or _last_offset(header) != offset:
            last = -1 if header is None else _last_offset(header)
            missing.append(f"Indexed offset: {offset}, found log offset: {last}")
        else:
            if header[MAX_TIMESTAMP] != time:
                mismatches.append(f"  Index timestamp: {time}, log timestamp: {header[MAX_TIMESTAMP]}")
            if previous >= time:
                disordered.append(f"  Index timestamp: {time}, Previously indexed timestamp: {previous}")
        previous = time
    where = os.path.abspath(path)
    complaints = [
        *_complaint(f"Found timestamp mismatch in :{where}", mismatches[::-1]),
        *_complaint(f"Found out of order timestamp in :{where}", disordered[::-1]),
        *_complaint("The following indexed offsets are not found in the log.", missing[::-1]),
    ]
    lines = [] if verify_only else [f"timestamp: {time} offset: {offset}" for time, offset in entries]
    return IndexText(lines, complaints)


def sanity_problem(segment: Segment, path: str) -> str | None:
    """The problem that a starting broker would see in the index without looking at the log; None if there is none."""
    kind, entry_size = ("time index", TIME_ENTRY_SIZE) if ".timeindex" in path else ("index", OFFSET_ENTRY_SIZE)
    data = FILES.read(path)
    if len(data) % entry_size:
        return f"{len(data)} bytes are no whole number of entries"
    if not data:
        return None
    last_offset = segment.base + struct.unpack(">i", data[-4:] if entry_size == TIME_ENTRY_SIZE else data[-8:-4])[0]
    if last_offset < segment.base:
        return f"the last offset of the {kind}, {last_offset}, is before that of the segment, {segment.base}"
    if entry_size == TIME_ENTRY_SIZE:
        first, last = _TIME_ENTRY.unpack_from(data)[0], _TIME_ENTRY.unpack_from(data, len(data) - entry_size)[0]
        if last < first:
            return f"the last timestamp, {last}, is before the first, {first}"
    return None


def _row_lines(kind: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a .txnindex or .snapshot, which the tool compares with nothing."""
    return (_transaction_line(row) if kind == "txnindex" else _snapshot_line(row) for row in rows)


def _transaction_line(row: Mapping[str, Any]) -> str:
    return (
        f"version: 0 producerId: {row['producer_id']} firstOffset: {row['first_offset']} "
        f"lastOffset: {row['last_offset']} lastStableOffset: {row['last_stable_offset']}"
    )


def _snapshot_line(row: Mapping[str, Any]) -> str:
    text = (
        f"producerId: {row['producer_id']} producerEpoch: {row['producer_epoch']} "
        f"coordinatorEpoch: {row['coordinator_epoch']} "
        f"currentTxnFirstOffset: {optional(row['transaction_first_offset'])} lastTimestamp: {row['timestamp_ms']} "
    )
    if row["last_sequence"] < 0:
        return text
    first = (row["last_sequence"] - row["offset_delta"]) & 0x7FFFFFFF
    return text + (
        f"firstSequence: {first} lastSequence: {row['last_sequence']} lastOffset: {row['last_offset']} "
        f"offsetDelta: {row['offset_delta']} timestamp: {row['timestamp_ms']}"
    )


def _whole(path: str, entry_size: int) -> bytes:
    data = FILES.read(path)
    return data[: len(data) - len(data) % entry_size]


def _until_zeros(entries: list[tuple[int, int]], offsets: Sequence[int], base: int) -> list[tuple[int, int]]:
    """The tool takes every entry but the first that leads to the base offset for the zeros of a preallocated file."""
    end = next((number for number, offset in enumerate(offsets) if number and offset == base), len(entries))
    return entries[:end]


def _log(segment: Segment) -> LogFile:
    return FILES.open_log_file(segment.path, os.O_RDONLY)


def _headers(log: LogFile, position: int) -> Iterator[Header]:
    """The headers of the batches from `position` on, up to the first that is none."""
    with suppress(BadBatch):
        for _, header in walk(FILES.pread, log.fd, max(position, 0), log.size):
            yield header


def _last_offset(header: Header) -> int:
    return header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]


def _complaint(title: str, lines: list[str]) -> list[str]:
    return [title, *lines] if lines else []
