"""Files that kctl keeps for a later command."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.errors import Exit, KctlError
from kctl.texts.text_files import save_new, text_of, write


@pytest.fixture
def no_room() -> Iterator[None]:
    """Files get no longer than a few bytes; a disk without room says the same, by another number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_is_left_of_a_new_file_that_cannot_be_written(tmp_path: Path, no_room: None) -> None:
    path = tmp_path / "new.csv"
    with pytest.raises(KctlError) as told:
        write(str(path), "orders,0,12\n" * 9, "x")
    assert told.value.what == f"{path} cannot be written: File too large"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write(str(path), "mine")
    with pytest.raises(FileExistsError):
        write(str(path), "other", "x")
    assert text_of(str(path)) == "mine"


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KctlError, match=r"/nowhere/a\.csv cannot be written: No such file or directory") as told:
        write(str(tmp_path / "nowhere" / "a.csv"), "")
    assert told.value.exit_code is Exit.FAILED


def test_a_new_file_is_called_after_what_it_is_of_and_nothing_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda _: "20261130T101112")
    files = [save_new(tmp_path, names, "groups", ".csv", "") for names in (["../weird/gröup"], ["a", "b"])]
    first, second = (save_new(tmp_path, ["g" * 200], "groups", ".csv", text) for text in ("1", "2"))
    assert [file.name for file in files] == [".._weird_gr_up-20261130T101112.csv", "groups-20261130T101112.csv"]
    assert {file.parent for file in (*files, first, second)} == {tmp_path}
    assert (first.name, second.name) == (f"{'g' * 150}-20261130T101112.csv", f"{'g' * 150}-20261130T101112-2.csv")
    assert (first.read_text(), second.read_text()) == ("1", "2")
