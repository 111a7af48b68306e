"""kafkad with its system calls on files written down: which, on which file, where, how much.

python -m tests.claims.recorded RECORD [arguments of kafkad]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.broker import KafkadProcess

CALLS = ("pwrite", "fsync", "fdatasync", "sendfile")


class Call(NamedTuple):
    name: str
    path: str
    position: int
    length: int

    def is_of(self, suffix: str) -> bool:
        return self.path.endswith(suffix)


class RecordedKafkad(KafkadProcess):
    @property
    def record(self) -> Path:
        return self.log_path.with_name("calls")

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "tests.claims.recorded", str(self.record), *arguments]

    def calls(self, *names: str) -> list[Call]:
        """In the order in which they returned."""
        found = []
        for line in self.record.read_text().splitlines():
            name, path, position, length = line.split("\t")
            if name in names:
                found.append(Call(name, path, int(position), int(length)))
        return found


def _recording(name: str, record: int) -> Callable[..., Any]:
    call = getattr(os, name)

    def recorded(*arguments: Any) -> Any:
        result = call(*arguments)
        fd, position = arguments[0], -1
        if name == "pwrite":
            position = arguments[2]
        elif name == "sendfile":
            fd, position = arguments[1], arguments[2]
        path = os.readlink(f"/proc/self/fd/{fd}")
        os.write(record, f"{name}\t{path}\t{position}\t{-1 if result is None else result}\n".encode())
        return result

    return recorded


def main() -> int:
    record = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for name in CALLS:
        setattr(os, name, _recording(name, record))
    from kafkad.__main__ import main as kafkad

    return kafkad()


if __name__ == "__main__":
    sys.exit(main())
