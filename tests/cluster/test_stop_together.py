"""All brokers of a cluster are told to stop at once while producers wait for followers: no stop waits with them."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.history import EACH_LEADS_ONE, create
from tests.cluster.processes import Cluster
from tests.oracle.zookeeper import missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.timeout(300),
    pytest.mark.skipif(missing("3.8") is not None, reason=missing("3.8") or ""),
]

SECONDS = 20
"""On a busy machine; a produce whose followers have stopped would wait for 30 s."""


def test_no_produce_holds_up_the_stop_of_all(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={"controlled.shutdown.max.retries": "1"}) as cluster:
        create(cluster, "orders", *EACH_LEADS_ONE)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
        stopping = threading.Event()

        def feed() -> None:
            while not stopping.is_set():
                producer.produce("orders", b"x" * 100)
                producer.poll(0.001)

        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            time.sleep(1)
            begun = time.monotonic()
            processes = [cluster.brokers[id_].process for id_ in cluster.ids]
            for process in processes:
                assert process is not None
                process.send_signal(signal.SIGTERM)
            for process in processes:
                assert process is not None
                assert process.wait(60) == 0
            assert time.monotonic() - begun < SECONDS
        finally:
            stopping.set()
            feeding.join()
            producer.purge()
            producer.flush(5)
