"""A real kafkad process for tests, and a client that speaks raw frames to any broker."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.oracle.kafka import free_port

START_SECONDS = 60
STOP_SECONDS = 60

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 7, -1)
"""A request that every broker answers: ApiVersions v0, correlation id 7, no client id."""


class KafkadProcess:
    """`python -m kafkad` on a free port, its data under `directory`; a context manager that stops it and shows its log
    when the block fails.

    The port stays the same over restarts. `log_dirs` are the data directories, by default one inside `directory`.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, str] | None = None, log_dirs: list[Path] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.log_dirs = log_dirs or [directory / "data"]
        self.settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "broker.id": "1",
            **(settings or {}),
        }
        self.arguments: list[str] = []
        """More words for the command line, such as --config."""
        self.wrapper: list[str] = []
        """A command that runs the one behind it, such as env."""
        self.log_path = directory / "kafkad.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def log_directory(self) -> Path:
        return self.log_dirs[0]

    def command(self) -> list[str]:
        options = [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        return [sys.executable, "-m", "kafkad", *self.arguments, *options]

    def start(self, *, wait: bool = True) -> Self:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen([*self.wrapper, *self.command()], stdout=log, stderr=subprocess.STDOUT)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds: float = START_SECONDS) -> None:
        """Returns when the broker has answered a request."""
        process = self._running()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if process.poll() is not None:
                raise AssertionError(f"kafkad exited with {process.returncode}:\n{self.log}")
            try:
                with RawClient(self.port, timeout=1) as client:
                    client.exchange(API_VERSIONS_V0)
                return
            except OSError:
                time.sleep(0.005)
        self.kill()  # or it would outlive the test
        raise AssertionError(f"kafkad does not answer after {seconds} s:\n{self.log}")

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"kafkad did not stop within {STOP_SECONDS} s of SIGTERM:\n{self.log}") from None

    def kill(self) -> None:
        """SIGKILL, as a crash of the process."""
        process = self._running()
        process.kill()
        process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _running(self) -> subprocess.Popen[bytes]:
        assert self.process is not None, "kafkad was not started"
        return self.process

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.log, file=sys.stderr)
        if self.alive():
            self.stop()


class RawClient:
    """One blocking connection that sends and receives frames as they are; a context manager."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", timeout: float = 10) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_frame(self, frame: bytes) -> None:
        self.send(struct.pack(">i", len(frame)) + frame)

    def receive_frame(self) -> bytes:
        """The next frame without its length; ConnectionError when the peer closes instead."""
        (length,) = struct.unpack(">i", self._receive(4))
        return self._receive(length)

    def exchange(self, frame: bytes) -> bytes:
        self.send_frame(frame)
        return self.receive_frame()

    def closed_by_peer(self) -> bool:
        """Waits for the peer's next move: True when it closes, False when it sends or nothing comes in time."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            part = self.socket.recv(count - len(received))
            if not part:
                raise ConnectionError(f"closed after {len(received)} of {count} bytes")
            received += part
        return bytes(received)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
