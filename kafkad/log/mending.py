"""Damage in an open log: found in a batch that somebody has doubts about, and mended with what another replica has."""

from __future__ import annotations

from kafkad.log.batches import BadBatch, read_whole
from kafkad.log.copied import copied_batches
from kafkad.log.damage import Damage
from kafkad.log.files import disk_errors, short_write
from kafkad.log.indexed import LOG, Hole
from kafkad.log.log import Log
from kafkad.log.segment import NOWHERE, Segment
from kafkad.turns import Pieces
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LENGTH,
    PREFIX_SIZE,
    TRANSACTIONAL,
    crc_matches,
)

_PIECE = 1 << 20


def verify_batch(log: Log, offset: int) -> None:
    """Check the batch that holds `offset`, in which somebody has found an error: a follower asked for it twice, or a
    coordinator could not load it.

    One that fails its checksum becomes a hole: it is served to nobody any more.
    """
    segment = log.segments.starting_at(offset)[0]
    try:
        with disk_errors(log.directory, "checking a batch"):
            position = segment.locate(offset)
            found = next(read_whole(segment.files, segment.file.fd, position, segment.size), None)
    except BadBatch:
        return  # who reads it is refused
    if found is None or crc_matches(*found):
        return
    _, _, header = found
    hole = Hole(
        position,
        position + PREFIX_SIZE + header[LENGTH],
        header[BASE_OFFSET],
        header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1,
    )
    segment.holes = tuple(sorted((*segment.holes, hole)))
    segment.last_base = NOWHERE  # a read that goes straight to the last batch looks for no damage
    log.segments.become(log.segments.all)
    kept = (hole.end - hole.start, hole.first, hole.next, "a batch that fails its checksum", False)
    log.on_damage(log.topic_partition, Damage(segment.path(LOG), hole.start, *kept))


class Mending:
    """Batches that another replica has for a hole of `Log.damage`, which the caller has checked, on their way into it:
    `write`, then `sync`, then `serve`.

    Nobody reads the bytes meanwhile, and a crash leaves a hole. Nothing is done any more to a log that was cut back, or
    has another segment there.
    """

    def __init__(self, log: Log, segment: Segment, hole: Hole, records: bytes) -> None:
        assert len(records) == hole.end - hole.start
        self._log = log
        self._segment = segment
        self._hole = hole
        self._records = memoryview(records)
        self._history = log.history
        with disk_errors(log.directory, "mending damage"):
            self._file = segment.file

    @property
    def _is_void(self) -> bool:
        log = self._log
        return log.retired or log.history != self._history or (self._segment, self._hole) not in log.damage

    def write(self) -> Pieces[None]:
        for at in range(0, len(self._records), _PIECE):
            if self._is_void:
                return
            some = self._records[at : at + _PIECE]
            with disk_errors(self._log.directory, "mending damage"):
                if self._segment.files.pwrite(self._file.fd, some, self._hole.start + at) != len(some):
                    raise short_write()
            yield

    def sync(self) -> None:
        """Wait for the disk. Thread-safe; a StorageError is final, see `Files.sync_for_good`."""
        with disk_errors(self._log.directory, "mending damage"):
            self._segment.files.sync_for_good(self._file.fd)

    def serve(self) -> Pieces[bool | None]:
        """Have the batches read. False if they are served only after the next start, which reads all from there on:
        ends of transactions among them may say how to read what follows. None if nothing came of it."""
        log, segment = self._log, self._segment
        for batch in copied_batches(self._records, self._hole.first, None):
            if batch.header[ATTRIBUTES] & TRANSACTIONAL:
                return None if self._is_void else False
            yield
        with disk_errors(log.directory, "mending damage"):
            made = yield from segment.indexing(tuple(other for other in segment.holes if other != self._hole))
            if self._is_void:
                return None
            segment.holes = tuple(other for other in segment.holes if other != self._hole)
            log.segments.become(log.segments.all)
            segment.take_indexes(made)
            segment.seal()  # its indexes are in their files now: the next append takes them up again
        return True
