"""Kafka Streams with `exactly_once_v2` on three brokers: words are counted once, while all are killed in turn."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.clients.streams import INPUT, OUTPUT, PARTITIONS, RELEASES, counting, lacking
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.long,
    pytest.mark.java,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

SETTINGS = {
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}


@pytest.mark.parametrize("release", RELEASES)
def test_words_are_counted_once(tmp_path: Path, release: str) -> None:
    """Among the brokers are the coordinators of the application's group and of its transactions, the leaders of all its
    partitions, and the controller."""
    if reason := lacking(release):
        pytest.skip(reason)
    with (
        Cluster(tmp_path, settings=SETTINGS) as cluster,
        counting(release, cluster.bootstrap, tmp_path, replicas=3) as words,
    ):
        words.say("first")
        words.wait()
        for broker in cluster.ids:
            words.say(f"broker{broker}")
            time.sleep(0.3)  # it is in the middle of them
            cluster.kill(broker)
            words.say(f"without{broker}")
            words.wait()
            cluster.start(broker)
            cluster.until(
                lambda: all(cluster.is_whole(topic, PARTITIONS) for topic in (INPUT, OUTPUT)),
                "all replicas are in sync",
            )
        words.say("between")
        words.restart()
        words.wait()
