"""What parts of the driver hand to each other."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kafkad_etl.job import Offsets
from kafkad_etl.messages import Event, Failed, Stop

DataFrame = Any
"""PySpark's; its types are not needed to check this package, which is checked where PySpark is not installed."""


class JobFailed(Exception):
    """Ends the job, and is told to the front as it is."""

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
    """A batch that is asked for again, after a crash, has the same number and the same offsets."""

    number: int
    checkpoint_id: str
    start: Offsets
    end: Offsets


class Written(NamedTuple):
    rows: int
    files: int = 0
    bytes: int = 0


class Sink(Protocol):
    def prepare(self, columns: list[tuple[str, str]]) -> None:
        """Once, before the first batch: what cannot work fails here. `columns`: names, and types as Spark says them."""

    def finished(self, batch: BatchId) -> Written | None:
        """What an earlier run wrote of this very batch, brought to its end if it was cut short; None: not written.

        A sink that cannot know it answers None, and writes again."""

    def write(self, rows: DataFrame, batch: BatchId) -> Written: ...
