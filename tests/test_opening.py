from __future__ import annotations

import os
from pathlib import Path

from kafkad.opening import open_at_once


def test_a_pipe_that_nobody_writes_to_is_opened_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "pipe", "rb", opener=open_at_once) as pipe:
        assert pipe.read() == b""


def test_a_file_is_made_as_by_os_open(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    fd = open_at_once("new", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=directory)
    assert os.fstat(fd).st_mode & 0o777 == 0o600
    os.close(fd)
    os.close(directory)
