"""Names kept for a moment, for the shell."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kctl.command.cluster_names import FRESH_SECONDS, cache_file, fresh, keep
from kctl.reach.access import Access


def test_file_of_a_cluster(tmp_path: Path) -> None:
    access = Access((("kafka-1", 9092), ("kafka-2", 9092)))
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert cache_file(access, "topics", environment) == f"{tmp_path}/kctl/kafka-1:9092/topics"
    assert cache_file(access._replace(context="../prod"), "topics", environment) == f"{tmp_path}/kctl/.._prod/topics"
    assert cache_file(access, "topics", {}).startswith(os.path.expanduser("~/.cache/kctl/"))


def test_names_are_fresh_for_a_moment(tmp_path: Path) -> None:
    file = str(tmp_path / "kctl" / "prod" / "groups")
    assert fresh(file, 0) is None
    keep(file, ["a b", "ünï", "two\nlines"])
    written = os.stat(file).st_mtime
    assert fresh(file, written + FRESH_SECONDS - 1) == ["a b", "ünï"]
    assert fresh(file, written + FRESH_SECONDS) is None
    assert fresh(file, written - 1) is None, "the clock was set back"
    assert os.listdir(tmp_path / "kctl" / "prod") == ["groups"]


def test_a_cache_that_finds_no_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    keep(str(tmp_path / "topics"), ["a"])
    assert not list(tmp_path.iterdir())


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "kctl").write_text("a file in the way")
    keep(str(tmp_path / "kctl" / "prod" / "topics"), ["a"])
