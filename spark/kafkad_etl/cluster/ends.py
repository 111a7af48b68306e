"""Polls the end offsets of a job's partitions, so that lag keeps growing while Spark is silent, as when its JVM hangs.

A thread with its own connection asks periodically.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event, Thread

from kafkad.names import TopicPartition
from kafkad_etl.cluster.starts import as_offsets
from kafkad_etl.job import Offsets
from kctl.errors import KctlError
from kctl.reach.offsets import LATEST, offsets_at
from kctl.reach.session import Session

ASK_SECONDS = 15.0


class EndsPoller:
    """Polls end offsets. `partitions` and `tell` are called in its thread, and the session is its own."""

    def __init__(
        self,
        session: Session,
        partitions: Callable[[], Iterable[TopicPartition]],
        tell: Callable[[Offsets], None],
        *,
        committed_only: bool,
    ) -> None:
        self._session = session
        self._partitions = partitions
        self._tell = tell
        self._committed_only = committed_only
        self._closing = Event()
        self._thread = Thread(target=self._work, name="ends of partitions", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()

    def _work(self) -> None:
        try:
            while not self._closing.wait(ASK_SECONDS):
                if ends := self._ends():
                    self._tell(ends)
        finally:
            self._session.close()

    def _ends(self) -> Offsets:
        """End offsets, without partitions whose leader does not answer; the next poll may succeed."""
        try:
            found = offsets_at(self._session, dict.fromkeys(self._partitions(), LATEST), committed=self._committed_only)
        except Exception:  # without ends, the watchdog would take an idle job for one that hangs
            return {}
        return as_offsets({where: at.offset for where, at in found.items() if not isinstance(at, KctlError)})
