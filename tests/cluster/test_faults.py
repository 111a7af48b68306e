"""Faults of a cluster under load, with real clients: what they cost, and that nothing is lost or doubled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.history import Load, create
from tests.cluster.processes import LAG_MS, SESSION_MS, Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(300),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

TOPIC = "loaded"
ASSIGNMENT = ([1, 2, 3], [2, 3, 1], [3, 1, 2])
"""Broker n leads partition n - 1."""
SESSION_S = SESSION_MS / 1000
LONG_SESSION_S = 10
LAG_S = LAG_MS / 1000
CLIENT_S = 5.0
"""What a client and a busy machine may add: back-off, refresh of metadata, requests that time out."""


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A parameter is for settings of all its brokers."""
    with Cluster(tmp_path, settings=getattr(request, "param", None)) as cluster:
        create(cluster, TOPIC, *ASSIGNMENT)
        yield cluster


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Load]:
    """Runs from before the test until its end, and is checked then."""
    load = Load(cluster, TOPIC, len(ASSIGNMENT))
    with load:
        load.run(1)
        yield load
        load.until_all_go_on()
    load.check()


def whole(cluster: Cluster) -> float:
    return cluster.until(lambda: cluster.is_whole(TOPIC, len(ASSIGNMENT)), "all replicas are in sync")


def report(what: str, load: Load, since: float, at_most: float) -> None:
    """Prints the longest time without an acknowledgement, and fails where it is too long."""
    load.until_all_go_on()
    gaps = {partition: round(load.gap(since, partition), 2) for partition in load.partitions}
    print(f"{what}: longest gap by partition {gaps}; session {SESSION_S} s")
    assert max(gaps.values()) <= at_most


def test_without_a_fault(cluster: Cluster, load: Load) -> None:
    begun = time.monotonic()
    load.run(3)
    report("no fault", load, begun, at_most=1)


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_killed_and_started_again(cluster: Cluster, load: Load, victim: str) -> None:
    """Each broker leads one partition and follows the others'."""
    controller = cluster.controller
    assert controller is not None
    broker = controller if victim == "controller" else cluster.peers(controller)[0]
    begun = time.monotonic()
    cluster.kill(broker)
    cluster.until(lambda: broker not in cluster.live(), "the session has ended")
    ended = time.monotonic() - begun
    report(f"{victim} killed, session over after {ended:.1f} s", load, begun, SESSION_S + CLIENT_S)
    cluster.start(broker)
    print(f"in-sync sets whole {whole(cluster):.2f} s after the restart")


def test_killed_and_started_at_once(cluster: Cluster, load: Load) -> None:
    """It waits for the session of its last process to end, and then serves."""
    begun = time.monotonic()
    cluster.kill(2)
    cluster.start(2)
    report("killed and started at once", load, begun, SESSION_S + CLIENT_S)
    whole(cluster)


def test_told_to_stop_one_after_the_other(cluster: Cluster, load: Load) -> None:
    for broker in cluster.ids:
        begun = time.monotonic()
        cluster.stop(broker)
        stopped = time.monotonic() - begun
        assert broker not in cluster.live(), "its session ends with it"
        load.run(0.5)
        report(f"SIGTERM of {broker}, gone after {stopped:.2f} s", load, begun, at_most=SESSION_S)
        cluster.start(broker)
        whole(cluster)


def test_suspended_longer_than_its_session(cluster: Cluster, load: Load) -> None:
    """It believes that it leads when it goes on, until the others tell it."""
    begun = time.monotonic()
    cluster.suspend(2)
    try:
        cluster.until(lambda: cluster.leader(TOPIC, 1) == 3, "another leads")
        load.run(SESSION_S)
    finally:
        cluster.resume(2)
    report("leader suspended", load, begun, SESSION_S + 4 + CLIENT_S)
    print(f"in-sync sets whole {whole(cluster):.2f} s after it went on")


def test_a_follower_is_suspended_for_less_than_its_session(cluster: Cluster, load: Load) -> None:
    begun, states = time.monotonic(), [cluster.state(TOPIC, p) for p in load.partitions]
    cluster.suspend(3)
    load.run(SESSION_S / 2)
    cluster.resume(3)
    report("suspended for half a session", load, begun, SESSION_S / 2 + CLIENT_S)
    assert [cluster.state(TOPIC, p) for p in load.partitions] == states, "nobody was elected, no ISR shrank"


def test_all_killed_and_started_again(cluster: Cluster, load: Load) -> None:
    begun = time.monotonic()
    for broker in cluster.ids:
        cluster.kill(broker)
    for broker in cluster.ids:
        cluster.brokers[broker].start(wait=False)
    report("all killed and started", load, begun, 2 * SESSION_S + 2 * CLIENT_S)
    whole(cluster)


@pytest.mark.parametrize("cluster", [{"zookeeper.session.timeout.ms": str(LONG_SESSION_S * 1000)}], indirect=True)
def test_zookeeper_killed_and_started_again(cluster: Cluster, load: Load) -> None:
    """All sessions have their whole time again when it is back; it is long enough for a busy machine."""
    begun, controller = time.monotonic(), cluster.controller
    states = [cluster.state(TOPIC, p) for p in load.partitions]
    cluster.zookeeper.kill()
    load.run(LONG_SESSION_S + 1)
    cluster.zookeeper.start()
    cluster.until(lambda: cluster.controller is not None, "ZooKeeper serves again")
    load.run(LONG_SESSION_S + 1)
    report("ZooKeeper away for longer than a session", load, begun, at_most=CLIENT_S)
    assert cluster.controller == controller
    assert [cluster.state(TOPIC, p) for p in load.partitions] == states, "sessions go on, nobody is elected"


def test_a_follower_cannot_reach_the_others(cluster: Cluster, load: Load) -> None:
    """ZooKeeper sees it alive: leaders let it go by its lag."""
    begun, outsider = time.monotonic(), next(b for b in cluster.ids if b != cluster.controller)
    follows = [p for p in load.partitions if ASSIGNMENT[p][0] != outsider]
    cluster.cut(outsider)
    cluster.until(lambda: all(outsider not in cluster.state(TOPIC, p)["isr"] for p in follows), "the leaders let it go")
    load.until_all_go_on(follows)
    gaps = {p: round(load.gap(begun, p), 2) for p in follows}
    print(f"broker {outsider} cut off from the others: gaps {gaps}, lag time {LAG_S} s")
    assert max(gaps.values()) <= 1.5 * LAG_S + CLIENT_S
    cluster.heal(outsider)
    load.until_all_go_on()
    print(f"in-sync sets whole {whole(cluster):.2f} s after the cut was healed")


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_cut_off_from_zookeeper(cluster: Cluster, load: Load, victim: str) -> None:
    """It goes on as a leader that nobody follows, and cannot commit anything."""
    controller = cluster.controller
    assert controller is not None
    broker = controller if victim == "controller" else cluster.peers(controller)[0]
    begun = time.monotonic()
    cluster.cut(broker, "zookeeper")
    cluster.until(lambda: broker not in cluster.live(), "the session has ended")
    cluster.until(lambda: cluster.leader(TOPIC, broker - 1) != broker, "another leads")
    load.run(3)
    cluster.heal(broker, "zookeeper")
    report(f"{victim} cut off from ZooKeeper", load, begun, SESSION_S + CLIENT_S)
    print(f"in-sync sets whole {whole(cluster):.2f} s after the cut was healed")
