"""A broker for tests of its replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path)
    yield broker
    broker.stop()
