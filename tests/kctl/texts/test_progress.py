from __future__ import annotations

import io

import pytest

from kctl.settings import Settings
from kctl.texts.progress import ProgressLine, bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "░" * 24 + "   0%"), (0.5, "█" * 12 + "░" * 12 + "  50%"), (1, "█" * 24 + " 100%"), (7, "█" * 24 + " 100%")],
)
def test_bar(share: float, text: str) -> None:
    assert bar(share) == text


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, quiet: bool = False) -> str:
    """Of a minute's work that tells its second every tenth of one."""
    monkeypatch.setattr("sys.stderr", stream)
    settings, now = Settings(), 0.0
    settings.quiet = quiet
    progress = ProgressLine(settings, lambda: now)
    for tenth in range(600):
        now = tenth / 10
        progress.show("{:g}".format, now)
    progress.clear()
    return stream.getvalue()


def test_a_line_every_ten_seconds_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == "10\n20\n30\n40\n50\n"


def test_one_line_that_changes_on_a_terminal_and_goes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal())
    assert text.startswith("\r\x1b[K0.2\r\x1b[K0.4")
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text


def test_a_line_that_is_too_long_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv("COLUMNS", "20")
    now = 0.0
    progress = ProgressLine(Settings(), lambda: now)
    now = 1.0
    progress.show(lambda: "0123456789" * 3)
    progress.say("stays")
    assert terminal.getvalue() == "\r\x1b[K0123456789012345678\r\x1b[Kstays\n"


def test_no_name_steers_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream := io.StringIO())
    ProgressLine(Settings()).say("evil\x1b[2J\ngone")
    assert stream.getvalue() == "evil\\x1b[2J\\ngone\n"


def test_nothing_when_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, Terminal(), quiet=True) == ""
    assert shown(monkeypatch, io.StringIO(), quiet=True) == ""
