"""The simulated cluster with a bank in transactions among its load: its sum holds, and each number is moved once."""

from __future__ import annotations

import pytest

from tests.sim.mutations import Mutation
from tests.sim.simulation import run
from tests.sim.test_simulation import trace_hash
from tests.sim.transaction_mutations import TRANSACTIONS

IN_CI = frozenset(list(TRANSACTIONS)[::3])

_RUNS = 60


def test_everything_holds() -> None:
    report = run(1, 8_000, transactions=True)
    assert report.violation is None, "\n".join([*report.trace, str(report)])
    assert report.moved


@pytest.mark.slow
def test_a_seed_gives_the_same_run_whatever_the_order_of_sets() -> None:
    hashes = {trace_hash(hash_seed, "--transactions") for hash_seed in ("1", "2")}
    assert len(hashes) == 1


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed < 3 else pytest.mark.long) for seed in (1, 2, 3, 10, 11)]
)
def test_everything_holds_for_longer(seed: int) -> None:
    report = run(seed, 30_000, transactions=True)
    assert report.violation is None, "\n".join([*report.trace, str(report)])
    assert report.moved > 5
    assert report.restarts


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "mutation",
    [
        pytest.param(mutation, id=name, marks=pytest.mark.slow if name in IN_CI else pytest.mark.long)
        for name, mutation in TRANSACTIONS.items()
    ],
)
def test_a_broken_rule_is_found(mutation: Mutation) -> None:
    for seed in range(1, _RUNS + 1):
        with mutation():
            report = run(seed, 20_000, transactions=True)
        if report.violation is not None:
            assert "TypeError" not in report.violation, "the mutation itself is broken"
            return
    pytest.fail(f"nothing was found in {_RUNS} runs")


@pytest.mark.parametrize("mutation", TRANSACTIONS.values(), ids=list(TRANSACTIONS))
def test_what_a_mutation_replaces_is_still_there(mutation: Mutation) -> None:
    with mutation():
        pass
