"""Controller and brokers ask each other over the control plane listener, and for nothing else is it used."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from kafkad.api.dispatch import Dispatcher
from kafkad.config import ConfigError, load
from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.net.connection import Connection
from kafkad.wire.frames import read_request_header
from tests.broker_parts.several import CONTROL_PLANE, NETWORK, Brokers

A0 = TopicPartition("a", 0)
FETCH, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ALTER_PARTITION = 1, 4, 5, 6, 56
MAP = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT"
TWO = f"{MAP}|listeners=PLAINTEXT://:1,CONTROL://:2".split("|")


def test_each_listener_has_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, set[int]] = defaultdict(set)
    serve = Dispatcher.__call__

    def noted(self: Dispatcher, connection: Connection, view: memoryview, at: int, end: int) -> object:
        asked[connection.listener.name].add(read_request_header(view[at:end])[0].api_key)
        return serve(self, connection, view, at, end)

    monkeypatch.setattr(Dispatcher, "__call__", noted)
    brokers = Brokers(tmp_path, NETWORK, MAP, f"{CONTROL_PLANE}CONTROL", "replica.lag.time.max.ms=2000")
    brokers.start(1, 2, 3)
    brokers.meet()
    brokers.create("a", (2, 3))
    assert brokers.ended(brokers[2].produce(A0, b"one")).error_code == ErrorCode.NONE
    brokers.until(lambda: brokers[3].partition(A0).log.end_offset == 1, advance_ms=10)
    brokers.leave(3)
    brokers.start(3)
    brokers.until(lambda: ALTER_PARTITION in asked["CONTROL"], advance_ms=50)
    brokers.stop()
    assert asked["CONTROL"] >= {LEADER_AND_ISR, UPDATE_METADATA, ALTER_PARTITION}
    assert FETCH not in asked["CONTROL"]
    assert FETCH in asked["PLAINTEXT"]
    assert asked["PLAINTEXT"].isdisjoint({LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ALTER_PARTITION})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([*TWO, "control.plane.listener.name=OTHER"], "OTHER is not in advertised.listeners (CONTROL, PLAINTEXT)"),
        ([*TWO, "control.plane.listener.name=PLAINTEXT"], "PLAINTEXT is the inter-broker listener too"),
        (
            [*TWO, "control.plane.listener.name=CONTROL", "advertised.listeners=PLAINTEXT://h:1"],
            "CONTROL is not in advertised.listeners (PLAINTEXT)",
        ),
    ],
)
def test_a_control_plane_that_cannot_be(options: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, options, {})
    assert problem in caught.value.problems[0]


def test_it_may_have_any_name_of_a_listener() -> None:
    assert load(None, [*TWO, "control.plane.listener.name=control"], {}).control_plane_listener == "CONTROL"
    assert load(None, [], {}).control_plane_listener is None
