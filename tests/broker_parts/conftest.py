from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.broker_parts.several import MEMORY, Brokers


@pytest.fixture(autouse=True)
def failed_tests_leave_no_brokers() -> Iterator[None]:
    """Their unfinished tasks would be found while other tests run, and fail those."""
    yield
    for brokers in tuple(Brokers.not_stopped):
        with suppress(Exception):
            brokers.stop()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    """Three, of which each leads what it was elected for until something happens."""
    brokers = Brokers(tmp_path, MEMORY, "auto.leader.rebalance.enable=false")
    brokers.start(1, 2, 3)
    yield brokers
    brokers.stop()
