"""Reporter for commands that print a table at their end: until then, it prints only lines that must not wait."""

from __future__ import annotations

import time
from typing import Generic, TextIO, TypeVar

from kafkad_etl.messages import Event, Rows
from kafkad_etl.reporting import Reporter, RunOutcome
from kafkad_etl.reporting.state import begin
from kafkad_etl.reporting.text import event_line

Kind = TypeVar("Kind")


class Collector(Reporter, Generic[Kind]):
    """Collects the events of one kind in `found`."""

    def __init__(self, kind: type[Kind], stream: TextIO) -> None:
        super().__init__(begin(time.monotonic(), {}, {}), stream)
        self._kind = kind
        self.found: list[Kind] = []

    def show(self, event: Event) -> None:
        if isinstance(event, self._kind):
            self.found.append(event)
        if line := event_line(event):
            self.say(line)

    def rows(self, rows: Rows) -> None:
        """Handled like any other event."""

    def tick(self) -> None:
        """Does nothing."""

    def close(self, outcome: RunOutcome) -> None:
        """Prints nothing; the table follows."""
