"""Detects records that are deleted while a job runs that tolerates data loss.

After each batch, a thread with its own connection asks where the logs start.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkad_etl.cluster.losses import Gap, in_batch, left_out
from kafkad_etl.cluster.queued import Queued
from kafkad_etl.cluster.starts import as_positions
from kafkad_etl.errors import text_of
from kafkad_etl.job import Offsets
from kafkad_etl.messages import Batch
from kctl.errors import KctlError
from kctl.reach.offsets import EARLIEST, offsets_at
from kctl.reach.session import Session


class Deletions:
    """Watches for deletions. `lost` and `warn` are called in its thread, and the session is its own."""

    def __init__(
        self, session: Session, begin: Offsets, lost: Callable[[Gap], None], warn: Callable[[str], None]
    ) -> None:
        """`begin`: where readable records started when the run began. Earlier losses have been reported already."""
        self._session = session
        self._begin = as_positions(begin)
        self._lost = lost
        self._warn = warn
        self._queued = Queued(session, "deletions", self._look)

    def offer(self, batch: Batch) -> None:
        """Queues a batch for checking; never blocks. A batch written by an earlier run says nothing about what was
        read."""
        if not batch.replayed:
            self._queued.put(batch)

    def close(self) -> None:
        if not self._queued.close():
            self._warn(
                "no broker responded in time to tell whether records of the last batches were deleted before they "
                "were read"
            )

    def _look(self, batch: Batch) -> None:
        for gap in self._of(batch):
            self._lost(gap)

    def _of(self, batch: Batch) -> list[Gap]:
        start, end = as_positions(batch.start), as_positions(batch.end)
        onward = {where: at for where, at in start.items() if at <= end.get(where, at)}
        begin = {where: max(at, self._begin.get(where, 0)) for where, at in onward.items()}
        moved = [where for where, last in end.items() if begin.get(where, start.get(where, last)) != last]
        try:
            found = offsets_at(self._session, dict.fromkeys(moved, EARLIEST)) if moved else {}
        except Exception as error:  # of the next batch it may be known
            self._warn(
                f"batch {batch.batch}: cannot tell whether records were deleted before it read them: {text_of(error)}"
            )
            return []
        starts = {where: at.offset for where, at in found.items() if not isinstance(at, KctlError)}
        return in_batch(begin, end, batch.rows_read, starts) + left_out(start, end, starts)
