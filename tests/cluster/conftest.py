"""A cluster that several tests share, of kafkads and, for those who have long, of Kafka 3.9's brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.history import Load, new_load
from tests.cluster.processes import KINDS, Cluster

NewCluster = Callable[..., Cluster]

_numbers = count(1)


def _by_kind() -> list[object]:
    return [pytest.param(kind, marks=[pytest.mark.long] if kind == "kafka" else []) for kind in KINDS]


class SharedCluster:
    """A running cluster, and another one when a test has failed on it."""

    def __init__(self, directory: Path, kind: str) -> None:
        self._directory = directory
        self._kind = kind
        self._cluster: Cluster | None = None

    def get(self) -> Cluster:
        if self._cluster is None:
            directory = self._directory / str(next(_numbers))
            self._cluster = Cluster(directory, kind=self._kind).__enter__()
        return self._cluster

    def close(self, error: Exception | None = None) -> None:
        """With the brokers' logs if a test has failed."""
        if self._cluster is not None:
            self._cluster.__exit__(type(error) if error else None, error, None)
            self._cluster = None


@pytest.fixture(scope="module", params=_by_kind())
def kind(request: pytest.FixtureRequest) -> str:
    """Whose brokers a test is tried with."""
    return str(request.param)


@pytest.fixture(scope="module")
def shared_cluster(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedCluster]:
    shared = SharedCluster(tmp_path_factory.mktemp(kind), kind)
    yield shared
    shared.close()


@pytest.fixture
def cluster(shared_cluster: SharedCluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A test leaves all its brokers running and in sync."""
    cluster, failures = shared_cluster.get(), request.session.testsfailed
    yield cluster
    if request.session.testsfailed > failures or cluster.failed is not None:
        shared_cluster.close(cluster.failed or AssertionError("a test has failed"))
    else:
        cluster.heal_all()


@pytest.fixture
def new_cluster(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NewCluster]:
    """Starts a cluster, with the options of `Cluster`, for one test alone."""
    clusters: list[Cluster] = []
    failures = request.session.testsfailed

    def start(**options: Any) -> Cluster:
        clusters.append(Cluster(tmp_path, kind=kind, **options).__enter__())
        return clusters[-1]

    yield start
    for cluster in clusters:
        if request.session.testsfailed > failures:
            cluster.failed = AssertionError("a test has failed")
        cluster.__exit__(None, None, None)


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Load]:
    """Runs from before the test until its end, and is checked then."""
    load = new_load(cluster)
    try:
        with load:
            load.run(1)
            yield load
            load.until_all_go_on()
        load.check()
    except Exception as error:
        cluster.failed = error
        raise
