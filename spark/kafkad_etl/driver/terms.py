"""Types that the driver's rooms exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kafkad_etl.job import Offsets
from kafkad_etl.messages import Event, Failed, Stop

DataFrame = Any
"""PySpark's DataFrame. Its type is not needed here, so this package can be checked without PySpark installed."""


class JobFailed(Exception):
    """An error that ends the job and is reported to the front as it is."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.text)
        self.failed = failed


class Front(Protocol):
    """The program in front, as the driver's tasks see it."""

    @property
    def stop(self) -> Stop | None:
        """The stop that was asked for, if any."""

    def send(self, event: Event) -> None: ...


class BatchId(NamedTuple):
    """The identity of a batch. A batch repeated after a crash has the same number and offsets."""

    number: int
    checkpoint_id: str
    start: Offsets
    end: Offsets
    planned_ms: int = 0
    """When its offsets were written to the checkpoint; 0 in mode batch."""


class Written(NamedTuple):
    rows: int
    files: int = 0
    bytes: int = 0


class Source(Protocol):
    """Where a run's rows come from, as records of Kafka or lines of files."""

    def stream(self) -> DataFrame:
        """The streaming frame of a run of micro-batches."""

    def everything(self) -> DataFrame:
        """The whole source of a run in mode batch."""

    def again(self, batch: BatchId) -> DataFrame | None:
        """The rows of one batch, read again; None for files, which are not read again."""


WriteLetters = Callable[[DataFrame], None]
"""Writes the bad ones among parsed rows as dead letters."""


class Sink(Protocol):
    def prepare(self, columns: list[tuple[str, str]]) -> None:
        """Fails for anything that cannot work. Called once, before the first batch, with column names and Spark
        types."""

    def finished(self, batch: BatchId) -> Written | None:
        """The result of an earlier run's write of this batch, completed if it was interrupted; None if it was not
        written.

        A sink that cannot know returns None, and writes again.
        """

    def write(self, rows: DataFrame, batch: BatchId) -> Written: ...


@runtime_checkable
class Renewing(Protocol):
    """A sink that leaves something elsewhere which is forgotten where no batch comes for long."""

    def renew(self) -> None:
        """Renews that if it is time. Called all the time while a query runs, by another thread than the batches'."""
