from __future__ import annotations

from pathlib import Path

from kctl.reference import page

DOCUMENT = Path(__file__).parents[2] / "docs" / "kctl.md"


def test_the_page_says_what_the_commands_say() -> None:
    assert DOCUMENT.read_text() == page() + "\n", "run make docs"
