"""Carries out what a page of the documentation says to do, in a shell on a machine that a test has made up."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def carried_out(
    steps: str, places: Mapping[str, str], *, machine: str, check: str, home: Path, seconds: float
) -> subprocess.CompletedProcess[str]:
    """Runs the page's `steps` between the shell of the `machine` and a `check`. `places` are the addresses and
    directories on the page, each of which has to be there, and those that the test has in their stead."""
    for there, here in places.items():
        assert there in steps, there
        steps = steps.replace(there, here)
    return subprocess.run(
        ["bash"],
        input=machine + steps + check,
        capture_output=True,
        text=True,
        timeout=seconds,
        cwd=home,
        env={name: value for name, value in os.environ.items() if not name.startswith("KCTL")},
    )
