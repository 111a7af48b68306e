from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.follower_side import Side, append
from tests.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    started = OneBroker(tmp_path)
    yield started
    started.stop()


@pytest.fixture
def side(broker: OneBroker) -> Iterator[Side]:
    """A follower that has fetched what there is of its partition 0 once."""
    side = Side(broker, 17, general=False)
    side.fetch(0, 1)
    append(side, 0, 10)
    side.answers()
    yield side
    side.frames.close()
