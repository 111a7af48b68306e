"""Share groups and streams groups of Kafka 4.3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kctl.errors import Exit
from tests.kctl.conftest import Kctl, until
from tests.oracle.kafka import Kafka, missing

pytestmark = [pytest.mark.slow, pytest.mark.java]

SECONDS = 90


@pytest.fixture
def on_kafka(kctl: Kctl) -> Iterator[Kctl]:
    if why := missing("4.3"):
        pytest.skip(why)
    with Kafka("4.3", heap="384m") as broker:
        yield lambda *words: kctl("-b", broker.bootstrap, *words)


def test_a_topic_that_share_and_streams_groups_read(on_kafka: Kctl) -> None:
    def asked(api: str, **fields: object) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(on_kafka("raw", api, "-y", json.dumps(fields)).out)
        return answer

    def joins(api: str, group: str, **fields: object) -> bool:
        asked("FindCoordinator", key_type=0, coordinator_keys=[group])  # it makes the coordinators' topic
        return asked(api, group_id=group, member_epoch=0, **fields)["error_code"] == ErrorCode.NONE

    assert on_kafka("topics", "create", "for-others", "-p", 1, "-r", 1).code == Exit.DONE
    share = {"member_id": "AAAAAAAAAAAAAAAAAAAAAQ", "subscribed_topic_names": ["for-others"]}
    topology = {"epoch": 0, "subtopologies": [{"subtopology_id": "0", "source_topics": ["for-others"]}]}
    tasks: dict[str, list[object]] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    streams = {"member_id": "m", "process_id": "p", "rebalance_timeout_ms": 60_000, "topology": topology, **tasks}
    until(lambda: joins("ShareGroupHeartbeat", "sharing", **share), "a member of a share group", SECONDS)
    until(lambda: joins("StreamsGroupHeartbeat", "streaming", **streams), "a member of a streams group", SECONDS)
    words = ("topics", "describe", "for-others", "--groups", "-o", "json")
    (topic,) = json.loads(on_kafka(*words).out)["items"]
    read_by = [(one["group"], one["type"], one["members"]) for one in topic["groups"]]
    assert read_by == [("sharing", "share", 1), ("streaming", "streams", 1)]
    (described,) = json.loads(on_kafka("groups", "describe", "sharing", "-o", "json").out)["items"]
    assert (described["state"], described["type"], len(described["members"])) == ("Stable", "share", 1)
    for words in (("reset-offsets", "sharing", "--topic", "for-others", "--to", "earliest"), ("delete", "sharing")):
        refused = on_kafka("groups", *words, "-y")
        assert (refused.code, "undo" in refused.err) == (Exit.REFUSED, False)
        assert 'group "sharing" is a share group, which commits no offsets' in refused.err
    for words in (("rebalance", "streaming"), ("delete", "streaming")):
        assert on_kafka("groups", *words, "-y").code == Exit.REFUSED
