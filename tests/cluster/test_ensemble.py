"""kafkads on three ZooKeepers, of which some die or hang, under load with real clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.gaps import CLIENT_S, report
from tests.cluster.history import Load, new_load
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import Ensemble, ZooKeeper, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif(missing("3.9") is not None, reason=missing("3.9") or ""),
]

SESSION_S = 6
"""Long enough for the servers to elect a leader."""
AWAY_S = 1.5 * SESSION_S
LEADER_HANGS = "the leader hangs"


@contextmanager
def dead(*servers: ZooKeeper) -> Iterator[None]:
    for server in servers:
        server.kill()
    yield
    for server in servers:
        server.launch()
    for server in servers:
        server.wait_serving()


@contextmanager
def hanging(server: ZooKeeper) -> Iterator[None]:
    server.suspend()
    try:
        yield
    finally:
        server.resume()


FAULTS: dict[str, Callable[[Ensemble], AbstractContextManager[None]]] = {
    "the leader dies": lambda ensemble: dead(ensemble.leader),
    "a follower dies": lambda ensemble: dead(ensemble.followers[0]),
    "a majority dies": lambda ensemble: dead(*ensemble.followers),
    "a follower hangs": lambda ensemble: hanging(ensemble.followers[0]),
    LEADER_HANGS: lambda ensemble: hanging(ensemble.leader),
}


def test_servers_die_and_hang(tmp_path: Path) -> None:
    """All sessions go on, and nobody is elected; unless the leader hangs, which its followers wait for."""
    settings = {"zookeeper.session.timeout.ms": str(SESSION_S * 1000)}
    with Ensemble("3.9") as ensemble, Cluster(tmp_path, settings=settings, ensemble=ensemble) as cluster:
        load = new_load(cluster)
        with load:
            for what, fault in FAULTS.items():
                begun, before = time.monotonic(), elected(cluster, load)
                with fault(ensemble):
                    load.run(AWAY_S)
                load.run(SESSION_S)
                stays = what != LEADER_HANGS
                report(cluster, f"of ZooKeeper {what}", load, begun, at_most=CLIENT_S + (0 if stays else SESSION_S))
                assert elected(cluster, load) == before or not stays, what
        load.check()
        assert not [broker for broker in cluster.ids if "internal error" in cluster.brokers[broker].log]


def elected(cluster: Cluster, load: Load) -> tuple[int, list[Any]]:
    """The controller, and the states of all partitions."""
    return cluster.until_controller(), [cluster.state(load.topic, partition) for partition in load.partitions]
