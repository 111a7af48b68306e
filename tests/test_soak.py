"""The soak in short: what comes and goes leaves nothing behind that grows as fast as requests come."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.soak import LOADS, grown, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MINUTES = 1.5
SLACK = 3.0
"""A minute and a half is not enough for all that is kept for a minute or two to come and go."""


def test_memory_descriptors_and_threads_stay(tmp_path: Path) -> None:
    samples, soak = run(tmp_path / "kafkad", MINUTES, lambda each: None)
    assert [load.__name__ for load in LOADS if not soak.done[load.__name__]] == []
    assert grown(samples, SLACK) == []
