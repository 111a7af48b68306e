"""The same file to a real Kafka and to kafkad: does DescribeConfigs of a broker say the same, and of a topic?"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pytest

from kafkad.config import load
from kafkad.config.describe import ConfigRow, describe_broker, describe_topic
from kafkad.errors import ErrorCode
from kafkad.wire.apis import response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkad.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from kafkad.wire.schema import decode
from tests.broker import RawClient
from tests.oracle.kafka import Kafka, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.java,
    pytest.mark.skipif(missing("3.9") is not None, reason=str(missing("3.9"))),
]

CREATE_TOPICS, DESCRIBE_CONFIGS = 19, 32
TOPIC, BROKER = 2, 4
START_SECONDS = 30
SETTINGS = {"log.roll.ms": "5000000", "log.retention.minutes": "90", "num.partitions": "2", "compression.type": "lz4"}
OVERRIDES = {"segment.bytes": "1000000", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.25"}
NOT_KAFKAS = {
    *("listeners", "advertised.listeners", "listener.security.protocol.map", "log.dir"),
    *("socket.receive.buffer.bytes", "socket.send.buffer.bytes"),
}
"""Whose default or treatment is kafkad's own: it cannot change listeners while it runs."""


def test_describe_configs() -> None:
    with Kafka("3.9", settings=SETTINGS, heap="512m") as kafka, RawClient(kafka.ports[0]) as client:
        end = time.monotonic() + START_SECONDS
        while not topic_created(client):
            assert time.monotonic() < end
        of_broker = describe(client, BROKER, "1")
        of_topic = describe(client, TOPIC, "t")
    same_file = {name: row.value or "" for name, row in of_broker.items() if row.config_source == 4}
    config = load(None, [f"{name}={text}" for name, text in same_file.items() if name not in NOT_KAFKAS], {})
    assert differences(describe_broker(config), of_broker) == {}
    assert differences(describe_topic(config, OVERRIDES), of_topic) == {}


def topic_created(client: RawClient) -> bool:
    """A broker accepts connections a moment before the controller counts it among the live ones."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in OVERRIDES.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
    (created,) = ask(client, CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic])).topics
    return bool(created.error_code == ErrorCode.NONE)


def ask(client: RawClient, key: int, version: int, request: Any) -> Any:
    client.send(encode_request(RequestHeader(key, version, 1, "oracle"), request))
    answer = client.receive_frame()
    _, at = read_response_header(key, version, answer)
    return decode(response_class(key), version, answer[at:])


def differences(
    ours: Iterable[ConfigRow], kafkas: dict[str, DescribeConfigsResourceResult]
) -> dict[str, tuple[Any, Any]]:
    rows = {row.name: (*tuple(row)[:6], row.synonyms) for row in ours if not row.name.startswith(("kafkad.", "http."))}
    assert rows.keys() == kafkas.keys()
    return {
        name: (rows[name], expected)
        for name, answer in kafkas.items()
        if name not in NOT_KAFKAS and rows[name] != (expected := as_row(answer))
    }


def as_row(answer: DescribeConfigsResourceResult) -> tuple[Any, ...]:
    synonyms = tuple((synonym.name, synonym.value, synonym.source) for synonym in answer.synonyms)
    fixed = (answer.name, answer.value, answer.config_source, answer.config_type, answer.is_sensitive, answer.read_only)
    return (*fixed, synonyms)


def describe(client: RawClient, kind: int, name: str) -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    response = ask(client, DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[resource], include_synonyms=True))
    (result,) = response.results
    assert result.error_code == ErrorCode.NONE
    return {config.name: config for config in result.configs}
