"""Reporter that prints progress every ten seconds, if there was any: a line for each topic, and one for the whole run
if there are several."""

from __future__ import annotations

from typing import Any

from kafkad_etl.messages import Event, Rows
from kafkad_etl.reporting import Reporter
from kafkad_etl.reporting.text import batch_line, event_line, progress_line

EVERY_SECONDS = 10.0


class Plain(Reporter):
    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._next = self.state.began + EVERY_SECONDS
        self._printed: list[str] = []

    def show(self, event: Event) -> None:
        if line := event_line(event):
            self.say(line)
        self.tick()

    def rows(self, rows: Rows) -> None:
        from kafkad_etl.reporting.tables import print_table

        print_table(rows)

    def tick(self) -> None:
        if self._clock() < self._next:
            return
        self._next = self._clock() + EVERY_SECONDS
        lines = [progress_line(self.state, topic) for topic in sorted(self.state.spans)]
        about = batch_line(self.state)
        lines = [f"{lines[0]}  {about}"] if len(lines) == 1 else [*lines, about]
        if lines != self._printed:
            self._printed = lines
            for line in lines:
                self.say(line)
