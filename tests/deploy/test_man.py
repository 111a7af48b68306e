"""Man pages: they render without a warning, and say what --help and the tables of settings say."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.man import pages, write
from deploy.roff import paragraphs
from kafkad.config import BROKER_SETTINGS
from kctl.cli import root
from kctl.command.noun import LazyGroup

PAGES = pages()
needs_man = pytest.mark.skipif(shutil.which("man") is None or shutil.which("groff") is None, reason="no man and groff")


def rendered(page: Path) -> str:
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MAN_KEEP_FORMATTING": ""}
    man = subprocess.run(
        ["man", "--warnings=w", "-l", str(page)], capture_output=True, text=True, check=True, env=environment
    )
    assert man.stderr == ""
    return man.stdout


@needs_man
@pytest.mark.parametrize("name", PAGES)
def test_a_page_renders_without_a_warning(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(PAGES[name])
    text = rendered(tmp_path / name)
    assert text.startswith(name.rpartition(".")[0].upper())
    assert "SEE ALSO" in text


@needs_man
def test_a_page_says_what_help_says(tmp_path: Path) -> None:
    write(tmp_path)
    topics = " ".join(rendered(tmp_path / "kctl-topics.1").split())
    for said in (
        "kctl topics create [OPTIONS] TOPIC…",
        "-r, --replication N Replication factor. [default: the broker's] [1<=x<=32767]",
        "Example: kctl topics create orders -p 6 -r 3 --config retention.ms=7d",
    ):
        assert said in topics
    settings = " ".join(rendered(tmp_path / "kafkad.yaml.5").split())
    level = BROKER_SETTINGS["kafkad.log.level"].help
    assert f"kafkad.log.level {level} Default: info. It can be changed while kafkad runs." in settings
    assert "2 The configuration cannot be used." in " ".join(rendered(tmp_path / "kafkad.8").split())


def test_every_command_and_every_setting_has_its_place() -> None:
    for name in root.lazy:
        command = root.get_command(root.make_context("kctl", ["version"], resilient_parsing=True), name)
        assert f".SH NAME\nkctl\\-{name.replace('-', chr(92) + '-')} \\-" in PAGES[f"kctl-{name}.1"]
        if isinstance(command, LazyGroup):
            for sub in command.lazy:
                assert f"kctl {name} {sub}".replace("-", "\\-") in PAGES[f"kctl-{name}.1"]
    shown = [each.name for each in BROKER_SETTINGS.values() if not each.refused]
    assert [name for name in shown if f"\n\\fB{name}\\fR\n" not in PAGES["kafkad.yaml.5"]] == []


def test_options_that_help_leaves_out_are_left_out() -> None:
    assert "SUPPRESS" not in PAGES["kafkad.8"]
    assert "supervised" not in PAGES["kafkad.8"]


def test_text_that_looks_like_a_request_is_text() -> None:
    assert list(paragraphs(".so /etc/passwd\n\n'quoted' \\n and `code`")) == [
        "\\&.so /etc/passwd",
        ".PP",
        "\\&'quoted' \\en and \\fBcode\\fR",
    ]
