"""Brokers that cannot reach one another or ZooKeeper, are slow, or send garbage, under load with real clients."""

from __future__ import annotations

import time
from itertools import permutations

import pytest

from tests.cluster.gaps import CLIENT_S, LAG_S, SESSION_S, comes_back, report
from tests.cluster.history import Load
from tests.cluster.processes import ZOOKEEPER, Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(600),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

GIVES_WAY_S = 2 * LAG_S + CLIENT_S
"""Within this somebody gives way wherever a link is cut: that of the controller takes the longest."""


@pytest.mark.parametrize("victim", ["leader", pytest.param("controller", marks=pytest.mark.long)])
def test_cut_off_from_zookeeper(cluster: Cluster, load: Load, victim: str) -> None:
    """It goes on as a leader that nobody follows, and cannot commit anything."""
    broker = chosen(cluster, victim)
    begun = time.monotonic()
    cluster.cut(broker, ZOOKEEPER)
    cluster.until_gone(broker)
    cluster.until(lambda: cluster.leader(load.topic, broker - 1) != broker, "another leads")
    load.run(3)
    cluster.heal(broker, ZOOKEEPER)
    report(cluster, f"{victim} cut off from ZooKeeper", load, begun, SESSION_S + CLIENT_S)
    if cluster.kind == "kafka" and not comes_back(load):
        print("kafka: the broker has forgotten a LeaderAndIsr, and is started anew")
        cluster.stop(broker)
        cluster.start(broker)
    print(f"in-sync sets whole {load.whole():.2f} s after the cut was healed")


@pytest.mark.parametrize("victim", ["leader", pytest.param("controller", marks=pytest.mark.long)])
def test_cut_off_from_the_other_brokers(cluster: Cluster, load: Load, victim: str) -> None:
    """ZooKeeper sees all of them alive. With kafkad it gives way; with Kafka some partitions stand while the cut lasts:
    those that it leads, or, if it is the controller, those that the others lead."""
    broker = chosen(cluster, victim)
    begun = time.monotonic()
    cluster.cut(broker)
    if cluster.kind == "kafkad":
        cluster.until(lambda: not any(broker in isr for isr in isrs(cluster, load)), "the others do without it")
        load.until_all_go_on()
        cost = load.gap(begun)
    else:
        load.run(2 * LAG_S)
        cost = 2 * LAG_S
        assert load.gap(begun) > LAG_S
        assert any(broker in isr for isr in isrs(cluster, load))
    cluster.heal(broker)
    limit = (2 if victim == "controller" else 1) * LAG_S
    report(cluster, f"{victim} cut off from the others, {cost:.2f} s", load, begun, limit + CLIENT_S)
    print(f"in-sync sets whole {load.whole():.2f} s after the cut was healed")


@pytest.mark.long
def test_a_follower_is_cut_off_from_one_leader(cluster: Cluster, load: Load) -> None:
    """That leader lets it go by its lag, and nobody else does."""
    leader, follower = [broker for broker in cluster.ids if broker != cluster.controller]
    begun = time.monotonic()
    cluster.cut(leader, follower)
    cluster.until(lambda: follower not in isrs(cluster, load)[leader - 1], "the leader lets it go")
    report(cluster, "link between two brokers cut", load, begun, 1.5 * LAG_S + CLIENT_S)
    cluster.heal(leader, follower)
    print(f"in-sync sets whole {load.whole():.2f} s after the cut was healed")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_direction_of_each_link_is_cut_in_turn(cluster: Cluster, load: Load) -> None:
    """With kafkad no partition stands until it is healed."""
    for sender, receiver in permutations([*map(str, cluster.ids), ZOOKEEPER], 2):
        begun = time.monotonic()
        cluster.links.cut_way(sender, receiver)
        load.run(GIVES_WAY_S + LAG_S / 2)
        gap = load.gap(begun)
        cluster.links.heal(sender, receiver)
        load.until_all_go_on()
        print(f"{sender} to {receiver} cut: gap {gap:.2f} s, whole {load.whole():.2f} s after it")
        assert gap <= GIVES_WAY_S or cluster.kind == "kafka", f"{sender} to {receiver}"


def test_a_broker_sends_garbage(cluster: Cluster, load: Load) -> None:
    """Instead of requests to the others and of answers to theirs."""
    broker = chosen(cluster, "leader")
    begun = time.monotonic()
    for other in cluster.peers(broker):
        cluster.links.garble(str(broker), str(other))
    load.run(LAG_S / 2)
    cluster.heal(broker)
    report(cluster, "a broker sends garbage", load, begun, LAG_S / 2 + CLIENT_S)
    load.whole()


@pytest.mark.long
def test_a_broker_answers_late(cluster: Cluster, load: Load) -> None:
    broker = chosen(cluster, "leader")
    begun = time.monotonic()
    for other in cluster.peers(broker):
        cluster.links.slow(str(broker), str(other), 0.3)
    load.run(LAG_S / 2)
    report(cluster, "a broker answers late", load, begun, CLIENT_S)
    cluster.heal(broker)
    load.whole()


@pytest.mark.long
def test_zookeeper_answers_late(cluster: Cluster, load: Load) -> None:
    """A broker that dies meanwhile is replaced all the same, and comes back."""
    for broker in cluster.ids:
        cluster.links.slow(ZOOKEEPER, str(broker), 0.1)
    broker = chosen(cluster, "leader")
    begun = time.monotonic()
    cluster.kill(broker)
    cluster.until(lambda: cluster.leader(load.topic, broker - 1) != broker, "another leads")
    report(cluster, "ZooKeeper answers late, and a leader is killed", load, begun, SESSION_S + 2 * CLIENT_S)
    cluster.start(broker)
    load.whole()


def chosen(cluster: Cluster, victim: str) -> int:
    """Each broker leads one partition: a leader is one that is not the controller."""
    controller = cluster.until_controller()
    return controller if victim == "controller" else cluster.peers(controller)[0]


def isrs(cluster: Cluster, load: Load) -> list[list[int]]:
    return [cluster.state(load.topic, partition)["isr"] for partition in load.partitions]
