from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.broker_parts.several import Brokers


@pytest.fixture(autouse=True)
def failed_tests_leave_no_brokers() -> Iterator[None]:
    """Their unfinished tasks would be found while other tests run, and fail those."""
    yield
    for brokers in tuple(Brokers.not_stopped):
        with suppress(Exception):
            brokers.stop()
