"""Publishes a job's progress as offsets of a consumer group, for lag monitoring. The checkpoint alone decides; this
only shows.

A thread commits with its own connection, so that a slow or missing broker delays no batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import NamedTuple

from kafkad_etl.cluster.starts import as_positions
from kafkad_etl.errors import text_of
from kafkad_etl.job import Job, Offsets
from kctl.groups.offset_changes import commit_offsets
from kctl.reach.session import Session

CLOSE_SECONDS = 3.0


class _Offer(NamedTuple):
    batch: int
    offsets: Offsets


def group_of(job: Job) -> str:
    """The group's name; empty for none."""
    return "" if job.run.group is False else job.run.group or f"etl-{job.name}"


class Mirror:
    """Commits progress to a group. `warn` is called in its thread, once per problem, and the session is its own."""

    def __init__(self, session: Session, group: str, warn: Callable[[str], None]) -> None:
        self._session = session
        self._group = group
        self._warn = warn
        self._warned: set[str] = set()
        self._changed = Condition()
        self._offer: _Offer | None = None
        self._closing = False
        self._thread = Thread(target=self._work, name="group mirror", daemon=True)
        self._thread.start()

    def offer(self, batch: int, offsets: Offsets) -> None:
        """Queues offsets for committing; never blocks. Of several batches, only the newest is committed."""
        with self._changed:
            self._offer = _Offer(batch, offsets)
            self._changed.notify()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Stops after the last offer has been committed or the time is up."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._warn(
                f"group {self._group}: its offsets may be out of date: no broker accepted the last commit within "
                f"{seconds:g} s"
            )

    def _work(self) -> None:
        try:
            while (offer := self._next()) is not None:
                self._commit(offer)
        finally:
            self._session.close()

    def _next(self) -> _Offer | None:
        with self._changed:
            self._changed.wait_for(lambda: self._offer is not None or self._closing)
            offer, self._offer = self._offer, None
            return offer

    def _commit(self, offer: _Offer) -> None:
        try:
            failed: Sequence[Exception] = commit_offsets(
                self._session, self._group, as_positions(offer.offsets), metadata=f"batch {offer.batch}"
            ).errors
        except Exception as error:  # the next batch may be shown
            failed = [error]
        for refusal in failed:
            self._warn_once(f"group {self._group} cannot show the progress: {text_of(refusal)}")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)
