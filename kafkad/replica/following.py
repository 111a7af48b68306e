"""The follower's part of a partition: records taken as the leader has them, and cut off where it never had them.

Driven by whoever fetches from the leader. The high watermark is the leader's, but never above the end of the own log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kafkad.log.deletion import delete_below_start
from kafkad.log.epochs import LeaderEpochs
from kafkad.log.truncation import Ahead, read_ahead, truncate_to
from kafkad.turns import Pieces

if TYPE_CHECKING:
    from kafkad.replica.partition import Partition


_logger = logging.getLogger(__name__)


class Position(NamedTuple):
    """The offset at which a follower goes on fetching."""

    offset: int
    last_epoch: int
    """The epoch of the last record it has; -1 when it has none, or none with an epoch."""
    start_offset: int


class Following:
    __slots__ = ("_partition", "lag")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.lag = 0
        """Committed records that it did not have yet after the last answer of its leader."""

    @property
    def position(self) -> Position:
        log = self._partition.log
        latest = log.epochs.latest
        return Position(log.end_offset, -1 if latest is None else latest, log.start_offset)

    def begin(self) -> None:
        """A leader epoch begins. Where a log has epochs, the leader says what has to be cut off (`parting`); without
        them nothing is known of what is behind the high watermark. What a lost end of a file has left behind it is
        fetched again, with what was lost."""
        partition = self._partition
        whole, end = partition.log.whole_until, partition.log.end_offset
        if whole < end:
            _logger.error(
                "%s is cut off at offset %d of %d, where the disk lost the end of a file; its leader has the rest",
                *(partition.tp, whole, end),
            )
            self.truncate_to(whole)
        if partition.log.epochs.latest is None and partition.high_watermark < partition.log.end_offset:
            self.truncate_to(partition.high_watermark)

    def append(self, records: memoryview, high_watermark: int, start_offset: int) -> None:
        """Append what the leader sent, and go by its high watermark and the start of its log.

        CORRUPT_MESSAGE for what does not fit here: what came before it stays, and the rest is to be fetched again.
        """
        partition = self._partition
        log = partition.log
        try:
            if records:
                log.append_copied(records, partition.leader_epoch)
        finally:
            end = log.end_offset
            partition.raise_high_watermark(min(high_watermark, end))
            self.lag = max(high_watermark - end, 0)
        if log.start_offset < start_offset <= partition.high_watermark:
            log.increment_start_offset(start_offset)

    def parting(self, epoch: int, end_offset: int) -> int:
        """The offset to `truncate_to` where the leader's history parts from ours: of `epoch`, the largest it knows that
        we asked for, it has records up to `end_offset`. Several rounds may be needed, each one epoch further back
        (KIP-279)."""
        log = self._partition.log
        return cut_offset(log.epochs, log.end_offset, epoch, end_offset)

    def forget_unused_epochs(self) -> None:
        """The leader's log has the offset from which this one goes on: what it does not know is the epoch."""
        self._partition.log.forget_unused_epochs()

    def read_ahead(self, offset: int) -> Pieces[Ahead | None]:
        """What `truncate_to` has to know of the log, read in pieces. Nothing is to be appended meanwhile."""
        return read_ahead(self._partition.log, offset)

    def truncate_to(self, offset: int, ahead: Ahead | None = None) -> None:
        """Where the leader's history parts from ours, or its log ends before ours: it answered OFFSET_OUT_OF_RANGE."""
        truncate_to(self._partition.log, offset, ahead)
        self._partition.clip_high_watermark()

    def empty(self) -> Pieces[None]:
        """Before `start_again`: removes what may be much in pieces."""
        log = self._partition.log
        log.interrupt()
        log.increment_start_offset(log.end_offset)
        self._partition.clip_high_watermark()
        yield from delete_below_start(log)

    def start_again(self, offset: int) -> None:
        """Starts the log at `offset`, empty: the leader's log starts after the end of ours."""
        self._partition.log.truncate_fully_at(offset)
        self._partition.clip_high_watermark()


def cut_offset(epochs: LeaderEpochs, log_end: int, epoch: int, leader_end: int) -> int:
    """The offset to cut a log at whose leader has records of `epoch` up to `leader_end`, and no later epoch below."""
    own_epoch, own_end = epochs.end_offset_for(epoch, log_end)
    if own_epoch < 0:
        return min(leader_end, log_end)
    if own_epoch != epoch:
        return min(own_end, log_end)
    return min(own_end, leader_end, log_end)
