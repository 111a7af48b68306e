"""docs/claims.md: one line for each claim, and everything that it names is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from kctl.cli import root

ROOT = Path(__file__).parents[1]


class Claim(NamedTuple):
    number: int
    text: str
    shown_by: str


def claims() -> list[Claim]:
    rows = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", (ROOT / "docs" / "claims.md").read_text(), re.MULTILINE)
    return [Claim(int(number), text, shown_by) for number, text, shown_by in rows]


def test_each_claim_has_one_line() -> None:
    assert [claim.number for claim in claims()] == list(range(1, len(claims()) + 1))
    assert len(claims()) >= 118


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: str(claim.number))
def test_what_shows_a_claim_is_there(claim: Claim) -> None:
    named = re.findall(r"`([^`]+)`", claim.shown_by)
    assert named, "nothing shows it"
    for name in named:
        assert exists(name), name


def exists(name: str) -> bool:
    path, is_test, test = name.partition("::")
    if is_test:
        return bool(re.search(rf"^ *(?:async )?def {test}\(", (ROOT / path).read_text(), re.MULTILINE))
    program, *words = name.split()
    if program == "make":
        makefile = (ROOT / "Makefile").read_text()
        return all(re.search(rf"^{word}:", makefile, re.MULTILINE) for word in words)
    assert program == "kctl", name
    return is_command(words)


def is_command(words: list[str]) -> bool:
    command: click.Command | None = root
    for word in words:
        if not isinstance(command, click.Group):
            return word in command.get_usage(click.Context(command))
        command = command.get_command(click.Context(command), word)
        if command is None:
            return False
    return not isinstance(command, click.Group)


def test_what_is_not_there_is_noticed() -> None:
    assert not exists("tests/test_claims.py::test_that_nobody_wrote")
    assert not exists("make coffee")
    assert not exists("make bench coffee")
    assert not exists("kctl topics brew")
