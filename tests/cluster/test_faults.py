"""Faults of a cluster under load, with real clients: what they cost, and that nothing is lost or doubled."""

from __future__ import annotations

import time

import pytest

from tests.cluster.gaps import CLIENT_S, SESSION_S, report
from tests.cluster.history import Load
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]


@pytest.mark.long
def test_without_a_fault(cluster: Cluster, load: Load) -> None:
    begun = time.monotonic()
    load.run(3)
    report(cluster, "no fault", load, begun, at_most=1)


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_killed_and_started_again(cluster: Cluster, load: Load, victim: str) -> None:
    """Each broker leads one partition and follows the others'."""
    controller = cluster.controller
    assert controller is not None
    broker = controller if victim == "controller" else cluster.peers(controller)[0]
    begun = time.monotonic()
    cluster.kill(broker)
    cluster.until_gone(broker)
    ended = time.monotonic() - begun
    report(cluster, f"{victim} killed, session over after {ended:.1f} s", load, begun, SESSION_S + CLIENT_S)
    cluster.start(broker)
    print(f"in-sync sets whole {load.whole():.2f} s after the restart")


@pytest.mark.long
def test_killed_and_started_at_once(cluster: Cluster, load: Load) -> None:
    """It waits for the session of its last process to end, and then serves."""
    begun = time.monotonic()
    cluster.kill(2)
    cluster.start(2)
    report(cluster, "killed and started at once", load, begun, SESSION_S + CLIENT_S)
    load.whole()


def test_told_to_stop_one_after_the_other(cluster: Cluster, load: Load) -> None:
    for broker in cluster.ids:
        begun = time.monotonic()
        cluster.stop(broker)
        stopped = time.monotonic() - begun
        assert broker not in cluster.live(), "its session ends with it"
        load.run(0.5)
        report(cluster, f"SIGTERM of {broker}, gone after {stopped:.2f} s", load, begun, at_most=SESSION_S)
        cluster.start(broker)
        load.whole()


def test_suspended_longer_than_its_session(cluster: Cluster, load: Load) -> None:
    """It believes that it leads when it goes on, until the others tell it."""
    begun = time.monotonic()
    cluster.suspend(2)
    try:
        cluster.until(lambda: cluster.leader(load.topic, 1) == 3, "another leads")
        load.run(SESSION_S)
    finally:
        cluster.resume(2)
    report(cluster, "leader suspended", load, begun, SESSION_S + 4 + CLIENT_S)
    print(f"in-sync sets whole {load.whole():.2f} s after it went on")


@pytest.mark.long
def test_a_follower_is_suspended_for_less_than_its_session(cluster: Cluster, load: Load) -> None:
    begun, states = time.monotonic(), [cluster.state(load.topic, p) for p in load.partitions]
    cluster.suspend(3)
    load.run(SESSION_S / 2)
    cluster.resume(3)
    report(cluster, "suspended for half a session", load, begun, SESSION_S / 2 + CLIENT_S)
    assert [cluster.state(load.topic, p) for p in load.partitions] == states, "nobody was elected, no ISR shrank"


def test_all_killed_and_started_again(cluster: Cluster, load: Load) -> None:
    begun = time.monotonic()
    for broker in cluster.ids:
        cluster.kill(broker)
    for broker in cluster.ids:
        cluster.start(broker, wait=False)
    report(cluster, "all killed and started", load, begun, 2 * SESSION_S + 2 * CLIENT_S)
    load.whole()
