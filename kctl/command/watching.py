"""--watch: the same look again and again, until Ctrl-C.

On a terminal each picture takes the place of the last one and fits the screen: below the first line, which says of
which cluster and when, as many lines as there is room for. Programs get one look after another. An outage is told, and
waited out, once there was something to see.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Protocol

from kctl.errors import Exit, KctlError
from kctl.texts.output import render_error

if TYPE_CHECKING:
    from rich.live import Live

    from kctl.settings import Settings

_MOST_NOTES = 4
"""Lines of notes and errors below a picture."""


class View(Protocol):
    def look(self, take: Callable[[], int], title: Callable[[], str]) -> int:
        """Takes one look, and shows what it prints."""

    def trouble(self, error: KctlError) -> None:
        """Shows that nobody answers."""


def watch(
    settings: Settings,
    seconds: float,
    take: Callable[[], int],
    title: Callable[[], str],
    is_over: Callable[[int], bool] = lambda code: False,
) -> int:
    """Looks until it is over, and gives the exit code of the last look. `title` is asked for after each."""
    settings.no_pager = True
    seen = False
    with _view(settings) as view:
        while True:
            try:
                code = view.look(take, title)
                seen = True
                if is_over(code):
                    return code
            except KctlError as error:
                if not seen or error.exit_code is not Exit.UNREACHABLE:
                    raise
                view.trouble(error)
            time.sleep(seconds)


@contextmanager
def _view(settings: Settings) -> Iterator[View]:
    if not (settings.is_text and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        yield _Lines(settings)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout, highlight=False, no_color=not settings.colored())
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield _Screen(settings, live)


class _Lines:
    """For programs: one look after another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def look(self, take: Callable[[], int], title: Callable[[], str]) -> int:
        code = take()
        sys.stdout.flush()
        return code

    def trouble(self, error: KctlError) -> None:
        render_error(error, self._settings, sys.stderr)


class _Screen:
    """For people: pictures in one place."""

    def __init__(self, settings: Settings, live: Live) -> None:
        self._settings = settings
        self._live = live
        self._title = ""
        self._lines: list[str] = []

    def look(self, take: Callable[[], int], title: Callable[[], str]) -> int:
        out, notes = _Terminal(), _Terminal()
        with redirect_stdout(out), redirect_stderr(notes):
            code = take()
        self._title, self._lines = title(), out.getvalue().splitlines()
        self._draw(notes.getvalue().splitlines())
        return code

    def trouble(self, error: KctlError) -> None:
        notes = _Terminal()
        render_error(error, self._settings, notes)
        self._draw(notes.getvalue().splitlines())

    def _draw(self, notes: Sequence[str]) -> None:
        from rich.text import Text

        height = self._live.console.size.height - 1  # the cursor stands on the last line
        text = Text.from_ansi("\n".join(fitted(self._title, self._lines, notes[:_MOST_NOTES], height)))
        text.no_wrap, text.overflow = True, "ellipsis"
        self._live.update(text, refresh=True)


def fitted(title: str, lines: Sequence[str], notes: Sequence[str], height: int) -> list[str]:
    """A picture of at most so many lines; what is left out of it is counted."""
    room = max(height - 1 - len(notes), 1)
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1:,} more lines"]
    return [title, *lines, *notes]


class _Terminal(io.StringIO):
    """Output for a terminal, with its colours and cut to its width."""

    def isatty(self) -> bool:
        return True
