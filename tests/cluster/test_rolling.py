"""Brokers restarted one after the other, again and again, while idempotent producers and a group go on.

`KAFKAD_ROLLING_RESTARTS` says how many restarts; 100 of kafkad without it, and 10 of Kafka, which shows that the test
asks for nothing that Kafka does not do.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.cluster.history import Load
from tests.cluster.members import Member, until_all_commit
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

RESTARTS = {"kafkad": 100, "kafka": 10}


def test_restarts_in_a_row(cluster: Cluster, load: Load) -> None:
    """Members of the group read every record, and none of them twice, for they never have to join again."""
    restarts = int(os.environ.get("KAFKAD_ROLLING_RESTARTS", RESTARTS[cluster.kind]))
    members = [Member(cluster, load.topic, number) for number in range(2)]
    for member in members:
        member.start()
    until_all_commit(cluster, members, 0)
    assigned = [list(member.assigned) for member in members]
    gaps = []
    try:
        for number in range(restarts):
            broker = cluster.ids[number % len(cluster.ids)]
            begun = time.monotonic()
            cluster.stop(broker)
            cluster.start(broker)
            load.whole()
            load.until_all_go_on()
            gaps.append(round(load.gap(begun), 2))
            assert load.anomalies == []
            until_all_commit(cluster, members, begun)
        ends = {p: len(load.acknowledged[p]) for p in load.partitions}
        cluster.until(
            lambda: all(sum(len(m.read.get(p, ())) for m in members) >= ends[p] for p in load.partitions), "all is read"
        )
    finally:
        for member in members:
            member.stop()
    print(
        f"{cluster.kind}: {restarts} restarts: longest gaps {sorted(gaps)[-10:]}, median {sorted(gaps)[restarts // 2]}"
    )
    assert [member.assigned for member in members] == assigned
    for partition in load.partitions:
        read = [offset for member in members for offset in member.read.get(partition, [])]
        assert read == list(range(len(read))), f"partition {partition} was not read once from end to end"
