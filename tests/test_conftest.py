"""The rule of conftest.py holds: under CI=true a skip that nobody allowed fails the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ALLOWED_SKIPS, TIMES

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


def test_times_of_files_are_added_to_a_file(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times = tmp_path / "times"
    times.write_text("3.0\tother.py\n")
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(test_a="import time\ndef test_it(): time.sleep(0.3)", test_b="def test_it(): pass")
    monkeypatch.setenv(TIMES, str(times))
    assert pytester.runpytest_subprocess("-p", "no:randomly").ret == pytest.ExitCode.OK
    seconds = {path: float(taken) for taken, path in (line.split("\t") for line in times.read_text().splitlines())}
    assert seconds.keys() == {"other.py", "test_a.py", "test_b.py"}
    assert seconds["test_a.py"] >= 0.3 > seconds["test_b.py"]
