"""Loading a log from its directory; after an unclean stop, checking what the disk may not have kept.

The log is the truth: indexes, leader epochs and producer state are rebuilt from it. After an unclean stop every batch
from the recovery point on is checked (format, size, CRC, offsets). The first bad byte of the tail, which is the part
of the last segment from the recovery point on, is where a write broke off: the log is cut there, and empty segments
behind it, of which a power cut left the names, are dropped. A bad batch before the tail is damage, and so is a whole
one at the start of a file whose name says something else. It is kept as a hole (`Segment.holes`) that readers are
refused, and reported; nothing is cut away in the middle of a log, because what follows may be the only copy.

What the disk had not taken of a segment may also be gone without a trace, while the next segment is there. Offsets that
are missing between two segments are a hole, too, unless compaction may have removed them here; a log that was copied
from a compacted one misses them within its segments.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from kafkad.config import LogConfig
from kafkad.log import leftovers
from kafkad.log.batches import BadBatch, read_whole, walk
from kafkad.log.damage import Damage
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.files import Files, LogFile, as_far_as_there_is_room
from kafkad.log.indexed import INDEX, LOG, TIME_INDEX, Hole
from kafkad.log.names import LARGEST_BASE, base_of
from kafkad.log.producers import DEFAULT_EXPIRATION_MS, ProducerStates, read_marker
from kafkad.log.segment import SUFFIXES, Segment
from kafkad.log.snapshots import SUFFIX as SNAPSHOT
from kafkad.log.snapshots import Snapshots
from kafkad.log.txnindex import SUFFIX as TXN_INDEX
from kafkad.log.txnindex import AbortedTransaction
from kafkad.turns import Pieces, at_once
from kafkad.wire.control import ControlRecord
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LENGTH,
    PREFIX_SIZE,
    PRODUCER_ID,
    Header,
    RecordsError,
    crc_matches,
)

ReportProgress = Callable[[int, int], None]

_base = attrgetter("base")
_INDEXES = (INDEX, TIME_INDEX, TXN_INDEX)
_NO_LIMIT = 2**63 - 1
_REPORT_EVERY = 64 << 20
_BATCHES_A_PIECE = 1_000


@dataclass(slots=True, kw_only=True)
class Loaded:
    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    start_offset: int
    end_offset: int
    durable_until: int
    """Everything before it is on the disk."""
    lost_until: int = 0
    """Records below this were on the disk once, and the log ends before it."""
    new_names: bool
    """True if the names of some of its files may not be on the disk yet."""
    damage: list[Damage] = field(default_factory=list)


def load(
    directory: str,
    config: LogConfig,
    files: Files,
    now_ms: int,
    *,
    start_offset: int,
    recovery_point: int,
    high_watermark: int,
    damaged_from: int | None,
    clean: bool,
    was_compacted: bool,
    progress: ReportProgress | None,
    producer_expiration_ms: int = DEFAULT_EXPIRATION_MS,
) -> Loaded:
    """Everything a `Log` is made of. OSError when the disk fails; ValueError, before anything is touched, when no log
    can begin at `start_offset`."""
    if start_offset > LARGEST_BASE:
        raise ValueError(f"a checkpoint says that {directory} begins with offset {start_offset}, where no log can")
    names, made = _list(files, directory)
    names = leftovers.clear(files, directory, names)
    segments = _without_false_starts(_segments(files, directory, config, names, now_ms))
    if not segments:
        segment = Segment(files, directory, start_offset, 0, config.index_interval, now_ms)
        segment.create_files()
        segments.append(segment)
        made = clean = True  # there is nothing that could be damaged
    snapshots = [base for name in names if name.endswith(SNAPSHOT) and (base := base_of(name)) is not None]
    epochs = LeaderEpochs(directory, files)
    epochs_known = epochs.load()
    loaded = Loaded(
        segments=segments,
        epochs=epochs,
        producers=ProducerStates(Snapshots(directory, files, snapshots), expiration_ms=producer_expiration_ms),
        start_offset=max(start_offset, segments[0].base),
        end_offset=segments[-1].base,
        durable_until=recovery_point,
        new_names=made or not clean,
    )
    if not epochs_known:
        _find_epochs(epochs, segments)
    if not (clean and damaged_from is None and _load_clean(loaded, now_ms)):
        checked_from = recovery_point if damaged_from is None else min(recovery_point, damaged_from)
        was_compacted |= config.compacted
        _recover(loaded, checked_from, now_ms, progress, high_watermark=high_watermark, compacted=was_compacted)
    if loaded.end_offset < recovery_point:
        loaded.lost_until = recovery_point
    _fit_together(loaded, config, now_ms)
    return loaded


def _list(files: Files, directory: str) -> tuple[list[str], bool]:
    try:
        return files.list_files(directory), False
    except FileNotFoundError:
        files.mkdir(directory)
        files.sync_directory(os.path.dirname(directory))
        return [], True


def _segments(files: Files, directory: str, config: LogConfig, names: list[str], now_ms: int) -> list[Segment]:
    present = set(names)
    segments = []
    for name in names:
        if name.endswith(LOG):
            base = base_of(name)
            if base is None:
                continue
            stem = name.removesuffix(LOG)
            size = files.size(f"{directory}/{name}")
            segment = Segment(files, directory, base, size, config.index_interval, now_ms)
            segment.has_transactions = stem + TXN_INDEX in present
            if stem + INDEX not in present or stem + TIME_INDEX not in present:
                segment.rebuild_indexes()
            segments.append(segment)
        elif name.endswith(_INDEXES) and name.rpartition(".")[0] + LOG not in present and base_of(name) is not None:
            files.unlink(f"{directory}/{name}")
    segments.sort(key=_base)
    return segments


def _without_false_starts(segments: list[Segment]) -> list[Segment]:
    """Drops empty segments that begin within the one before them.

    A roll that a full disk refused half way used to leave such a file, and the log went on without it.
    """
    kept: list[Segment] = []
    for segment in segments:
        if not segment.size and kept and _end_as_far_as_readable(kept[-1]) > segment.base:
            _unlink(segment)
        else:
            kept.append(segment)
    return kept


def _end_as_far_as_readable(segment: Segment) -> int:
    """The offset after the last batch before any damage."""
    end = segment.base
    with contextlib.suppress(BadBatch):
        for _, header in walk(segment.files.pread, segment.file.fd, segment.position_near_end(), segment.size):
            end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    return end


def _load_clean(loaded: Loaded, now_ms: int) -> bool:
    """Look at the end only. False when the log does not look as a clean stop leaves it."""
    last = loaded.segments[-1]
    try:
        end = last.read_end_offset()
    except BadBatch:
        return False
    if end < last.base or (loaded.durable_until < end and any(segment.size for segment in loaded.segments)):
        return False
    loaded.end_offset = loaded.durable_until = end
    producers = loaded.producers
    if producers.snapshots.offsets:
        reload_producers(producers, loaded.segments, loaded.start_offset, end, now_ms)
    else:
        producers.reload(loaded.start_offset, end, now_ms)
        if end > loaded.start_offset:
            producers.forget_past()
    return True


def _fit_together(loaded: Loaded, config: LogConfig, now_ms: int) -> None:
    """Bring the small files in line with what the log turned out to hold."""
    segments = loaded.segments
    if loaded.start_offset > loaded.end_offset:
        # The records below were deleted, and the log that should follow them was lost: it goes on after them.
        last = segments[-1]
        segment = Segment(last.files, last.directory, loaded.start_offset, 0, config.index_interval, now_ms)
        segment.create_files()
        segments.append(segment)
        loaded.end_offset = loaded.durable_until = loaded.start_offset
    loaded.epochs.truncate_from_end(loaded.end_offset + 1)  # a leader's latest epoch may have no batch yet
    loaded.epochs.truncate_from_start(loaded.start_offset)
    loaded.durable_until = min(loaded.durable_until, loaded.end_offset)


def _recover(
    loaded: Loaded,
    checked_from: int,
    now_ms: int,
    progress: ReportProgress | None,
    *,
    high_watermark: int,
    compacted: bool,
) -> None:
    segments = loaded.segments
    number = max(sum(segment.base <= checked_from for segment in segments) - 1, 0)
    checked = segments[number:]
    first = max(checked[0].base, loaded.start_offset)
    snapshots = loaded.producers.snapshots
    snapshots.doubt(first)
    reload_producers(loaded.producers, segments[:number], loaded.start_offset, first, now_ms)
    check = _Check(loaded, checked_from, progress, checked, high_watermark=high_watermark, compacted=compacted)
    until = max((place for place, segment in enumerate(checked, start=1) if segment.size), default=1)
    for segment, following in zip(checked[:until], [*checked[1:until], None], strict=True):
        if segment.base > first:
            with as_far_as_there_is_room():
                loaded.producers.take_snapshot(segment.base)
        check.segment(segment, following)
    for empty in checked[until:]:
        if empty.base == check.end or (empty.base > check.end and compacted and not check.was_cut):
            check.segment(empty, None)
        else:
            _drop_empty(loaded, empty)
    loaded.end_offset = check.end
    snapshots.keep_within(loaded.start_offset, check.end)
    snapshots.delete_doubtful()


def _drop_empty(loaded: Loaded, segment: Segment) -> None:
    """A power cut left its name, and less of the log before it than the name says."""
    loaded.segments.remove(segment)
    _unlink(segment)


def _unlink(segment: Segment) -> None:
    for suffix in SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            segment.files.unlink(segment.path(suffix))


class _Check:
    """One pass over the segments from the recovery point on, or from the first one that had been damaged before."""

    def __init__(
        self,
        loaded: Loaded,
        checked_from: int,
        progress: ReportProgress | None,
        segments: Sequence[Segment],
        *,
        high_watermark: int,
        compacted: bool,
    ) -> None:
        self.loaded = loaded
        self._checked_from = checked_from
        self._high_watermark = high_watermark
        self._compacted = compacted
        self.end = segments[0].base
        self._aborted: list[AbortedTransaction] = []
        self.was_cut = False
        """The end of the log was not as it was written."""
        self._progress = progress
        self._to_do = sum(segment.size for segment in segments)
        self._done = 0
        self._report_at = _REPORT_EVERY

    def _report(self, position: int) -> None:
        self._report_at = position + _REPORT_EVERY
        if self._progress:
            self._progress(self._done + position, self._to_do)

    def segment(self, segment: Segment, following: Segment | None) -> None:
        """Check and index one segment; cut it (the last one) or note the damage (any other)."""
        self._begin_at(segment.base)
        limit = following.base if following else _NO_LIMIT
        size = segment.size
        self._aborted = []
        segment.start_indexes()
        position = 0
        while position < size:
            try:
                self._sound(segment, position, size, limit)
                position = size
            except BadBatch as bad:
                if self._is_tail(segment, following, bad):
                    segment.files.truncate(segment.file.fd, bad.position)
                    self.was_cut = following is None
                    cut = (size - bad.position, self.end, self.end, bad.reason, True)
                    self.loaded.damage.append(Damage(segment.path(LOG), bad.position, *cut))
                    size = position = bad.position
                else:
                    position = self._note_hole(segment, bad, size, limit)
        if following is not None and not self._compacted and self._lacks(limit):
            self._note_loss(segment, size, limit)
        segment.size = size
        segment.transactions.replace(self._aborted)
        segment.has_transactions = bool(self._aborted)
        segment.seal()
        self._report(size)
        self._done += size
        self._report_at = _REPORT_EVERY

    def _is_tail(self, segment: Segment, following: Segment | None, bad: BadBatch) -> bool:
        """True if nothing is missing from `bad` on that the disk had ever promised to keep.

        What stands in a segment behind all offsets it may hold was cut away once, before the next segment began, and is
        back because the disk had not taken the cut.
        """
        if self.end < self.loaded.durable_until:
            return False
        return self.end == following.base if following else not _is_misnamed(segment, bad)

    def _begin_at(self, offset: int) -> None:
        """Offsets missing before this one were compacted away, and may have named producers."""
        if offset > self.end:
            self.end = offset
            self.loaded.producers.forget_past()

    def _sound(self, segment: Segment, position: int, size: int, limit: int) -> None:
        """Take in the batches from `position` on; BadBatch at the first that is none."""
        loaded = self.loaded
        segment.size = position
        for view, at, header in read_whole(segment.files, segment.file.fd, position, size):
            problem = self._problem(segment, view, at, header, limit)
            if problem:
                raise BadBatch(segment.size, problem)
            epoch = header[LEADER_EPOCH]
            if epoch >= 0 and (loaded.epochs.latest is None or epoch > loaded.epochs.latest):
                loaded.epochs.assign(epoch, header[BASE_OFFSET])
            self._begin_at(header[BASE_OFFSET])
            if header[PRODUCER_ID] >= 0:
                marker = _marker(view, at, header, segment.size)
                aborted = loaded.producers.update(header, header[BASE_OFFSET], marker)
                if aborted is not None:
                    self._aborted.append(aborted)
                if marker is not None:
                    loaded.producers.committed_until(self._high_watermark)
            segment.note(header)
            self.end = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            if segment.size >= self._report_at:
                self._report(segment.size)

    def _problem(self, segment: Segment, view: memoryview, at: int, header: Header, limit: int) -> str | None:
        if not segment.may_hold(header):
            return f"a batch with offset {header[BASE_OFFSET]} in a segment that begins with {segment.base}"
        if header[BASE_OFFSET] < self.end:
            return f"a batch with offset {header[BASE_OFFSET]} where {self.end} is next"
        last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        if last >= limit:
            return f"a batch with offset {last}, but {limit} begins the next segment"
        if not crc_matches(view, at, header):
            return "a batch that fails its checksum"
        return None

    def _note_hole(self, segment: Segment, bad: BadBatch, size: int, limit: int) -> int:
        """The damage ends where a batch follows that fits, in the worst case with the segment; returns where."""
        end, following = _next_sound(segment, bad.position, size, self.end, limit)
        is_lost = False
        if following is None:
            may_be_lost = limit == _NO_LIMIT or self.end >= self._checked_from
            is_lost = may_be_lost and not _is_one_batch(segment, bad.position, size)
            following = limit if limit != _NO_LIMIT else max(self.end, self.loaded.durable_until)
        segment.holes = (*segment.holes, Hole(bad.position, end, self.end, following, is_lost))
        kept = (end - bad.position, self.end, following, bad.reason, False)
        self.loaded.damage.append(Damage(segment.path(LOG), bad.position, *kept))
        self.end = following
        self.loaded.producers.forget_past()
        return end

    def _lacks(self, limit: int) -> bool:
        """True if records that the disk may not have had are missing before `limit`."""
        loaded = self.loaded
        return self._checked_from <= self.end < limit and loaded.start_offset < limit

    def _note_loss(self, segment: Segment, size: int, limit: int) -> None:
        """The end of the segment is gone without a trace."""
        segment.holes = (*segment.holes, Hole(size, size, self.end, limit, lost=True))
        reason = f"the file ends with offset {self.end}, and the next segment begins with {limit}"
        self.loaded.damage.append(Damage(segment.path(LOG), size, 0, self.end, limit, reason, False))
        self.end = limit
        self.loaded.producers.forget_past()


def _is_misnamed(segment: Segment, bad: BadBatch) -> bool:
    """True if the very first batch passes its checksum, and only its offset is not one of this segment.

    No write that broke off leaves that behind, and all of the file would be cut away.
    """
    if bad.position:
        return False
    try:
        view, at, header = next(read_whole(segment.files, segment.file.fd, 0, segment.file.size))
    except BadBatch:
        return False
    return crc_matches(view, at, header)


def _is_one_batch(segment: Segment, position: int, size: int) -> bool:
    """True if the bytes from `position` on are as many as one batch says it has: it can be written over."""
    try:
        [(_, header)] = walk(segment.files.pread, segment.file.fd, position, size)
    except (BadBatch, ValueError):
        return False
    return header[LENGTH] + PREFIX_SIZE == size - position


def _next_sound(segment: Segment, position: int, size: int, end_offset: int, limit: int) -> tuple[int, int | None]:
    """The position and offset of the batch after the bad one, if the bad one's length is plausible."""
    try:
        headers = walk(segment.files.pread, segment.file.fd, position, size)
        _, bad = next(headers)
        after, header = next(headers)
    except (BadBatch, StopIteration):
        return size, None
    if not end_offset < header[BASE_OFFSET] <= header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] < limit:
        return size, None
    assert after == position + bad[LENGTH] + PREFIX_SIZE
    return after, header[BASE_OFFSET]


