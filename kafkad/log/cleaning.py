"""A log that is compacted: how much there is to do in it, and the new segments that take the places of old ones.

The work itself is the cleaner's, in a process of its own (`compaction` has the messages).
"""

from __future__ import annotations

from kafkad.log import swap
from kafkad.log.compaction import Replacement
from kafkad.log.dirt import Dirt, assess, first_dirty
from kafkad.log.files import disk_errors, final_disk_errors
from kafkad.log.log import Log
from kafkad.log.segment import Segment


def dirt_of(log: Log, now_ms: int, stable_offset: int) -> Dirt:
    """The work that compaction would have to do. May read a segment's files, once.

    StorageError also if a full disk lacks aborted transactions, which compaction reads from the files.
    """
    with disk_errors(log.directory, "looking for dirty segments"):
        for segment in log.segments:
            segment.store_transactions()
        first = first_dirty(log.cleaned_until, log.start_offset, log.end_offset)
        return assess(log.segments.all, log.config, now_ms, first_dirty=first, stable_offset=stable_offset)


def put_in_place(log: Log, new: Replacement) -> bool:
    """Put a compacted segment into the place of those it was made from; False when they are not here any more.

    Readers of the old ones are not disturbed. The new names are on the disk with the next fsync of the directory; a
    crash before that leads to the old segments or to the new one.
    """
    place = log.segments.closed_run(new.old)
    if place is None or new.base != new.old[0]:
        swap.discard(log.files, log.directory, new.base)
        return False
    with disk_errors(log.directory, "offering a compacted segment"):
        swap.offer(log.files, log.directory, new.base)
    segments = list(log.segments)
    with final_disk_errors(log.directory, "replacing compacted segments"):
        log.doom(segments[place], replaced_by=new.base)
        has_transactions = swap.settle(log.files, log.directory, new.base)
    interval = log.config.index_interval
    segment = Segment(log.files, log.directory, new.base, new.size, interval, log.clock.now_ms())
    segment.has_transactions = has_transactions
    segments[place] = [segment]
    log.segments.become(segments)
    log.durability.names_changed()
    return True
