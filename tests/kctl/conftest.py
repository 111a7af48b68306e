from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kctl.cli import run


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Kctl = Callable[..., Ran]


@pytest.fixture
def kctl(capfd: pytest.CaptureFixture[str]) -> Kctl:
    """Runs a command line in this process."""

    def call(*arguments: object) -> Ran:
        code = run([str(argument) for argument in arguments])
        return Ran(int(code), *capfd.readouterr())

    return call
