"""`kctl cluster describe` and `kctl brokers list` while a broker of three is away, real Kafka's and kafkads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafkad import __version__
from tests.kctl.conftest import Kctl, Three, until

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]


@pytest.fixture(params=[pytest.param("three_kafkas", marks=pytest.mark.long), "three_kafkads"])
def three(request: pytest.FixtureRequest) -> Three:
    cluster: Three = request.getfixturevalue(request.param)
    return cluster


def item(kctl: Kctl, *arguments: str) -> Any:
    return json.loads(kctl(*arguments, "-o", "json").out)["items"]


def test_who_is_away_since_when(on_three: Kctl, three: Three, request: pytest.FixtureRequest) -> None:
    ours = "three_kafkads" in request.node.name
    version = __version__ if ours else None
    assert [row["kafkad"] for row in item(on_three, "brokers", "list")] == [version] * 3
    [before] = item(on_three, "cluster", "describe")
    assert (before["down"], before["down_since"], before["silent"]) == ([], [], [])
    assert before["brokers"] == [1, 2, 3]
    assert (before["controller_epoch"] is not None) == ours
    topic = {"topics": [{"name": "away", "num_partitions": 6, "replication_factor": 3}]}
    on_three("-y", "raw", "CreateTopics", json.dumps(topic))
    until(lambda: len(item(on_three, "partitions", "list", "away")) == 6, "it is there")
    controller = before["controller"]
    three.brokers[controller - 1].kill()
    try:
        [silent] = item(on_three, "cluster", "describe")
        assert (silent["silent"], silent["down"]) == ([controller], []), "until its session ends"
        until(lambda: item(on_three, "cluster", "describe")[0]["down"] == [controller], "it is away")
        [after] = item(on_three, "cluster", "describe")
        shown = on_three("cluster", "describe").out
        assert after["controller"] not in (None, controller)
        if ours:
            assert after["controller_epoch"] == before["controller_epoch"] + 1
            assert f"down: {controller} since {after['down_since'][0]}\n" in shown
            assert f"controller {after['controller']}, epoch {after['controller_epoch']}\n" in shown
        else:
            assert after["down_since"] == [None] and f"down: {controller}\n" in shown
        assert f"broker {controller} is down" in on_three("doctor").out
    finally:
        three.restart(controller - 1, kill=True)
    until(lambda: item(on_three, "cluster", "describe")[0]["down"] == [], "it is back")
    until(lambda: all(len(row["isr"]) == 3 for row in item(on_three, "partitions", "list", "away")), "all in sync")
