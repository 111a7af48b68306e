"""Kafka's own command line tools print with kafkad what they print with real Kafka 3.9; see printed.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients import printed
from tests.clients.conftest import SETTINGS, needs
from tests.clients.group_tools import GROUP_SESSION, KAFKA_4_SAYS
from tests.clients.one_jvm import Tools
from tests.clients.tools import SESSION
from tests.oracle.kafka import VERSIONS

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(1200)]

EXPECTED = printed.load()


@pytest.fixture(scope="session")
def at_kafkad(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], printed.Session]:
    """The whole session with the tools of one release, run once."""

    @functools.cache
    def run(release: str) -> printed.Session:
        directory = tmp_path_factory.mktemp("tools")
        with KafkadProcess(directory / "kafkad", SETTINGS) as kafkad, Tools(release) as tools:
            return printed.run_all(tools.run, kafkad.bootstrap, directory)

    return run


class OneRelease:
    """A class for each release, so that one worker of xdist has the session of one with `--dist loadscope`."""

    release: str

    @pytest.mark.parametrize("step", [step.name for step in (*SESSION, *GROUP_SESSION)])
    def test_tool_prints_the_same(self, at_kafkad: Callable[[str], printed.Session], step: str) -> None:
        needs(self.release)
        outcome = at_kafkad(self.release)[step]
        if self.release != "3.9" and step in KAFKA_4_SAYS:
            assert KAFKA_4_SAYS[step] in outcome.stdout
        else:
            assert outcome == EXPECTED[self.release][step]


@pytest.mark.client("Kafka's tools 3.9", "{step}")
class TestTools39(OneRelease):
    release = "3.9"


@pytest.mark.client("Kafka's tools 4.3", "{step}")
class TestTools43(OneRelease):
    release = "4.3"


@pytest.mark.long
@pytest.mark.parametrize("release", VERSIONS)
def test_kafka_still_prints_so(release: str, tmp_path: Path) -> None:
    needs("3.9", release)
    assert printed.at_kafka(release, tmp_path) == EXPECTED[release]
