from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkad_etl.driver.paths import Entry, LocalFiles


@pytest.fixture
def files() -> LocalFiles:
    return LocalFiles(os.path.abspath)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_local_files_are_found_by_any_name_of_them(files: LocalFiles, tmp_path: Path, prefix: str) -> None:
    top = f"{prefix}{tmp_path}"
    assert files.under(f"{top}/missing") == []
    files.write(f"{top}/day=1/b", b"two")
    (tmp_path / "a").write_bytes(b"1")
    assert files.under(top) == [Entry("a", 1), Entry("day=1/b", 3)]
    assert files.read(f"{top}/day=1/b") == b"two"
    assert files.exists(f"{top}/day=1") and not files.exists(f"{top}/day=2")


def test_a_rename_makes_the_directories_above_its_target(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    files.rename(f"{tmp_path}/a", f"file:{tmp_path}/x/y/b")
    assert files.under(str(tmp_path)) == [Entry("x/y/b", 1)]


def test_what_is_removed_may_be_a_file_a_directory_a_link_or_nothing(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    files.write(f"{tmp_path}/kept/a", b"")
    files.write(f"{tmp_path}/gone/a", b"")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    for name in ("gone", "link", "never-there"):
        files.remove(f"{tmp_path}/{name}")
    assert sorted(os.listdir(tmp_path)) == ["kept"]
    assert os.listdir(tmp_path / "kept") == ["a"]


def test_only_an_empty_directory_is_removed_as_empty(files: LocalFiles, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    files.write(f"{tmp_path}/full/a", b"")
    for name in ("empty", "full", "missing"):
        files.remove_if_empty(f"{tmp_path}/{name}")
    assert os.listdir(tmp_path) == ["full"]
