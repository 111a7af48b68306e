"""Counts Ctrl-C: the first asks a run to stop after its batch, the second stops it."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruptions:
    """Counts interruptions while entered. SIGTERM, as sent by a supervisor, and SIGHUP count too; a signal that is
    ignored, as under nohup, stays ignored."""

    def __init__(self) -> None:
        self.count = 0
        self.by = signal.SIGINT
        """The last signal received."""
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._counted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave

    def _counted(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.by = signal.Signals(number)
