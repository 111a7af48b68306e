"""A broker one of whose disks has no room left, as a leader and as a follower, under load with real clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.gaps import CLIENT_S, LAG_S, report
from tests.cluster.history import new_load
from tests.cluster.processes import Cluster
from tests.crash.test_directories import fill, mounted, needs_root
from tests.oracle.zookeeper import missing

pytestmark = [
    needs_root,
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

FULL = 1
"""The broker whose disk is full."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", "size=64m") as disk:
        yield disk


@pytest.fixture
def cluster(disk: Path, tmp_path: Path, new_cluster: Callable[..., Cluster]) -> Cluster:
    """With one directory for each broker but the one whose disk gets full, which has another besides."""
    return new_cluster(log_dirs={FULL: [disk / "data", tmp_path / "roomy"]})


def test_a_disk_is_full(cluster: Cluster, disk: Path) -> None:
    """Others take over what the broker led there. Kafka's broker gives the directory up until it is started again."""
    load = new_load(cluster, [FULL, 2, 3], [FULL, 2, 3], [2, FULL, 3], [3, 2, FULL])
    with load:
        load.run(1)
        there = [p for p in load.partitions if (disk / "data" / f"{load.topic}-{p}").exists()]
        assert there, "none of them is on the disk that gets full"
        begun = time.monotonic()
        filler = fill(disk)
        cluster.until(
            lambda: not any(FULL in cluster.state(load.topic, p)["isr"] for p in there), "the others do without it"
        )
        report(cluster, f"no room for partitions {there} of broker {FULL}", load, begun, 1.5 * LAG_S + CLIENT_S)
        assert not any(cluster.leader(load.topic, p) == FULL for p in there)
        filler.unlink()
        if cluster.kind == "kafka":
            cluster.stop(FULL)
            cluster.start(FULL)
        print(f"in-sync sets whole {load.whole():.2f} s after there was room")
        load.until_all_go_on()
    load.check()
