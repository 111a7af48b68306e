"""The simulation finds each rule of replication that is broken on purpose."""

from __future__ import annotations

import pytest

from tests.sim.faults import Focus
from tests.sim.mutations import ALL, FOCUS, Mutation
from tests.sim.simulation import run

SEEDS, STEPS = range(1, 101), 20_000
IN_CI = frozenset([name for name in ALL if name not in FOCUS][::8])
"""A sample of the rules that are found soon: that each is found is a matter of the simulation, which changes seldom."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("mutation", "focus"),
    [
        pytest.param(mutation, FOCUS.get(name), id=name, marks=pytest.mark.slow if name in IN_CI else pytest.mark.long)
        for name, mutation in ALL.items()
    ],
)
def test_a_broken_rule_is_found(mutation: Mutation, focus: Focus | None) -> None:
    for seed in SEEDS:
        with mutation():
            report = run(seed, STEPS, focus=focus)
        if report.violation is not None:
            assert "TypeError" not in report.violation, "the mutation itself is broken"
            return
    pytest.fail(f"nothing was found in {len(SEEDS)} runs of {STEPS} steps")


@pytest.mark.parametrize("mutation", ALL.values(), ids=list(ALL))
def test_what_a_mutation_replaces_is_still_there(mutation: Mutation) -> None:
    with mutation():
        pass
