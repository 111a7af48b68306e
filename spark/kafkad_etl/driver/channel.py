"""The driver's end of the socket to the program in front: the Plan comes in, events go out, Stop may come in."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

from kafkad_etl.messages import Event, Plan, Stop, line_of, plan_of, stop_of
from kafkad_etl.sockets import address


class Channel:
    """A thread of its own listens for Stop. When the front has gone, that counts as Stop too: the batch that runs is
    finished and committed, and events go nowhere."""

    def __init__(self, path: str, on_stop: Callable[[Stop], None] = lambda stop: None) -> None:
        self._on_stop = on_stop
        self._socket = socket.socket(socket.AF_UNIX)
        with address(Path(path)) as reachable:
            self._socket.connect(reachable)
        self._lines = self._socket.makefile("rb")
        self._sending = threading.Lock()
        self._stop: Stop | None = None
        self.is_alone = False
        """Whether the front has gone."""
        self.plan: Plan = plan_of(self._lines.readline())
        threading.Thread(target=self._listen, name="channel", daemon=True).start()

    @property
    def stop(self) -> Stop | None:
        """Asked for; the main loop looks here."""
        return self._stop

    def send(self, event: Event) -> None:
        with self._sending:
            if self.is_alone:
                return
            try:
                self._socket.sendall(line_of(event))
            except OSError:
                self.is_alone = True
        if self.is_alone:
            self._stopped(Stop())

    def close(self) -> None:
        """After the last event: the front sees the end of them."""
        with self._sending:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.is_alone = True

    def _listen(self) -> None:
        try:
            for line in self._lines:
                self._stopped(stop_of(line))
        except OSError:
            pass  # the same as the end of the lines
        self.is_alone = True
        self._stopped(Stop())

    def _stopped(self, stop: Stop) -> None:
        """`now` outdoes one that lets the batch finish; the rest was said already."""
        if self._stop is None or (stop.now and not self._stop.now):
            self._stop = stop
            self._on_stop(stop)
