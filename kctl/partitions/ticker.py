"""A line about work that goes on: on a terminal always the same one, elsewhere a new one every ten seconds."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable

from kctl.settings import Settings

EVERY_SECONDS = 10.0


class Ticker:
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = settings.quiet
        self._clock = clock
        self._next = clock() + EVERY_SECONDS
        self._live = sys.stderr.isatty()
        self._open = False

    def show(self, line: str) -> None:
        if self._quiet:
            return
        if self._live:
            sys.stderr.write("\r\x1b[2K" + line[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()
            self._open = True
        elif self._clock() >= self._next:
            self._next = self._clock() + EVERY_SECONDS
            print(line, file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        self.close()
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """What comes next begins on a line of its own."""
        if self._open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._open = False
