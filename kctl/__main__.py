"""`kctl`: the console script, and `python -m kctl`."""

from __future__ import annotations

import gc
import io
import os
import sys

_OBJECTS_BETWEEN_COLLECTIONS = 200_000
"""An answer of thousands of partitions is that many objects, none of them garbage: to look through them as often as
Python does by default is a tenth of what a command costs; so are the modules of a job's SQL."""

_INTERRUPTED = 130
"""That of `kctl.errors`, which may not be there yet."""


def _open_what_is_closed() -> None:
    """Opens /dev/null for closed standard streams, so that no file or socket opened later takes their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def main() -> None:
    _open_what_is_closed()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # what the terminal has no sign for is no reason to fail
    try:
        from kctl.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before `run` could see it, or once more after it
        print("interrupted", file=sys.stderr)
        code = _INTERRUPTED
    gc.freeze()  # the system takes all of it back in a moment: to look for garbage first would cost 7 ms
    sys.exit(code)


if __name__ == "__main__":
    main()
