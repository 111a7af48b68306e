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
from tests.oracle.kafka import Kafka, missing

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


class OneRelease:
    """A class for each release, so that one worker of xdist has the sessions of one with `--dist loadscope`."""

    release: str

    @pytest.mark.parametrize("step", [step.name for step in (*SESSION, *GROUP_SESSION)])
    def test_tool_prints_the_same(self, session: Session, step: str) -> None:
        for needed in {"3.9", self.release}:
            if reason := missing(needed):
                pytest.skip(reason)
        if self.release != "3.9" and step in KAFKA_4_SAYS:
            assert KAFKA_4_SAYS[step] in session("kafkad", self.release)[step].stdout
        else:
            assert session("kafkad", self.release)[step] == session("kafka", self.release)[step]


@pytest.mark.client("Kafka's tools 3.9", "{step}")
class TestTools39(OneRelease):
    release = "3.9"


@pytest.mark.client("Kafka's tools 4.3", "{step}")
class TestTools43(OneRelease):
    release = "4.3"
