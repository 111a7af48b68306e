"""A broker, and a coordinator on it that has loaded nothing yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.one_broker import OneBroker
from tests.shard.coordinator import Coordinator


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture
def coordinator(broker: OneBroker) -> Iterator[Coordinator]:
    coordinator = Coordinator(broker)
    yield coordinator
    coordinator.stop()
