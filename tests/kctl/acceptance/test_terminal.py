"""On narrow terminals, with unusual names, and when whoever reads goes away."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.kctl.acceptance.conftest import Cluster

NewTopic = Callable[..., str]
Send = Callable[..., None]

WIDTH = 60
LONG = "accept-" + "long.name_" * 24 + "xy"
GROUP = "prüfung 検査 🦊"

pytestmark = pytest.mark.parametrize("cluster", ["broker"], indirect=True)


def on_a_terminal(command: list[str], width: int) -> tuple[int, list[str]]:
    """The exit code, and the lines on a screen of so many columns."""
    screen, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "", "LINES": "", "NO_COLOR": "1"}
    with subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=environment) as process:
        os.close(end)
        shown = bytearray()
        while True:
            try:
                part = os.read(screen, 65536)
            except OSError:  # how Linux tells that nobody writes any more
                break
            if not part:
                break
            shown += part
        os.close(screen)
        code = process.wait(60)
    return code, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()).replace("\r\n", "\n").splitlines()


def cells(line: str) -> int:
    return sum(0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF") for sign in line)


def test_fits_a_narrow_terminal(cluster: Cluster, topic: NewTopic, send: Send, tmp_path: Path) -> None:
    assert len(LONG) == 249
    topic(LONG, 2)
    send(LONG, {"value": "x"})
    back = ("groups", "reset-offsets", GROUP, "--topic", LONG, "--to", "earliest", "-y", "--undo-dir", tmp_path)
    cluster.does(*back)
    commands = [
        ("topics", "list", LONG),
        ("groups", "list", GROUP),
        ("groups", "lag", GROUP),
        ("groups", "describe", GROUP),
        ("partitions", "list", LONG),
        ("brokers", "list"),
    ]
    for words in commands:
        code, lines = on_a_terminal(cluster.command(*words, "--no-pager"), WIDTH)
        head = next(at for at, line in enumerate(lines) if line.isupper())
        table = [line for line in lines[head:] if "  " in line]  # sentences may go on in the next line
        assert (code, [line for line in table if cells(line) > WIDTH]) == (Exit.DONE, []), words
        assert words[0] == "brokers" or any("…" in line for line in lines), "text is cut, numbers are not"
    for words in (("topics", "describe", LONG), ("cluster", "describe")):
        code, lines = on_a_terminal(cluster.command(*words, "--no-pager"), WIDTH)
        assert (code, "Traceback" in "".join(lines)) == (Exit.DONE, False), words
    assert cluster.does("topics", "list", LONG, "-o", "name").out == f"{LONG}\n", "nothing is cut in a pipe"
    assert cluster.does("groups", "list", GROUP, "-o", "name").out == f"{GROUP}\n"
    assert LONG in cluster.does("topics", "list", LONG).out
    cluster.does("groups", "delete", GROUP, "-y", "--undo-dir", tmp_path)


def test_a_reader_that_has_seen_enough(cluster: Cluster, topic: NewTopic, send: Send) -> None:
    name = topic("accept-head")
    send(name, *({"value": "x" * 1000} for _ in range(300)))
    for words in (("consume", name), ("partitions", "list", name), ("topics", "list", "-o", "json")):
        with subprocess.Popen(cluster.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout and process.stderr
            assert process.stdout.readline()
            process.stdout.close()
            assert (process.stderr.read(), process.wait(60)) == (b"", Exit.DONE), words


@pytest.mark.timeout(60)
def test_ctrl_c(cluster: Cluster, topic: NewTopic) -> None:
    words = ("topics", "list", topic("accept-watched"), "--watch=1")
    with subprocess.Popen(cluster.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == Exit.INTERRUPTED
        assert process.stderr.read().decode().splitlines() == ["interrupted"]
