"""Brokers with two and with three log directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upkeep.moving import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path, "first", "second")
    yield broker
    broker.stop()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Broker]:
    """A broker with as many log directories."""
    broker = Broker(tmp_path, "first", "second", "third")
    yield broker
    broker.stop()
