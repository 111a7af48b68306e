"""The simulated cluster under faults: everything that it promises holds, and a seed always gives the same run."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from tests.sim.simulation import run


def test_a_seed_gives_the_same_run_whatever_the_order_of_sets() -> None:
    hashes = {_trace_hash(hash_seed) for hash_seed in ("1", "2")} | {run(3, 3_000).trace_hash}
    assert len(hashes) == 1


def _trace_hash(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--seed", "3", "--steps", "3000"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"trace ([0-9a-f]{32})", done.stdout)
    assert found is not None, done.stderr
    return found[1]
