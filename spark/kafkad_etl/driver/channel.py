"""The driver's end of the socket to the front: receives the Plan and Stop, sends events."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from kafkad_etl.messages import Event, Plan, Stop, line_of, plan_of, stop_of
from kafkad_etl.sockets import address


class Channel:
    """The socket, with a thread that listens for Stop. If the front disappears, that counts as Stop too: the current
    batch is finished and committed, and events go nowhere."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        with address(Path(path)) as reachable:
            self._socket.connect(reachable)
        self._lines = self._socket.makefile("rb")
        self._sending = threading.Lock()
        self._stop: Stop | None = None
        self.front_is_gone = False
        """True once the front has disappeared."""
        self.plan: Plan = plan_of(self._lines.readline())
        threading.Thread(target=self._listen, name="channel", daemon=True).start()

    @property
    def stop(self) -> Stop | None:
        """The stop that was requested, polled by the main loop."""
        return self._stop

    def send(self, event: Event) -> None:
        with self._sending:
            if self.front_is_gone:
                return
            try:
                self._socket.sendall(line_of(event))
            except OSError:
                self.front_is_gone = True
        if self.front_is_gone:
            self._stop = Stop()

    def close(self) -> None:
        """Closes the sending side after the last event, so that the front sees their end."""
        with self._sending:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                self.front_is_gone = True

    def _listen(self) -> None:
        with self._socket, self._lines:
            try:
                for line in self._lines:
                    self._stop = stop_of(line)
            except OSError:
                pass  # the same as the end of the lines
            self.front_is_gone = True
        self._stop = Stop()
