"""Kafka's command line tools in one JVM: a session of many commands costs a tenth of what it costs in processes."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.clients.tools import Outcome, Step, normalised, run
from tests.oracle.kafka import java, main_class

_SOURCE = Path(__file__).with_name("Tools.java")
_HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Tools:
    """Those of one release; a context manager. Each command leaves by the exit that Kafka has for its own tests, and
    everything that it opened is closed as when it is used as a library. `options` are those of the JVM."""

    def __init__(self, release: str, *options: str) -> None:
        self._release = release
        self._options = _HEAP + options

    def __enter__(self) -> Self:
        command = java(self._release, str(_SOURCE), options=self._options)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asked, self._told = self._process.stdin, self._process.stdout
        return self

    def run(self, step: Step, bootstrap: str, directory: Path) -> Outcome:
        if step.tool.startswith("verifiable-"):  # they do the last of their work while their JVM ends
            return run(step, self._release, bootstrap, directory)
        words = step.arguments(bootstrap, directory)
        named, read = (main_class(self._release, step.tool), *words), step.stdin.encode()
        self._asked.write(bytes([len(words)]) + b"".join(map(_text, named)) + struct.pack(">i", len(read)) + read)
        self._asked.flush()
        (status,) = struct.unpack(">i", self._told.read(4))
        return Outcome(status, self._printed(), self._printed())

    def _printed(self) -> str:
        (length,) = struct.unpack(">i", self._told.read(4))
        return normalised(self._told.read(length).decode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._asked.close()
        self._told.close()


def _text(words: str) -> bytes:
    """As Java reads it."""
    data = words.encode()
    return struct.pack(">H", len(data)) + data
