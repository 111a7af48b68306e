"""What is told of a file that the system refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from pwd import getpwuid

import pytest

from kafkad.refusals import failure


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("/data/a", "log directory /data/a: reading it: Not a directory"),
        ("/data", "log directory /data/a: reading it: /data: Not a directory"),
        ("/data/a/b", "log directory /data/a: reading it: /data/a/b: Not a directory"),
        (None, "log directory /data/a: reading it: Not a directory"),
    ],
)
def test_the_file_is_named_where_no_other_words_name_it(file: str | None, told: str) -> None:
    error = OSError(errno.ENOTDIR, "Not a directory", file)
    assert failure("log directory /data/a: reading it", error, "/data/a") == told


def test_of_a_directory_above_that_is_another_users_nothing_is_advised_that_would_not_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "a" / "b c"
    owner, me = getpwuid(os.geteuid()).pw_name, os.geteuid() + 4_000_000
    monkeypatch.setattr(os, "geteuid", lambda: me)
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "a"))
    told = f"opening it: {tmp_path}/a: Permission denied ({tmp_path} belongs to {owner}, and kafkad runs as {me}"
    assert failure("opening it", error, str(directory)) == f"{told}: install -d -o {me} '{directory}')"
    monkeypatch.setattr(os, "access", lambda path, mode: path == str(tmp_path) and mode == os.F_OK)
    passing = f"setfacl -m u:{me}:x {tmp_path}, or chmod o+x {tmp_path}"
    assert failure("opening it", error, str(directory)) == f"{told}, whom it has to let pass: {passing})"
