"""A group whose coordinator dies: its members go on, and their commits after a while."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.cluster.gaps import report
from tests.cluster.history import Load
from tests.cluster.members import Member, coordinator_of, until_all_commit
from tests.cluster.processes import SESSION_MS, Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

ADDED = range(3, 5)
CLIENT_S = {"kafkad": 8.0, "kafka": 60.0}


def test_its_coordinator_is_killed(cluster: Cluster, load: Load) -> None:
    members = [Member(cluster, load.topic, number) for number in range(2)]
    for member in members:
        member.start()
    try:
        until_all_commit(cluster, members, 0)
        coordinator = coordinator_of(cluster, load.topic)
        assigned = [list(member.assigned) for member in members]
        begun = time.monotonic()
        cluster.kill(coordinator)
        until_all_commit(cluster, members, begun + 1)
        gap = max(member.commits_at[-1] for member in members) - begun
        print(f"{cluster.kind}: coordinator killed: both commit after {gap:.2f} s; session {SESSION_MS / 1000} s")
        assert gap <= SESSION_MS / 1000 + CLIENT_S[cluster.kind]
        assert [member.assigned for member in members] == assigned, "nobody had to join again"
        cluster.start(coordinator)
        load.until_all_go_on()
    finally:
        for member in members:
            member.stop()
    for member in members:
        for offsets_read in member.read.values():
            assert len(offsets_read) == len(set(offsets_read)), "nothing was delivered twice"


@pytest.mark.long
def test_partitions_are_added_to_its_topic(cluster: Cluster, load: Load) -> None:
    """Its members find them by themselves, and each is read from its first record on."""
    members = [Member(cluster, load.topic, number) for number in range(2)]
    for member in members:
        member.start()
    try:
        until_all_commit(cluster, members, 0)
        begun = time.monotonic()
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_partitions([NewPartitions(load.topic, ADDED.stop)], operation_timeout=30)[load.topic].result(60)
        cluster.until(lambda: cluster.is_whole(load.topic, ADDED.stop), "they are there")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for partition in ADDED:
            producer.produce(load.topic, b"first", partition=partition)
        assert producer.flush(30) == 0
        took = cluster.until(
            lambda: all([0] in [member.read.get(p) for member in members] for p in ADDED), "they are read"
        )
        report(cluster, f"partitions added, and read {took:.1f} s later", load, begun, at_most=1)
    finally:
        for member in members:
            member.stop()
