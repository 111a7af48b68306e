"""Damage in an open log: found in a batch that somebody has doubts about, and mended with what another replica has."""

from __future__ import annotations

from kafkad.log.batches import BadBatch, read_whole
from kafkad.log.copied import copied_batches
from kafkad.log.damage import Damage
from kafkad.log.files import disk_errors, short_write
from kafkad.log.indexed import LOG, Hole
from kafkad.log.log import Log
from kafkad.log.segment import NOWHERE, Segment
from kafkad.wire.records import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LENGTH,
    PREFIX_SIZE,
    TRANSACTIONAL,
    crc_matches,
)


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


def mend(log: Log, segment: Segment, hole: Hole, records: bytes) -> bool:
    """Write the batches that another replica has for a hole of `Log.damage`, which the caller has checked, and serve
    them. False if they are served only after the next start, which reads all from there on: ends of transactions
    among them may say how to read what follows.

    Nobody reads the bytes meanwhile, and a crash leaves a hole.
    """
    assert len(records) == hole.end - hole.start
    view = memoryview(records)
    with disk_errors(log.directory, "mending damage"):
        if segment.files.pwrite(segment.file.fd, view, hole.start) != len(records):
            raise short_write()
        segment.files.sync(segment.file.fd)
        if any(batch.header[ATTRIBUTES] & TRANSACTIONAL for batch in copied_batches(view, hole.first, None)):
            return False
        segment.holes = tuple(other for other in segment.holes if other != hole)
        log.segments.become(log.segments.all)
        segment.rebuild_indexes()
        segment.seal()  # its indexes are in their files now: the next append takes them up again
    return True
