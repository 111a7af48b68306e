"""--watch: what fits the screen, and what an outage does."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl

import pytest

from kctl.command.watching import fitted, watch
from kctl.errors import Exit, KctlError
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl


def test_a_picture_fits_the_screen() -> None:
    lines = [f"line {number}" for number in range(203)]
    assert fitted("title", lines[:3], ["note"], 10) == ["title", "line 0", "line 1", "line 2", "note"]
    shown = fitted("title", lines, ["note"], 10)
    assert shown == ["title", *lines[:7], "… 196 more lines", "note"]
    assert len(fitted("title", lines, [], 1)) == 2


class Looks:
    """Looks that fail as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *failing: KctlError | None) -> None:
        self.failing = list(failing)
        self.count = 0
        monkeypatch.setattr(time, "sleep", lambda seconds: None)

    def take(self) -> int:
        self.count += 1
        if self.failing and (error := self.failing.pop(0)):
            raise error
        return Exit.DONE

    def watch(self) -> int:
        return watch(Settings(), 1, self.take, lambda: "", lambda code: not self.failing)


GONE = KctlError("no broker answered", exit_code=Exit.UNREACHABLE)


def test_an_outage_is_told_and_waited_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    looks = Looks(monkeypatch, None, GONE, GONE, None)
    assert (looks.watch(), looks.count) == (Exit.DONE, 4)
    assert capsys.readouterr().err == "error: no broker answered\n" * 2


@pytest.mark.parametrize(
    "failing", [(GONE,), (None, KctlError("no rights", exit_code=Exit.UNAUTHORIZED))], ids=["at first", "else"]
)
def test_other_errors_end_it(monkeypatch: pytest.MonkeyPatch, failing: tuple[KctlError | None, ...]) -> None:
    with pytest.raises(KctlError):
        Looks(monkeypatch, *failing, None).watch()


@pytest.mark.parametrize("words", [("topics", "list"), ("groups", "lag")])
def test_on_a_terminal_the_first_line_stays(on_broker: Kctl, broker: KafkadProcess, words: tuple[str, ...]) -> None:
    on_broker("topics", "create", *(f"watched-{number:02}" for number in range(30)), "-p", 1, "-r", 1)
    leader, follower = pty.openpty()
    ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 100, 0, 0))
    command = [sys.executable, "-m", "kctl", "-b", broker.bootstrap, *words, "--watch=0.1"]
    environment = {**os.environ, "TERM": "xterm", "LINES": "", "COLUMNS": ""}
    with subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        text = _read_until(leader, 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == Exit.INTERRUPTED
    os.close(leader)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert (
        len(re.findall(rf"kctl {' '.join(words)}  cluster \S+  \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  every 0.1s", plain))
        >= 3
    )
    picture = plain.split(f"kctl {' '.join(words)}")[1]
    assert picture.count("\n") <= 12
    if words == ("topics", "list"):
        assert "more lines" in picture


def _read_until(terminal: int, pictures: int) -> str:
    text = b""
    end = time.monotonic() + 60
    while text.count(b"every 0.1s") < pictures and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 65536)
    return text.decode()
