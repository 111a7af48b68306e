"""Output of Kafka's own tools with real Kafka 3.9, kept in printed.jsonl; at three brokers, in printed_by_three.jsonl;
of those for rights, quotas and logins, in printed_of_security.jsonl.

    python -m tests.clients.printed one|three|security
        runs the whole session with the tools of each release at real Kafka 3.9, and writes the file anew (a long test
        holds it against them)

One line for each different outcome of a step, with the releases of the tools that have it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.clients import three_tools
from tests.clients.conftest import SETTINGS
from tests.clients.group_tools import run_group_session
from tests.clients.one_jvm import Tools
from tests.clients.security_tools import Ports, run_security_session
from tests.clients.tools import Outcome, Run, Step, run, run_session
from tests.cluster.processes import Cluster
from tests.oracle.kafka import VERSIONS, Kafka, free_port

FILE = Path(__file__).with_name("printed.jsonl")
FILE_OF_THREE = Path(__file__).with_name("printed_by_three.jsonl")
FILE_OF_SECURITY = Path(__file__).with_name("printed_of_security.jsonl")

Session = dict[str, Outcome]
"""Step → what it printed."""


def run_all(run: Run, bootstrap: str, directory: Path) -> Session:
    """The whole session at the broker of this address."""
    return run_session(run, bootstrap, directory) | run_group_session(run, bootstrap, directory)


def at_kafka(release: str, directory: Path) -> Session:
    """Each step in a process of its own, as users do."""

    with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka:
        return run_all(_in_process(release), kafka.bootstrap, directory)


def at_three_kafkas(release: str, directory: Path) -> Session:
    with Cluster(directory, settings=three_tools.SETTINGS, kind="kafka") as cluster:
        return three_tools.run_three_session(_in_process(release), cluster, directory)


def at_secured_kafka(release: str, directory: Path) -> Session:
    """All steps in one JVM."""
    ports = Ports(free_port(), free_port())
    with Kafka("3.9", port=ports.open, settings=ports.settings, heap="512m"), Tools(release) as tools:
        return run_security_session(tools.run, ports, directory)


def _in_process(release: str) -> Run:
    def in_process(step: Step, bootstrap: str, directory: Path) -> Outcome:
        return run(step, release, bootstrap, directory)

    return in_process


def load(file: Path = FILE) -> dict[str, Session]:
    """By release."""
    found: dict[str, Session] = {}
    for line in file.read_text().splitlines():
        kept = json.loads(line)
        step, releases = kept.pop("step"), kept.pop("releases")
        for release in releases:
            found.setdefault(release, {})[step] = Outcome(**kept)
    return found


def dump(found: dict[str, Session]) -> str:
    lines: dict[str, list[str]] = {}
    for release, session in found.items():
        for step, outcome in session.items():
            line = json.dumps({"step": step, **asdict(outcome), "releases": []}, ensure_ascii=False)
            lines.setdefault(line, []).append(release)
    return "".join(
        line.replace('"releases": []', f'"releases": {json.dumps(releases)}') + "\n" for line, releases in lines.items()
    )


def main() -> None:
    sessions = {
        "one": (FILE, at_kafka),
        "three": (FILE_OF_THREE, at_three_kafkas),
        "security": (FILE_OF_SECURITY, at_secured_kafka),
    }
    file, at = sessions[sys.argv[1]]
    with tempfile.TemporaryDirectory() as scratch:
        directories = {release: Path(scratch, release) for release in VERSIONS}
        for directory in directories.values():
            directory.mkdir()
        file.write_text(dump({release: at(release, directory) for release, directory in directories.items()}))


if __name__ == "__main__":
    main()
