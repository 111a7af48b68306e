"""Kafka's own command line tools print at three kafkads what they print at three of Kafka 3.9; see printed.py."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import printed
from tests.clients.conftest import needs
from tests.clients.one_jvm import Tools
from tests.clients.three_tools import SETTINGS, THREE_SESSION, run_three_session
from tests.cluster.processes import Cluster
from tests.oracle.kafka import VERSIONS

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(1200)]

EXPECTED = printed.load(printed.FILE_OF_THREE)


@pytest.fixture(scope="session")
def at_three(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], printed.Session]:
    """The whole session with the tools of one release, run once."""

    @functools.cache
    def run(release: str) -> printed.Session:
        directory = tmp_path_factory.mktemp("tools")
        with Cluster(directory, settings=SETTINGS) as cluster, Tools(release) as tools:
            return run_three_session(tools.run, cluster, directory)

    return run


class OneRelease:
    """A class for each release: one worker of xdist has the session of one."""

    release: str

    @pytest.mark.parametrize("step", [step.name for step in THREE_SESSION])
    def test_tool_prints_the_same(self, at_three: Callable[[str], printed.Session], step: str) -> None:
        needs("3.9", self.release)
        assert at_three(self.release)[step] == EXPECTED[self.release][step]


@pytest.mark.client("Kafka's tools 3.9 on three brokers", "{step}")
class TestTools39(OneRelease):
    release = "3.9"


@pytest.mark.client("Kafka's tools 4.3 on three brokers", "{step}")
class TestTools43(OneRelease):
    release = "4.3"


@pytest.mark.long
@pytest.mark.parametrize("release", VERSIONS)
def test_kafka_still_prints_so(release: str, tmp_path: Path) -> None:
    needs("3.9", release)
    assert printed.at_three_kafkas(release, tmp_path) == EXPECTED[release]
