"""`kctl`: the console script, and `python -m kctl`."""

from __future__ import annotations

import gc
import sys

_OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""An answer of thousands of partitions is that many objects, none of them garbage: to look through them as often as
Python does by default is a tenth of what a command costs."""


def main() -> None:
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
    from kctl.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
