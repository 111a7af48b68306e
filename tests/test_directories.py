from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkad.directories import make_directories


def test_those_above_are_made_and_all_names_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done: list[str] = []

    def mkdir(path: str) -> None:
        done.append(f"make {path}")
        os.mkdir(path)

    make_directories("disk/brokers", mkdir, lambda path: done.append(f"sync {path}"))
    make_directories("disk", mkdir, lambda path: done.append(f"sync {path}"))
    assert done == ["make disk", "sync .", "make disk/brokers", "sync disk"]


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    for directory in (tmp_path / "link", tmp_path / "link" / "brokers"):
        with pytest.raises(NotADirectoryError) as refused:
            make_directories(str(directory), os.mkdir, lambda path: None)
        assert refused.value.filename == str(tmp_path / "link")


def test_a_directory_that_another_process_makes_meanwhile_is_taken_as_it_is(tmp_path: Path) -> None:
    def made_twice(path: str) -> None:
        os.mkdir(path)  # by the other one
        os.mkdir(path)

    synced: list[str] = []
    make_directories(str(tmp_path / "disk" / "brokers"), made_twice, synced.append)
    assert (tmp_path / "disk" / "brokers").is_dir()
    assert synced == [str(tmp_path), str(tmp_path / "disk")]
