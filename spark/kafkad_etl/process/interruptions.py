"""Counts Ctrl-C: the first asks a run to stop after its batch, the second stops it."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_OUTPUTS = (1, 2)


class Interruptions:
    """Counts interruptions while entered. SIGTERM, as sent by a supervisor, counts too, and SIGHUP if it is the first:
    of a terminal that is closed, both the shell and the kernel tell. A signal that is ignored, as under nohup, stays
    ignored."""

    def __init__(self) -> None:
        self.count = 0
        self.by = signal.SIGINT
        """The last signal received."""
        self._before: dict[signal.Signals, object] = {}
        self._terminals = [each for each in _OUTPUTS if os.isatty(each)]

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
        if number == signal.SIGHUP:
            self._let_go()
            if self.count:
                return
        self.count += 1
        self.by = signal.Signals(number)

    def _let_go(self) -> None:
        """Drops further output to a terminal that was closed; writing it would fail, before the batch is finished."""
        for terminal in self._terminals:
            if not os.isatty(terminal):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, terminal)
                os.close(nowhere)
