"""docs/threat-model.md: what stands against each attempt has a test, which is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.test_claims import exists

PAGE = Path(__file__).parents[1] / "docs" / "threat-model.md"


class Threat(NamedTuple):
    attempt: str
    shown_by: str


def threats() -> list[Threat]:
    rows = re.findall(r"^\| ([a-z].+?) \| .+ \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return [Threat(*row) for row in rows]


def test_every_row_is_looked_at() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    headings = [row for row in rows if row.startswith(("| **", "| Who tries |"))]
    assert len(threats()) == len(rows) - len(headings) >= 30


@pytest.mark.parametrize("threat", threats(), ids=lambda threat: threat.attempt)
def test_what_stands_against_it_is_shown(threat: Threat) -> None:
    named = re.findall(r"`([^`]+)`", threat.shown_by)
    assert any("::" in name for name in named)
    for name in named:
        assert exists(name), name
