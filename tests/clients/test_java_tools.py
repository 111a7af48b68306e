"""Kafka's own command line tools print with kafkad what they print with real Kafka 3.9."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients.conftest import SETTINGS
from tests.clients.group_tools import GROUP_SESSION, KAFKA_4_SAYS, run_group_session
from tests.clients.tools import SESSION, Outcome, run_session
from tests.oracle.kafka import VERSIONS, Kafka, missing

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(1200)]

Session = Callable[[str, str], dict[str, Outcome]]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The whole session with the tools of one version at kafkad or Kafka, run once each."""

    @functools.cache
    def run(broker: str, version: str) -> dict[str, Outcome]:
        directory = tmp_path_factory.mktemp("tools")
        if broker == "kafkad":
            with KafkadProcess(directory / "kafkad", SETTINGS) as kafkad:
                return run_all(version, kafkad.bootstrap, directory)
        with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka:
            return run_all(version, kafka.bootstrap, directory)

    return run


def run_all(version: str, bootstrap: str, directory: Path) -> dict[str, Outcome]:
    return run_session(version, bootstrap, directory) | run_group_session(version, bootstrap, directory)


def tool_versions() -> list[object]:
    return [
        pytest.param(
            version, marks=[pytest.mark.client(f"Kafka's tools {version}", "{step}"), pytest.mark.xdist_group(version)]
        )
        for version in VERSIONS
    ]


@pytest.mark.parametrize("step", [step.name for step in (*SESSION, *GROUP_SESSION)])
@pytest.mark.parametrize("version", tool_versions())
def test_tool_prints_the_same(session: Session, version: str, step: str) -> None:
    for needed in {"3.9", version}:
        if reason := missing(needed):
            pytest.skip(reason)
    if version != "3.9" and step in KAFKA_4_SAYS:
        assert KAFKA_4_SAYS[step] in session("kafkad", version)[step].stdout
    else:
        assert session("kafkad", version)[step] == session("kafka", version)[step]
