"""What every test shares: the rule that continuous integration skips nothing unseen."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("kafkad", deadline=None)  # a busy machine is no failure
settings.register_profile("ci", deadline=None, derandomize=True)  # what a run there says must not depend on the run
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "kafkad"))

ALLOWED_SKIPS: tuple[str, ...] = ("mounting a small disk needs root",)
"""Beginnings of the reasons for which a test may be skipped under CI=true; anything else there fails the run.

Only what a person must grant belongs here: programs that are missing can be installed."""

_skipped: list[tuple[str, str]] = []


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _remember(report)


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
    if in_ci() and exitstatus == pytest.ExitCode.OK and unexpected_skips():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped:
        terminalreporter.section("skipped")
        for test, reason in sorted(_skipped):
            terminalreporter.line(f"{test}: {reason}")
    if in_ci() and unexpected_skips():
        terminalreporter.line("Under CI=true each skip above whose reason is not allowed fails the run.", red=True)
