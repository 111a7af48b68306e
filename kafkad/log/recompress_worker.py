"""A worker process: batches in at standard input, outcomes out at standard output, until the broker closes the pipe."""

from __future__ import annotations

import pickle
import signal
import sys
from typing import IO

from kafkad.log.validate import rebuild

MODULE = "kafkad.log.recompress_worker"
_LENGTH_BYTES = 8


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
    pipe.write(data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes:
    """EOFError when the other end is gone."""
    head = pipe.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        raise EOFError
    size = int.from_bytes(head, "big")
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def main() -> None:
    for ending in (signal.SIGINT, signal.SIGTERM):  # meant for the broker, which may still need this process to drain
        signal.signal(ending, signal.SIG_IGN)
    while True:
        try:
            batch, wanted = pickle.loads(read_frame(sys.stdin.buffer))
        except EOFError:
            return
        try:
            write_frame(sys.stdout.buffer, pickle.dumps(rebuild(batch, wanted)))
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
