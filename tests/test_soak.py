"""The soak in short: what comes and goes leaves nothing behind that grows as fast as requests come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.soak import LOADS, grown, run

pytestmark = pytest.mark.timeout(400)

MINUTES_AND_SLACK = [
    pytest.param(0.6, 5.0, marks=pytest.mark.slow),
    pytest.param(1.5, 3.0, marks=pytest.mark.long),
]
"""The shorter it is, the more of what is kept for a minute or two has not gone yet."""


@pytest.mark.parametrize(("minutes", "slack"), MINUTES_AND_SLACK)
def test_memory_descriptors_and_threads_stay(tmp_path: Path, minutes: float, slack: float) -> None:
    samples, soak = run(tmp_path / "kafkad", minutes, lambda each: None)
    assert [load.__name__ for load in LOADS if not soak.done[load.__name__]] == []
    assert grown(samples, slack) == []
