"""Progress of long work: one changing line on a terminal, else a line every ten seconds; always on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from shutil import get_terminal_size
from typing import Any

from kctl.settings import Settings
from kctl.texts.taming import line_text

_LIVE_SECONDS = 0.2
_LINE_SECONDS = 10.0


_BAR_WIDTH = 24


def bar(share: float) -> str:
    """A share as a bar and a percentage."""
    share = min(max(share, 0.0), 1.0)
    filled = round(share * _BAR_WIDTH)
    return f"{'█' * filled}{'░' * (_BAR_WIDTH - filled)} {share:4.0%}"


class ProgressLine:
    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._live = sys.stderr.isatty() and not settings.quiet
        self._quiet = settings.quiet
        self._clock = clock
        self._every = _LIVE_SECONDS if self._live else _LINE_SECONDS
        self._next = clock() + self._every
        self._shown = False

    def show(self, text: Callable[..., str], *about: Any) -> None:
        """`text(*about)`, when it is time to."""
        if self._quiet or self._clock() < self._next:
            return
        self._next = self._clock() + self._every
        if self._live:
            sys.stderr.write(f"\r\x1b[K{line_text(text(*about))[: get_terminal_size().columns - 1]}")
            sys.stderr.flush()
            self._shown = True
        else:
            print(line_text(text(*about)), file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        if not self._quiet:
            print(line_text(text), file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Clears the line, before anything else is printed."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
