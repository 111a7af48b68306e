"""A worker process: calls in at standard input, answers out at standard output, until the broker closes the pipe."""

from __future__ import annotations

import pickle
import signal
import sys

from kafkad.log.pipes import read_frame, write_frame

MODULE = "kafkad.log.batch_worker_main"


def main() -> None:
    for ending in (signal.SIGINT, signal.SIGTERM):  # meant for the broker, which may still need this process to drain
        signal.signal(ending, signal.SIG_IGN)
    while True:
        try:
            call = pickle.loads(read_frame(sys.stdin.buffer))
        except EOFError:
            return
        try:
            write_frame(sys.stdout.buffer, pickle.dumps(call()))
        except BrokenPipeError:
            return


if __name__ == "__main__":
    main()
