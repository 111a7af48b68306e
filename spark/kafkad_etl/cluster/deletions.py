"""Records that are deleted while a job runs that goes on without them: which, and how many.

A thread asks after each batch where the logs start, with a connection of its own."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

from kafkad_etl.cluster.losses import Gap, in_batch
from kafkad_etl.cluster.starts import as_positions
from kafkad_etl.job import Offsets
from kafkad_etl.messages import Batch
from kctl.errors import KctlError
from kctl.reach.offsets import EARLIEST, offsets_at
from kctl.reach.session import Session

CLOSE_SECONDS = 3.0


class Deletions:
    """`lost` and `warn` are called in the thread. The session is its own."""

    def __init__(
        self, session: Session, begin: Offsets, lost: Callable[[Gap], None], warn: Callable[[str], None]
    ) -> None:
        """`begin`: where there was something to be read when the run began. What lay before is told already."""
        self._session = session
        self._begin = as_positions(begin)
        self._lost = lost
        self._warn = warn
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="deletions", daemon=True)
        self._thread.start()

    def offer(self, batch: Batch) -> None:
        """Never waits. A batch that was written by an earlier run says nothing of what it read."""
        if not batch.replayed:
            self._batches.put(batch)

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        self._batches.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._warn("no broker said in time whether records of the last batches were deleted before they were read")

    def _work(self) -> None:
        try:
            while (batch := self._batches.get()) is not None:
                for gap in self._of(batch):
                    self._lost(gap)
        finally:
            self._session.close()

    def _of(self, batch: Batch) -> list[Gap]:
        end = as_positions(batch.end)
        begin = {where: max(at, self._begin.get(where, 0)) for where, at in as_positions(batch.start).items()}
        moved = [where for where, first in begin.items() if first < end.get(where, first)]
        try:
            found = offsets_at(self._session, dict.fromkeys(moved, EARLIEST)) if moved else {}
        except KctlError as error:
            self._warn(
                f"batch {batch.batch}: whether records were deleted before it read them is not known: {error.what}"
            )
            return []
        starts = {where: at.offset for where, at in found.items() if not isinstance(at, KctlError)}
        return in_batch(begin, end, batch.rows_read, starts)
