"""Progress of recovery: a bar on a terminal, lines in a log, a status for systemd, and the text of /health."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from time import monotonic

from kafkad.log.loading import LoadingProgress, LoadingStopped
from kafkad.systemd import Notifier

log = logging.getLogger(__name__)

_WIDTH = 30
_EVERY_S = 0.1
_LINE_EVERY_S = 5.0
_PATIENCE_S = 60


class RecoveryProgress:
    """`update` is called from the thread that loads the logs, and ends the loading when the broker is `stopping`.

    A start that is quick says nothing.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        notifier: Notifier,
        say: Callable[[str], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._notifier = notifier
        self._say = say
        self._stopping = stopping
        self._bar = sys.stderr.isatty()
        self._begun = self._last = self._last_line = monotonic()
        self._drawn = False
        self._recovered = 0

    def update(self, progress: LoadingProgress) -> None:
        if self._stopping():
            raise LoadingStopped
        now = monotonic()
        self._recovered = progress.recovered
        if now - self._last >= _EVERY_S:
            self._last = now
            self._loop.call_soon_threadsafe(self._show, progress)

    def done(self) -> None:
        if self._drawn:
            sys.stderr.write("\r\033[K")
        if self._recovered:
            seconds = monotonic() - self._begun
            log.info("checked %.0f MB of logs after an unclean stop, in %.1f s", self._recovered / 1e6, seconds)

    def _show(self, progress: LoadingProgress) -> None:
        text = _text(progress)
        self._say(text)
        self._notifier.extend_timeout(_PATIENCE_S)
        self._notifier.status(text)
        if self._bar:
            filled = _WIDTH * progress.done // max(progress.total, 1)
            sys.stderr.write(f"\r\033[K[{'#' * filled}{'.' * (_WIDTH - filled)}] {text}")
            sys.stderr.flush()
            self._drawn = True
        elif monotonic() - self._last_line >= _LINE_EVERY_S:
            self._last_line = monotonic()
            log.info("%s", text)


def _text(progress: LoadingProgress) -> str:
    text = f"loading {progress.directory}: {progress.done} of {progress.total} partitions"
    if progress.recovering is not None:
        text += f", recovering {progress.recovering}"
    return f"{text}, {progress.recovered / 1e6:.0f} MB checked" if progress.recovered else text
