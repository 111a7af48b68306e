"""Reading and writing in pieces: the same bytes as at once. What is told of a disk that refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from pwd import getpwuid

import pytest

from kafkad.log.files import Files, storage_error
from tests.fakes import FaultyFiles


@pytest.mark.parametrize("size", [0, 1, 32 << 10, (32 << 10) + 1, 100_000])
def test_pieces_are_the_whole(tmp_path: Path, size: int) -> None:
    files = Files()
    file = files.open_log_file(str(tmp_path / "a.log"), os.O_RDWR | os.O_CREAT)
    data = os.urandom(size)
    files.write_in_pieces(file.fd, data, 7)
    assert files.read_in_pieces(file.fd, size, 7) == data
    assert files.read_in_pieces(file.fd, size + 50_000, 7) == data, "the file ends before"
    assert file.size == (7 + size if size else 0)


def test_a_piece_that_is_cut_short_is_an_error(tmp_path: Path) -> None:
    files = FaultyFiles()
    file = files.open_log_file(str(tmp_path / "a.log"), os.O_RDWR | os.O_CREAT)
    files.shorten_next_write(10)
    with pytest.raises(OSError, match="No space left"):
        files.write_in_pieces(file.fd, bytes(100_000), 0)


@pytest.mark.parametrize("operation", ["open", "create", "pwrite", "sync", "rename"])
@pytest.mark.parametrize("calls", range(3))
def test_after_an_error_that_may_pass_a_file_is_as_it_was(tmp_path: Path, operation: str, calls: int) -> None:
    """A checkpoint is not to say more than is known of it."""
    files = FaultyFiles()
    path = tmp_path / "file"
    files.write_file(str(path), b"old")
    files.fail(operation, errno.ENOSPC, after=calls)
    try:
        files.write_file(str(path), b"new")
    except OSError as error:
        assert path.read_bytes() == b"old" or error.errno == errno.EIO
    else:
        assert path.read_bytes() == b"new"


def refusal(path: Path | str, code: int = errno.EACCES) -> OSError:
    return OSError(code, os.strerror(code), str(path))


def test_an_error_names_the_file_once(tmp_path: Path) -> None:
    partition = f"{tmp_path}/a-0"
    for error, told in (
        (refusal(f"{partition}/0.log", errno.EISDIR), f"opening it in {partition}: {partition}/0.log: Is a directory"),
        (refusal(partition, errno.EIO), f"opening it in {partition}: Input/output error"),
        (OSError(errno.EIO, "it is gone"), f"opening it in {partition}: it is gone"),
    ):
        assert str(storage_error(partition, "opening it", error)) == told


def test_of_a_file_that_is_another_users_the_owner_is_told_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = tmp_path / "a-0"
    partition.mkdir()
    (partition / "there.log").touch()
    owner, me = getpwuid(os.geteuid()).pw_name, os.geteuid() + 4_000_000
    for name, culprit in (("there.log", partition / "there.log"), ("not.log", partition)):
        error = refusal(partition / name)
        told = f"opening it in {partition}: {partition / name}: Permission denied"
        assert str(storage_error(str(partition), "opening it", error)) == told
        with monkeypatch.context() as patched:
            patched.setattr(os, "geteuid", lambda: me)
            advice = f" ({culprit} belongs to {owner}, and kafkad runs as {me}: chown -R {me} {tmp_path})"
            assert str(storage_error(str(partition), "opening it", error)) == told + advice
