"""A pytest plugin that writes docs/compatibility.md from what the client suites found: `make compatibility`.

A test marked `client(name, label)` gives one row of the table `name`; the label may name the test's parameters in
braces and is otherwise made of the test's own name. With --compatibility-check the page is not written: the run fails
when it differs from what the run found, but for the line that names versions.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.oracle.kafka import VERSIONS, jars_directory

PAGE = Path(__file__).parent.parent / "docs" / "compatibility.md"
GO_MODULE = Path(__file__).parent / "clients" / "franz" / "go.mod"
TRIED = "Tried with "
HEAD = """# Compatibility

Every row is a test of `tests/clients`, run against kafkad by `make compatibility`, which wrote this page. Tests of
clients also run against real Kafka 3.9, so that none asks for more than Kafka does. Kafka's command line tools have to
print what they print with real Kafka 3.9, but for ids, times and directories; answers to raw requests have to be equal,
field by field, to those of Kafka 3.9, or of 4.3 in the versions that 3.9 does not serve.
"""
API_VERSIONS = "API versions"

_rows: dict[str, dict[str, str]] = {}
"""Client → what was tried → result."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--compatibility-check", action="store_true", help="compare docs/compatibility.md, do not write it"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    marker = item.get_closest_marker("client")
    parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    if marker is None or parameters.pop("broker", "kafkad") != "kafkad":
        return
    label = marker.args[1] if len(marker.args) > 1 else None
    if label is None:
        words = item.originalname.removeprefix("test_").replace("_", " ")  # type: ignore[attr-defined]
        label = ", ".join([words, *(f"{name} {value}" for name, value in parameters.items())])
    item.user_properties.append(("client", (marker.args[0], label.format(**parameters))))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    client = dict(report.user_properties).get("client")
    if client is None or (report.when != "call" and report.passed):
        return
    name, label = client
    result = "works" if report.passed else "not tried" if report.skipped else "fails"
    _rows.setdefault(name, {})[label] = result


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput") or not _rows:  # a worker of xdist: its reports go to the controller
        return
    if session.config.getoption("lf", False):  # a few of the tests, tried once more: the page is that of all
        return
    page = HEAD + f"\n{TRIED}{', '.join(versions())}.\n" + "".join(table(name, _rows[name]) for name in sorted(_rows))
    if not session.config.getoption("--compatibility-check"):
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page)
    elif stable(page) != stable(PAGE.read_text()):
        print(f"\n{PAGE} is not what this run found: make compatibility")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def stable(page: str) -> list[str]:
    return [line for line in page.splitlines() if not line.startswith(TRIED)]


def versions() -> list[str]:
    found = [f"{name} {importlib.metadata.version(name)}" for name in ("confluent-kafka", "kafka-python", "aiokafka")]
    for version in VERSIONS:
        jars = jars_directory(version).glob("kafka-tools-[0-9]*.jar")
        found += [f"Kafka's tools {jar.stem.removeprefix('kafka-tools-')}" for jar in jars]
    found += re.findall(r"(?<=twmb/)(franz-go v\S+)", GO_MODULE.read_text())[:1]
    if program := shutil.which("kcat"):
        said = subprocess.run([program, "-V"], capture_output=True, text=True, check=True).stdout
        found += [f"kcat {line.split()[1]}" for line in said.splitlines() if line.startswith("Version ")]
    return found


def table(name: str, rows: dict[str, str]) -> str:
    if name == API_VERSIONS:
        rows = by_api(rows)
    lines = [f"| {label} | {result} |\n" for label, result in sorted(rows.items())]
    return f"\n## {name}\n\n| tried | result |\n|---|---|\n" + "".join(lines)


def by_api(rows: dict[str, str]) -> dict[str, str]:
    """Rows of `api version` put together: `api first-last`, those with another result than the rest on their own."""
    grouped: dict[tuple[str, str], list[int]] = {}
    for label, result in rows.items():
        api, version = label.split()
        grouped.setdefault((api, result), []).append(int(version))
    return {f"{api} {spans(sorted(found))}": result for (api, result), found in grouped.items()}


def spans(numbers: list[int]) -> str:
    """`[0, 1, 2, 5]` as `0-2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