def reload_producers(
    producers: ProducerStates, segments: Sequence[Segment], start_offset: int, end_offset: int, now_ms: int
) -> None:
    """The producers as of `end_offset`: the newest snapshot, and the headers of the batches after it."""
    at_once(reloading_producers(producers, segments, start_offset, end_offset, now_ms))


def reloading_producers(
    producers: ProducerStates, segments: Sequence[Segment], start_offset: int, end_offset: int, now_ms: int
) -> Pieces[None]:
    offset = yield from producers.reloading(start_offset, end_offset, now_ms)
    for segment in segments:
        if segment.size and offset < end_offset:
            offset = yield from _feed(producers, segment, offset, end_offset)
    if offset < end_offset:
        producers.forget_past()


def _feed(producers: ProducerStates, segment: Segment, offset: int, end_offset: int) -> Pieces[int]:
    try:
        start = segment.locate(offset)
        file = segment.file  # which may be deleted, or closed, between two pieces
        for count, (position, header) in enumerate(walk(segment.files.pread, file.fd, start, segment.size), start=1):
            if header[BASE_OFFSET] >= end_offset:
                break
            if header[BASE_OFFSET] > offset:
                producers.forget_past()  # what was here was compacted away, and may have named producers
            if header[PRODUCER_ID] >= 0 and header[BASE_OFFSET] >= offset:
                producers.update(header, header[BASE_OFFSET], _stored_marker(segment.files, file, position, header))
            offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            if count % _BATCHES_A_PIECE == 0:
                yield
    except BadBatch:
        producers.forget_past()  # what is damaged here may have named producers
    return offset


