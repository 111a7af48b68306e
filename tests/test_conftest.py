"""The rule of conftest.py holds: under CI=true a skip that nobody allowed fails the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ALLOWED_SKIPS

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).with_name("conftest.py")


@pytest.mark.parametrize(("ci", "status"), [("true", pytest.ExitCode.TESTS_FAILED), ("", pytest.ExitCode.OK)])
def test_skip_fails_only_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, ci: str, status: int
) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile("import pytest\ndef test_it(): pytest.skip('no reason that is allowed')")
    monkeypatch.setenv("CI", ci)
    result = pytester.runpytest_subprocess("-p", "no:randomly")
    assert result.ret == status
    result.stdout.fnmatch_lines(["*test_it: no reason that is allowed"])


def test_allowed_skip_passes_in_ci(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(f"import pytest\ndef test_it(): pytest.skip({ALLOWED_SKIPS[0]!r})")
    monkeypatch.setenv("CI", "true")
    assert pytester.runpytest_subprocess("-p", "no:randomly").ret == pytest.ExitCode.OK
