"""The broker under test: kafkad and, in `make test-long`, real Kafka 3.9: no test asks for more than Kafka does."""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.broker import KafkadProcess
from tests.oracle.kafka import Kafka, missing


class Broker(Protocol):
    """The parts of a running broker, kafkad or real, that the suites use."""

    @property
    def bootstrap(self) -> str: ...

    def log_directory(self) -> Path: ...


SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}
TARGETS = ["kafkad", pytest.param("kafka-3.9", marks=[pytest.mark.long, pytest.mark.java])]


def needs(*releases: str) -> None:
    """Skips the test where a release of Kafka is missing."""
    for release in releases:
        if reason := missing(release):
            pytest.skip(reason)


@pytest.fixture(scope="session", params=TARGETS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if request.param == "kafkad":
        with KafkadProcess(tmp_path_factory.mktemp("kafkad"), SETTINGS) as kafkad:
            yield kafkad
    else:
        needs("3.9")
        with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka:
            yield kafka


_numbers = itertools.count(1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes topic names that no other test uses."""
    test = request.function.__name__.removeprefix("test_").replace("_", "-")
    return lambda: f"{test}-{next(_numbers)}"


@pytest.fixture(scope="session")
def franz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of `franz/`. The first build on a machine takes minutes."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    program = tmp_path_factory.mktemp("franz") / "franz-go"
    source = Path(__file__).parent / "franz"
    built = subprocess.run(["go", "build", "-o", program, "."], cwd=source, capture_output=True, text=True, timeout=900)
    assert built.returncode == 0, built.stderr
    return program