def _stored_marker(files: Files, file: LogFile, position: int, header: Header) -> ControlRecord | None:
    if not header[ATTRIBUTES] & CONTROL:
        return None
    data = files.pread(file.fd, header[LENGTH] + PREFIX_SIZE, position)
    return _marker(memoryview(data), 0, header, position)


def _marker(view: memoryview, at: int, header: Header, position: int) -> ControlRecord | None:
    if not header[ATTRIBUTES] & CONTROL:
        return None
    try:
        return read_marker(view, at, header)
    except RecordsError as error:
        raise BadBatch(position, str(error)) from None


def rebuild_transactions(snapshots: Snapshots, segments: Sequence[Segment], now_ms: int) -> None:
    """Rebuild the transaction index of the last of `segments`: from what was open when it began, and its markers.

    BadBatch when damage may hide a marker: then the index stays as it is, for half of one would show aborted records.
    """
    segment = segments[-1]
    earlier = [offset for offset in snapshots.offsets if offset <= segment.base]
    producers = ProducerStates(Snapshots(snapshots.directory, segment.files, earlier, snapshots.remove))
    reload_producers(producers, segments[:-1], -1, segment.base, now_ms)
    found = []
    next_offset = segment.base
    for start, end in segment.sound_stretches():
        for position, header in walk(segment.files.pread, segment.file.fd, start, end):
            if header[BASE_OFFSET] < next_offset:
                raise BadBatch(position, f"offset {header[BASE_OFFSET]} where {next_offset} is next")
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            if header[PRODUCER_ID] >= 0:
                marker = _stored_marker(segment.files, segment.file, position, header)
                found.append(producers.update(header, header[BASE_OFFSET], marker))
    segment.transactions.replace(aborted for aborted in found if aborted is not None)


def _find_epochs(epochs: LeaderEpochs, segments: Sequence[Segment]) -> None:
    """The file is no use: every batch says its epoch."""
    for segment in segments:
        try:
            for _, header in walk(segment.files.pread, segment.file.fd, 0, segment.size):
                if header[LEADER_EPOCH] >= 0:
                    epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
        except BadBatch:
            continue
