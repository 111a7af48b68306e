"""Selection of segments, batches and records of a log, read one after the other, around whatever is damaged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from kafkad.log.files import LogFile
from kafkad.wire.records import BatchHeader, Record, RecordsError, iter_records
from kctl.segments.files import FILES, Batch, Damage, Segment, place_text, position_of, read_batches, span_text
from kctl.segments.ranges import EVERYTHING, Range
from kctl.texts.output import counted

Accept = Callable[[Record], bool]


class Selection(NamedTuple):
    offsets: Range = EVERYTHING
    times: Range = EVERYTHING
    key: Accept | None = None
    """A test of a record's key."""
    producer: int | None = None
    max_bytes: int | None = None

    @property
    def is_everything(self) -> bool:
        """True if every batch is wanted, as far as the bytes go."""
        return self == Selection(max_bytes=self.max_bytes)

    def wants(self, header: BatchHeader) -> bool:
        """True if the batch may hold such records. A message that wraps others tells only its last offset."""
        wrapper = header.magic < 2 and header.codec
        if header.last_offset < self.offsets.start or (header.base_offset >= self.offsets.end and not wrapper):
            return False
        if self.producer is not None and header.producer_id != self.producer:
            return False
        return header.max_timestamp >= self.times.start or self.times is EVERYTHING

    def accept(self, header: BatchHeader) -> Accept | None:
        """The test that a batch's records have to pass; None when all of them do."""
        if self.key is not None or self.times is not EVERYTHING:
            return self._accepts
        inside = header.base_offset >= self.offsets.start and header.last_offset < self.offsets.end
        return None if self.offsets is EVERYTHING or (inside and header.magic == 2) else self._accepts

    def _accepts(self, record: Record) -> bool:
        if record.offset not in self.offsets or record.timestamp not in self.times:
            return False
        return self.key is None or self.key(record)


class Stretch(NamedTuple):
    """A part of a segment's file; without `end` up to what its end will be."""

    file: LogFile
    position: int
    end: int | None


class Reading:
    """Reads what is selected and counts it; `damaged` is called with each segment and its damage."""

    def __init__(self, selection: Selection, damaged: Callable[[Segment, str], None]) -> None:
        self.selection = selection
        self._tell = damaged
        self.segments = self.records = self.damages = 0
        self.torn = 0
        """Bytes at the end of the last segment read that form no batch."""

    def batches(self, segments: Sequence[Segment]) -> Iterator[tuple[Segment, Batch]]:
        for segment in self.chosen(segments):
            for batch in self.segment(segment):
                yield segment, batch

    def chosen(self, segments: Sequence[Segment]) -> Iterator[Segment]:
        """Those segments that the selection may touch."""
        wanted = self.selection.offsets
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            same = following is not None and os.path.dirname(following.path) == os.path.dirname(segment.path)
            if segment.base < wanted.end and not (same and following and following.base <= wanted.start):
                self.segments += 1
                yield segment

    def segment(self, segment: Segment) -> Iterator[Batch]:
        return self.stretch(segment, self.stretch_of(segment))

    def stretch_of(self, segment: Segment) -> Stretch:
        """The stretch of a segment that may hold wanted records."""
        wanted = self.selection
        file = FILES.open_log_file(segment.path, os.O_RDONLY)
        time_ms = None if wanted.times is EVERYTHING else wanted.times.start
        position = position_of(segment, file, wanted.offsets.start, time_ms)
        end = None if wanted.max_bytes is None else min(position + wanted.max_bytes, file.size)
        return Stretch(file, position, end)

    def stretch(self, segment: Segment, stretch: Stretch) -> Iterator[Batch]:
        wanted, everything = self.selection, self.selection.is_everything
        file, _, end = stretch
        self.torn = 0
        for step in read_batches(*stretch):
            if isinstance(step, Damage):
                if end is None or step.end < end:  # where the caller cuts, a batch is cut too
                    self._damaged(segment, span_text(step))
                    self.torn = step.size if step.end == file.size else 0
                continue
            header = step.header
            if not step.crc_ok:
                self._damaged(segment, f"{place_text(step)} fails its checksum")
            if everything or wanted.wants(header):
                yield step
            elif header.base_offset >= wanted.offsets.end and header.magic == 2:
                return

    def select(self, segment: Segment, batch: Batch) -> Iterator[Record]:
        """The records of a batch that are wanted; of one that makes no sense, those before."""
        header = batch.header
        accept = self.selection.accept(header)
        try:
            records: Iterable[Record] = iter_records(batch.view, batch.at, header)
            for record in records if accept is None else filter(accept, records):
                self.records += 1
                yield record
        except RecordsError as error:
            self.broken(segment, batch, error)

    def summary(self) -> str:
        """One line about what was read."""
        damage = f"{counted(self.damages, 'place')} damaged" if self.damages else "nothing damaged"
        return f"{counted(self.records, 'record')} in {counted(self.segments, 'segment')} read, {damage}"

    def _damaged(self, segment: Segment, text: str) -> None:
        self.damages += 1
        self._tell(segment, text)

    def broken(self, segment: Segment, batch: Batch, error: RecordsError) -> None:
        if batch.crc_ok:  # else it has been told
            self._damaged(segment, f"{place_text(batch)}: {error}")
