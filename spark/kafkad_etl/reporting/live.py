"""Reporter for terminals: a live display with a bar for each topic and the tasks of the current batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live as Picture
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kafkad_etl.messages import Event, Rows
from kafkad_etl.reporting import Reporter, RunOutcome
from kafkad_etl.reporting.state import State, done_of, lag_of, total_of
from kafkad_etl.reporting.text import batch_line, event_line, paces

_BAR_WIDTH = 24
_TOPICS = 12
"""Maximum number of topics shown, those with the largest lag first; a pattern may match hundreds."""
_PER_SECOND = 5


class Screen:
    """The terminal, which the jobs of one Spark share: a picture of those that run, below the lines that stay."""

    def __init__(self, stream: TextIO) -> None:
        self._shown: list[Live] = []
        self._console = Console(file=stream, highlight=False)
        self._picture = Picture(console=self._console, get_renderable=self._draw, refresh_per_second=_PER_SECOND)

    def enter(self, shown: Live) -> None:
        self._shown = [*self._shown, shown]
        self._picture.start()

    def leave(self, shown: Live) -> None:
        self._shown = [each for each in self._shown if each is not shown]
        if not self._shown:
            self._picture.stop()

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Without the picture, while others print."""
        self._picture.stop()
        yield
        self._picture.start()

    def _draw(self) -> Group:
        if not self._shown or not self._shown[0].job:
            return Group(*(picture(each.state) for each in self._shown))
        parts = ((Text(each.job, style="bold"), picture(each.state)) for each in self._shown)
        return Group(*(line for part in parts for line in part))


class Live(Reporter):
    def __init__(self, *arguments: Any, screen: Screen, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._screen = screen
        screen.enter(self)

    def show(self, event: Event) -> None:
        if line := event_line(event):
            self.say(line)

    def say_of_all(self, text: str) -> None:
        self._screen.say(text)

    def rows(self, rows: Rows) -> None:
        from kafkad_etl.reporting.tables import print_table

        with self._screen.paused():
            print_table(rows)

    def tick(self) -> None:
        """Does nothing; the display refreshes itself."""

    def close(self, outcome: RunOutcome) -> None:
        self._screen.leave(self)
        super().close(outcome)


def picture(state: State) -> Group:
    grid = Table.grid(padding=(0, 2))
    shown = sorted(state.spans, key=lambda topic: (-lag_of(state.spans[topic]), topic))[:_TOPICS]
    for topic in sorted(shown):
        spans = state.spans[topic]
        done, total = done_of(spans), total_of(spans)
        bar = ProgressBar(total=max(total, 1), completed=done if total else 1, width=_BAR_WIDTH)
        grid.add_row(Text(topic), bar, Text(f"{done:,}/{total:,} rows"), Text("  ".join(paces(state, topic))))
    more = len(state.spans) - len(shown)
    below = [Text(f"and {more} more topics", style="dim")] if more else []
    return Group(grid, *below, Text(batch_line(state), style="dim"))
