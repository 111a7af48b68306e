"""`python -m tests.sim --seed 7 --steps 100000`: replays a run, and prints the end of its trace if something broke."""

from __future__ import annotations

import argparse
import sys

from tests.sim.faults import Focus
from tests.sim.simulation import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.sim", description="Simulates a cluster under faults.")
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--steps", type=int, default=100_000, help="steps before all faults are mended")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds to try, one after the other")
    parser.add_argument("--trace", action="store_true", help="print the end of the trace though everything held")
    parser.add_argument("--transactions", action="store_true", help="with a bank in transactions among the load")
    parser.add_argument("--focus", type=Focus, metavar="{late,disks}", help="half of the faults are such")
    chosen = parser.parse_args()
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        report = run(seed, chosen.steps, transactions=chosen.transactions, focus=chosen.focus)
        if chosen.trace or report.violation is not None:
            print("\n".join(report.trace))
        print(report, flush=True)
        if report.violation is not None:
            print(f"again: make sim SEED={seed} STEPS={chosen.steps}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
