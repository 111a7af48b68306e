"""One broker for all tests of a module: what one of them leaves behind is what the next one meets."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkad.log.check import check
from tests.fuzz.running import RunningBroker

KAFKAS_LOGS = Path(__file__).parent.parent / "golden" / "logs" / "main"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Started on what a real Kafka left, so that requests of the time find their topics."""
    home = tmp_path_factory.mktemp("broker")
    directory = home / "logs"
    shutil.copytree(KAFKAS_LOGS, directory, copy_function=shutil.copyfile)
    running = RunningBroker([directory, home / "second"])
    running.complaints.seen.clear()
    yield running
    status = running.stop()
    assert (status, running.complaints.seen) == (0, [])
    left = [path for path in (*directory.iterdir(), *(home / "second").iterdir()) if path.is_dir()]
    assert [problem for path in left if not path.name.endswith("-delete") for problem in check(str(path))] == []
