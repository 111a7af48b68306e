"""Shared parts of all tests: the rule that continuous integration skips nothing unseen, and where its time goes."""

from __future__ import annotations

import gc
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("kafkad", deadline=None)  # a busy machine is no failure
settings.register_profile("ci", deadline=None, derandomize=True)  # what a run there says must not depend on the run
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "kafkad"))

ALLOWED_SKIPS: tuple[str, ...] = ("mounting a small disk needs root", "mounting an overlay needs root")
"""Beginnings of the reasons for which a test may be skipped under CI=true; anything else there fails the run.

Only what a person must grant belongs here: programs that are missing can be installed."""

TIMES = "KAFKAD_TEST_TIMES"
"""Names a file to which each run adds a line for each test file: seconds, tab, path. `.ci/run` prints the slowest."""

_skipped: list[tuple[str, str]] = []
_seconds: Counter[str] = Counter()


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def pytest_collection_finish() -> None:
    """Whoever looks for garbage passes over ten thousand tests and the modules, which take a second to go through."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _remember(report)
    _seconds[report.nodeid.partition("::")[0]] += report.duration


@pytest.hookimpl(tryfirst=True)
def pytest_collectreport(report: pytest.CollectReport) -> None:
    _remember(report)


def _remember(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append((report.nodeid, reason.removeprefix("Skipped: ")))


def unexpected_skips() -> list[tuple[str, str]]:
    return [(test, reason) for test, reason in _skipped if not reason.startswith(ALLOWED_SKIPS)]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    _note_times(session.config)
    if in_ci() and exitstatus == pytest.ExitCode.OK and unexpected_skips():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _note_times(config: pytest.Config) -> None:
    if os.environ.get(TIMES) and not hasattr(
        config, "workerinput"
    ):  # a worker of xdist: its reports reach the controller
        with Path(os.environ[TIMES]).open("a") as file:
            file.writelines(f"{seconds:.1f}\t{path}\n" for path, seconds in _seconds.items())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped:
        terminalreporter.section("skipped")
        for test, reason in sorted(_skipped):
            terminalreporter.line(f"{test}: {reason}")
    if in_ci() and unexpected_skips():
        terminalreporter.line("Under CI=true each skip above whose reason is not allowed fails the run.", red=True)
