"""How long a fault may keep producers waiting."""

from __future__ import annotations

import contextlib

from tests.cluster.history import Load
from tests.cluster.processes import LAG_MS, SESSION_MS, Cluster

SESSION_S = SESSION_MS / 1000
LAG_S = LAG_MS / 1000
CLIENT_S = 5.0
"""What a client and a busy machine may add: back-off, refresh of metadata, requests that time out."""
JAVA_S = 120.0
"""What the JVMs of a cluster of Kafka may add, which start and run on a few cores together."""
_KAFKA_S = 30


def report(cluster: Cluster, what: str, load: Load, since: float, at_most: float) -> None:
    """Prints the longest time without an acknowledgement, and fails where it is too long."""
    load.until_all_go_on()
    gaps = {partition: round(load.gap(since, partition), 2) for partition in load.partitions}
    print(f"{cluster.kind}: {what}: longest gap by partition {gaps}; session {SESSION_S} s")
    assert max(gaps.values()) <= at_most + (JAVA_S if cluster.kind == "kafka" else 0)


def comes_back(load: Load) -> bool:
    """Whether all are in sync again by themselves. A broker of Kafka that is sent a LeaderAndIsr before it has a new
    session cannot read the settings of topics, fails, and is not sent another one."""
    with contextlib.suppress(AssertionError):
        load.whole(_KAFKA_S)
        return True
    return False
