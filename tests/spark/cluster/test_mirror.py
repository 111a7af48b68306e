from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from kafkad_etl.cluster import mirror
from kafkad_etl.cluster.clusters import Clusters
from kafkad_etl.cluster.mirror import Mirror, group_of
from kctl.groups.offset_changes import Outcome
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.groups.reading import make_topic, reading
from tests.spark.jobs import job


class Told:
    def __init__(self, bootstrap: str, group: str, timeout: float = 10) -> None:
        settings = Settings()
        settings.timeout = timeout
        self.warnings: list[str] = []
        session = Clusters(settings, Path()).fresh(job(bootstrap).kafka)
        self.mirror = Mirror(session, group, self.warnings.append)


@pytest.fixture
def topic(broker: KafkadProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"mirror-{time.monotonic_ns()}"
    make_topic(broker.port, name, 30, 10)
    yield name


def test_the_last_batch_is_what_the_group_shows(broker: KafkadProcess, on_broker: Kctl, topic: str) -> None:
    told = Told(broker.bootstrap, topic)
    told.mirror.offer(1, {topic: {0: 10}})
    told.mirror.offer(2, {topic: {0: 20, 1: 10}})
    told.mirror.close()
    assert told.warnings == []
    (shown,) = json.loads(on_broker("groups", "lag", topic, "-o", "json").out)["items"]
    assert (shown["lag"], shown["partitions"]) == (10, 2)
    assert "batch 2" in on_broker("groups", "describe", topic, "-o", "json").out


def test_a_group_with_members_is_left_alone_and_said_once(broker: KafkadProcess, on_broker: Kctl, topic: str) -> None:
    with reading(broker.port, topic, topic, {"somebody": [0, 1]}):
        told = Told(broker.bootstrap, topic)
        for batch in range(3):
            told.mirror.offer(batch, {topic: {0: batch}})
            time.sleep(0.05)
        told.mirror.close()
    assert told.warnings == [
        f'group {topic} cannot show the progress: group "{topic}" has members again: none of its offsets were changed'
    ]


def test_a_broker_that_does_not_answer_holds_up_nobody() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        told = Told(f"127.0.0.1:{server.getsockname()[1]}", "g")
        began = time.monotonic()
        told.mirror.offer(0, {"orders": {0: 1}})
        told.mirror.offer(1, {"orders": {0: 2}})
        assert time.monotonic() - began < 0.5
        told.mirror.close(0.3)
        assert time.monotonic() - began < 2
    assert "its offsets may be out of date" in told.warnings[0]


def test_a_failure_that_nobody_expects_is_told_and_the_next_batch_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: SimpleQueue[str] = SimpleQueue()

    def commit(*_: object, metadata: str) -> Outcome:
        shown.put(metadata)
        if metadata == "batch 1":
            raise KeyError("odd")
        return Outcome([], nothing=False)

    monkeypatch.setattr(mirror, "commit_offsets", commit)
    told = Told("127.0.0.1:1", "g")
    for batch in (1, 2):
        told.mirror.offer(batch, {"orders": {0: 1}})
        assert shown.get(timeout=10) == f"batch {batch}"
    told.mirror.close()
    assert told.warnings == ["group g cannot show the progress: 'odd'"]


def test_which_group_it_is() -> None:
    assert group_of(job()) == "etl-orders-to-lake"
    assert group_of(job(run={"group": "g"})) == "g"
    assert group_of(job(run={"group": False})) == ""
