"""ZooKeeper is away, or has lost everything, under load with real clients."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.gaps import CLIENT_S, report
from tests.cluster.history import Load, new_load
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

LONG_SESSION_S = 8
"""Long enough for a busy machine."""


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    return new_cluster(settings={"zookeeper.session.timeout.ms": str(LONG_SESSION_S * 1000)})


@pytest.mark.parametrize("seconds", [LONG_SESSION_S + 1, 60])
def test_killed_and_started_again(cluster: Cluster, load: Load, seconds: int) -> None:
    """All sessions have their whole time again when it is back."""
    begun, controller = time.monotonic(), cluster.until_controller()
    states = [cluster.state(load.topic, p) for p in load.partitions]
    cluster.zookeeper.kill()
    load.run(seconds)
    cluster.zookeeper.start()
    assert cluster.until_controller() == controller
    load.run(LONG_SESSION_S + 1)
    report(cluster, f"ZooKeeper away for {seconds} s", load, begun, at_most=CLIENT_S)
    assert cluster.controller == controller
    assert [cluster.state(load.topic, p) for p in load.partitions] == states, "sessions go on, nobody is elected"


def test_it_loses_its_data(cluster: Cluster, tmp_path: Path) -> None:
    """Brokers keep their logs when ZooKeeper knows nothing of them; all is there again with a copy of its data."""
    load, copy = new_load(cluster), tmp_path / "copy"
    with load:
        load.run(2)
        cluster.zookeeper.kill()
        shutil.copytree(cluster.zookeeper.data, copy)
        cluster.zookeeper.lose_data()
        cluster.zookeeper.start()
        load.run(2 * LONG_SESSION_S)
        assert all(load.segments(broker, partition) for broker in cluster.ids for partition in load.partitions)
        for broker in cluster.ids:
            if cluster.brokers[broker].alive():
                cluster.kill(broker)
        cluster.zookeeper.kill()
        cluster.zookeeper.lose_data()
        shutil.copytree(copy, cluster.zookeeper.data, dirs_exist_ok=True)
        cluster.zookeeper.start()
        for broker in cluster.ids:
            cluster.start(broker, wait=False)
        load.until_all_go_on(seconds=120)
    load.check()
