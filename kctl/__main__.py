"""`kctl`: the console script, and `python -m kctl`."""

from __future__ import annotations

import sys


def main() -> None:
    from kctl.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
