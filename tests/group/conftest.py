"""A classic group on a clock that a test moves."""

from __future__ import annotations

import pytest

from tests.group.life import Life


@pytest.fixture
def life() -> Life:
    return Life()
