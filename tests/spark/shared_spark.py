"""A spark-submit that brings its job to one Spark which runs already: the driver's own program, without a new JVM."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkad_etl.machine.environment import Environment
from kafkad_etl.machine.java import Java
from kafkad_etl.process.submitting import DRIVER

_SUBMIT = """import socket, sys
with socket.socket(socket.AF_UNIX) as shared:
    shared.connect({place!r})
    shared.sendall(" ".join(sys.argv[sys.argv.index({driver!r}) + 1 :]).encode() + b"\\n")
    sys.exit(int(shared.makefile().readline()))
"""


class SharedSpark:
    """Carries out one job after another, in a thread of this process, with the Spark session that is there."""

    def __init__(self, version: str, java_home: Path, jars: Sequence[Path], directory: Path) -> None:
        program = directory / "spark" / "bin" / "spark-submit"
        program.parent.mkdir(parents=True)
        place = directory / "shared"
        program.write_text(f"#!{sys.executable}\n{_SUBMIT.format(place=str(place), driver=str(DRIVER))}")
        program.chmod(0o755)
        java = Java(java_home, "21", "PATH")
        self.environment = Environment(java, directory / "spark", version, sys.executable, tuple(map(str, jars)))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        self._listener.listen()
        self._thread = threading.Thread(target=self._carry_out)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _carry_out(self) -> None:
        from kafkad_etl.driver.main import main

        while True:
            try:
                submitted, _ = self._listener.accept()
            except OSError:
                return  # it was shut down
            with submitted, submitted.makefile("rw") as lines:
                lines.write(f"{main(lines.readline().split())}\n")
                lines.flush()
