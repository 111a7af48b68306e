"""Kafka's tools for ACLs, quotas, passwords and delegation tokens print with kafkad what they print with real Kafka;
see printed.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients import printed
from tests.clients.conftest import needs
from tests.clients.one_jvm import Tools
from tests.clients.security_tools import ACLS, KAFKAD_SAYS, SECURITY_SESSION, Ports, run_security_session
from tests.clients.tools import Outcome, run
from tests.oracle.kafka import VERSIONS, Kafka, free_port

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(1200)]

EXPECTED = printed.load(printed.FILE_OF_SECURITY)


@pytest.fixture(scope="session")
def at_kafkad(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], printed.Session]:
    """The whole session with the tools of one release, run once."""

    @functools.cache
    def run_session(release: str) -> printed.Session:
        directory, ports = tmp_path_factory.mktemp("tools"), Ports(free_port(), free_port())
        broker = KafkadProcess(directory / "kafkad", ports.settings)
        broker.port = ports.open
        with broker, Tools(release) as tools:
            return run_security_session(tools.run, ports, directory)

    return run_session


class OneRelease:
    """A class for each release: one worker of xdist has the session of one."""

    release: str

    @pytest.mark.parametrize("step", [step.name for step in SECURITY_SESSION])
    def test_tool_prints_the_same(self, at_kafkad: Callable[[str], printed.Session], step: str) -> None:
        needs(self.release)
        outcome = at_kafkad(self.release)[step]
        if step in KAFKAD_SAYS:
            assert KAFKAD_SAYS[step] in outcome.stdout + outcome.stderr
        else:
            assert outcome == EXPECTED[self.release][step]


@pytest.mark.client("Kafka's tools 3.9 for rights, quotas and logins", "{step}")
class TestTools39(OneRelease):
    release = "3.9"


@pytest.mark.client("Kafka's tools 4.3 for rights, quotas and logins", "{step}")
class TestTools43(OneRelease):
    release = "4.3"


@pytest.mark.long
@pytest.mark.parametrize("release", VERSIONS)
def test_kafka_still_prints_so(release: str, tmp_path: Path) -> None:
    needs("3.9", release)
    assert printed.at_secured_kafka(release, tmp_path) == EXPECTED[release]


@pytest.mark.long
def test_without_an_authorizer_the_tool_says_the_same(tmp_path: Path) -> None:
    needs("3.9")

    def outcomes(bootstrap: str) -> list[Outcome]:
        wanted = ("list no ACLs", "add for a producer", "remove what is not there")
        return [run(step, "3.9", bootstrap, tmp_path) for step in ACLS if step.name in wanted]

    with Kafka("3.9", heap="512m") as kafka:
        at_kafka = outcomes(kafka.bootstrap)
    with KafkadProcess(tmp_path / "kafkad") as kafkad:
        assert outcomes(kafkad.bootstrap) == at_kafka
