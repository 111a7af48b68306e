"""Requests to other brokers keep to inter.broker.protocol.version, and brokers work together at an older one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkad.broker import request_versions
from kafkad.broker.request_versions import FETCH, LEADER_AND_ISR, LIST_OFFSETS, STOP_REPLICA, UPDATE_METADATA
from kafkad.config import ConfigError, load
from kafkad.config.protocol import Protocol
from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.net import client
from kafkad.wire.frames import RequestHeader
from tests.broker_parts.several import NETWORK, Brokers

A0 = TopicPartition("a", 0)
KEYS = (FETCH, LIST_OFFSETS, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA)


@pytest.mark.parametrize(
    ("protocol", "last"),
    [
        ("3.9-IV0", (17, 9, 7, 4, 8)),
        ("3.9", (17, 9, 7, 4, 8)),
        ("3.8", (16, 8, 7, 4, 8)),
        ("3.7-IV3", (15, 8, 7, 4, 8)),
        ("3.5", (15, 8, 7, 4, 8)),
        ("3.5.2", (15, 8, 7, 4, 8)),
        ("3.5-IV0", (14, 8, 7, 4, 8)),
        ("3.4-IV0", (13, 7, 7, 4, 8)),
        ("3.3", (13, 7, 6, 3, 7)),
        ("3.2-IV0", (13, 7, 6, 3, 7)),
        ("2.3", (13, 7, 6, 3, 7)),  # without ZooKeeper, where all brokers are of one host and one release
    ],
)
def test_the_last_version_of_each_request(protocol: str, last: tuple[int, ...]) -> None:
    """As Kafka 3.9 has them."""
    allowed = request_versions.of(Protocol.of(protocol))
    assert tuple(allowed[key][1] for key in KEYS) == last


def test_a_protocol_that_kafkad_does_not_speak_is_refused_where_there_are_other_brokers() -> None:
    old = "inter.broker.protocol.version=3.1-IV0"
    load(None, [old], {})
    load(None, ["zookeeper.connect=z:2181", "inter.broker.protocol.version=3.2"], {})
    with pytest.raises(ConfigError, match=r"3.1-IV0: kafkad speaks those of 3.2 to 3.9 with other brokers"):
        load(None, ["zookeeper.connect=z:2181", old], {})


@pytest.mark.parametrize(("protocol", "last"), [("3.2", (13, 6, 7)), ("3.9", (17, 7, 8))])
def test_brokers_replicate_at_any_protocol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, last: tuple[int, ...]
) -> None:
    sent: dict[int, int] = {}
    encode = client.encode_request  # type: ignore[attr-defined]

    def noted(header: RequestHeader, message: Any) -> bytearray:
        sent[header.api_key] = header.api_version
        return encode(header, message)

    monkeypatch.setattr(client, "encode_request", noted)
    brokers = Brokers(tmp_path, NETWORK, f"inter.broker.protocol.version={protocol}", "replica.lag.time.max.ms=2000")
    brokers.start(1, 2)
    brokers.meet()
    brokers.create("a", (1, 2))
    produced = brokers.ended(brokers[1].produce(A0, b"one", b"two"))
    assert produced.error_code == ErrorCode.NONE
    leader = brokers[1].partition(A0)
    brokers.until(lambda: brokers[2].partition(A0).log.end_offset == 2, advance_ms=10)
    assert leader.high_watermark == 2, "the leader knows who fetches"
    assert (sent[FETCH], sent[LEADER_AND_ISR], sent[UPDATE_METADATA]) == last
    brokers.stop()
