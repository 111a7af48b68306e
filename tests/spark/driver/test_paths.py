from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkad_etl.driver.paths import Entry, LocalFiles


@pytest.fixture
def files() -> LocalFiles:
    return LocalFiles(os.path.abspath)


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost"])
def test_local_files_are_found_by_any_name_of_them(files: LocalFiles, tmp_path: Path, prefix: str) -> None:
    top = f"{prefix}{tmp_path}"
    assert files.under(f"{top}/missing") == []
    files.write(f"{top}/day=1/b", b"two")
    (tmp_path / "a").write_bytes(b"1")
    assert files.under(top) == [Entry("a", 1), Entry("day=1/b", 3)]
    assert files.read(f"{top}/day=1/b") == b"two"
    assert files.exists(f"{top}/day=1") and not files.exists(f"{top}/day=2")


def test_a_directory_that_cannot_be_listed_is_not_taken_for_empty(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(f"{tmp_path}/day=1/a", b"1")
    scan = os.scandir

    def scan_badly(path: str) -> Any:
        if path.endswith("day=1"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scan_badly)
    for directory in (tmp_path, tmp_path / "day=1"):
        with pytest.raises(OSError, match="Too many open files"):
            files.under(str(directory))


def test_what_vanishes_while_it_is_listed_is_left_out(files: LocalFiles, tmp_path: Path) -> None:
    files.write(f"{tmp_path}/a", b"1")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert files.under(str(tmp_path)) == [Entry("a", 1)]


def test_links_to_directories_are_not_followed(files: LocalFiles, tmp_path: Path) -> None:
    files.write(f"{tmp_path}/precious/p", b"1")
    files.write(f"{tmp_path}/out/a", b"1")
    for name, target in (("linked", "../precious"), ("loop", "."), ("file", "a")):
        (tmp_path / "out" / name).symlink_to(target)
    (tmp_path / "top").symlink_to("out")
    for top in ("out", "top"):
        assert files.under(f"{tmp_path}/{top}") == [Entry("a", 1), Entry("file", 1)]


def test_a_file_is_no_empty_directory(files: LocalFiles, tmp_path: Path) -> None:
    files.write(f"{tmp_path}/a", b"1")
    assert files.under(f"{tmp_path}/a") == [Entry("a", 1)]


def test_a_directory_is_removed_although_others_make_files_in_it_meanwhile(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(f"{tmp_path}/staging/a", b"1")
    remove, made = shutil.rmtree, [OSError(errno.ENOTEMPTY, "Directory not empty"), FileNotFoundError(errno.ENOENT, "")]

    def disturbed(path: str) -> None:
        if made:
            raise made.pop()
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", disturbed)
    files.remove(f"{tmp_path}/staging")
    assert os.listdir(tmp_path) == []


def test_the_room_of_a_path_that_is_not_there_yet_is_that_of_what_is_above_it(
    files: LocalFiles, tmp_path: Path
) -> None:
    assert files.free_bytes(f"{tmp_path}/not/yet") > 0


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
