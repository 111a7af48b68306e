"""Every node that real Kafka 3.9.2 wrote, decoded and written again to the same text; and some it did not write."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkad.meta import consumer_znodes as consumers
from kafkad.meta import security_znodes as security
from kafkad.meta import znodes as z
from kafkad.model import BrokerInfo, Endpoint, PartitionAssignment, PartitionState
from kafkad.names import NO_TOPIC_ID, TopicPartition, id_text
from kafkad.turns import at_once

SITUATIONS = json.loads((Path(__file__).parent.parent / "golden" / "znodes.json").read_text())

Rewrite = Callable[[bytes, re.Match[str]], tuple[str, bytes]]
"""From a text and the parts of its path: the path and the text that we would write."""


def broker(data: bytes, path: re.Match[str]) -> tuple[str, bytes]:
    entry = z.Broker.decode(int(path[1]), data, epoch=7)
    assert entry.broker.epoch == 7
    return z.Broker.path(entry.broker.id), entry.encode()


def state(data: bytes, path: re.Match[str]) -> tuple[str, bytes]:
    entry = z.Partition.decode(data, 3)
    assert entry.partition_epoch == 3
    return z.Partition.path(path[1], int(path[2])), z.Partition.encode(entry)


def acl_change(data: bytes, path: re.Match[str]) -> tuple[str, bytes]:
    entry = security.AclChange.decode(data, prefixed=bool(path[1]))
    return entry.prefix + path[2], entry.encode()


def block(data: bytes, path: re.Match[str]) -> tuple[str, bytes]:
    entry = z.ProducerIdBlock.decode(data)
    assert entry is not None
    return z.ProducerIdBlock.path(), entry.encode()


def of_entity(data: bytes, path: re.Match[str]) -> tuple[str, bytes]:
    entity = z.Config.entity_at(path[1])
    assert entity is not None
    return z.Config.path(z.Config.path_of(entity)), z.Config.encode(z.Config.decode(data))


REWRITES: dict[str, Rewrite] = {
    "/controller": lambda d, m: (z.Controller.path(), z.Controller.decode(d).encode()),
    "/controller_epoch": lambda d, m: (z.ControllerEpoch.PATH, z.ControllerEpoch.encode(z.ControllerEpoch.decode(d))),
    "/cluster/id": lambda d, m: (z.ClusterId.PATH, z.ClusterId.encode(z.ClusterId.decode(d))),
    "/brokers/ids/([0-9]+)": broker,
    "/brokers/topics/([^/]+)": lambda d, m: (z.Topic.path(m[1]), z.Topic.decode(d).encode()),
    "/brokers/topics/([^/]+)/partitions/([0-9]+)/state": state,
    "/config/((?:topics|brokers)/[^/]+)": lambda d, m: (
        z.Config.path(m[1]),
        z.Config.encode(z.Config.decode(d)),
    ),
    "/config/(users/[^/]+(?:/clients/[^/]+)?)": of_entity,
    "/config/((?:clients|ips)/[^/]+)": of_entity,
    "/config/changes/config_change_([0-9]{10})": lambda d, m: (
        z.ConfigChange.PREFIX + m[1],
        z.ConfigChange.encode(z.ConfigChange.decode(d)),
    ),
    "/isr_change_notification/isr_change_([0-9]{10})": lambda d, m: (
        z.IsrChange.PREFIX + m[1],
        z.IsrChange.encode(z.IsrChange.decode(d)),
    ),
    "/latest_producer_id_block": block,
    "/feature": lambda d, m: (z.Features.path(), z.Features.decode(d).encode()),
    "/kafka-acl(-extended/prefixed)?/([A-Za-z]+)/([^/]+)": lambda d, m: (
        security.Acls.path(m[2], m[3], prefixed=bool(m[1])),
        at_once(security.Acls.encode(at_once(security.Acls.decode(d)))),
    ),
    "/kafka-acl(-extended)?-changes/acl_changes_([0-9]{10})": acl_change,
    "/delegation_token/token_changes/token_change_([0-9]{10})": lambda d, m: (
        security.DelegationTokenChange.PREFIX + m[1],
        security.DelegationTokenChange.encode(security.DelegationTokenChange.decode(d)),
    ),
    "/consumers/([^/]+)/offsets/([^/]+)/([0-9]+)": lambda d, m: (
        consumers.ConsumerOffset.path(m[1], m[2], int(m[3])),
        consumers.ConsumerOffset.encode(consumers.ConsumerOffset.decode(d)),
    ),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_rewrites_the_text_of_kafka(situation: str) -> None:
    texts = 0
    for path, node in SITUATIONS[situation]["tree"].items():
        if node["data"] is None:
            continue
        texts += 1
        found = [(m, rewrite) for pattern, rewrite in REWRITES.items() if (m := re.fullmatch(pattern, path))]
        assert len(found) == 1, path
        match, rewrite = found[0]
        assert rewrite(node["data"].encode(), match) == (path, node["data"].encode())
    assert texts >= 7


def test_the_persistent_nodes_are_those_of_a_fresh_kafka() -> None:
    containers = {path for path, node in SITUATIONS["fresh"]["tree"].items() if node["data"] is None}
    assert set(z.PERSISTENT) < containers


def test_fields_of_golden_nodes() -> None:
    tree = SITUATIONS["reassignment-under-way"]["tree"]
    topic = z.Topic.decode(tree["/brokers/topics/zn-move"]["data"].encode())
    assert id_text(topic.topic_id) == "4B4reuJZSzi8pzAYx5PFeg"
    assert topic.partitions == {0: PartitionAssignment(replicas=(3, 2, 1), adding=(3,), removing=(1,))}
    one = z.Broker.decode(1, SITUATIONS["fresh"]["tree"]["/brokers/ids/1"]["data"].encode(), 24)
    assert one.broker.rack == "rack1"
    assert one.broker.epoch == 24
    assert one.broker.endpoint("SASL") == Endpoint(
        listener="SASL", host="127.0.0.1", port=31651, protocol="SASL_PLAINTEXT"
    )
    down = z.Partition.decode(
        SITUATIONS["broker-down"]["tree"]["/brokers/topics/zn-lonely/partitions/0/state"]["data"].encode(), 1
    )
    assert (down.leader, down.isr) == (-1, (3,))
    old = z.Topic.decode(SITUATIONS["isr-change-notification"]["tree"]["/brokers/topics/q-a"]["data"].encode())
    assert old.topic_id == NO_TOPIC_ID
    users = SITUATIONS["in-use"]["tree"]["/config/users/t39u"]["data"].encode()
    assert z.Config.decode(users) == {"producer_byte_rate": "1000000", "consumer_byte_rate": "2000000"}


def test_an_unclean_election_is_told_after_the_version() -> None:
    state = PartitionState(leader=2, leader_epoch=5, isr=(2,), controller_epoch=3, partition_epoch=9, recovering=True)
    text = b'{"controller_epoch":3,"leader":2,"version":1,"leader_recovery_state":1,"leader_epoch":5,"isr":[2]}'
    assert z.Partition.encode(state) == text
    assert z.Partition.decode(text, 9) == state


def test_a_broker_without_a_plain_listener_or_with_ipv6() -> None:
    info = BrokerInfo(
        id=4, endpoints=(Endpoint(listener="TLS", host="::1", port=9093, protocol="SSL"),), rack=None, epoch=11
    )
    entry = z.Broker(broker=info, timestamp_ms=5)
    text = entry.encode()
    assert text == (
        b'{"features":{},"listener_security_protocol_map":{"TLS":"SSL"},"endpoints":["TLS://[::1]:9093"],'
        b'"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"5"}'
    )
    assert z.Broker.decode(4, text, 11) == entry


def test_nodes_that_only_old_tools_write() -> None:
    targets = {TopicPartition("a", 0): (1, 2), TopicPartition("b", 7): (3,)}
    text = (
        b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2]},'
        b'{"topic":"b","partition":7,"replicas":[3]}]}'
    )
    assert z.Reassignments.encode(targets) == text
    assert z.Reassignments.decode(text) == targets
    text = b'{"version":1,"partitions":[{"topic":"a","partition":0}]}'
    assert z.PreferredElections.encode([TopicPartition("a", 0)]) == text
    assert z.PreferredElections.decode(text) == [TopicPartition("a", 0)]
    assert z.ConfigChange.decode(b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    features = z.Features({"x": 3}, 1, 1)
    text = b'{"features":{"x":{"max_version_level":3,"min_version_level":3}},"version":1,"status":1}'
    assert features.encode() == text
    assert z.Features.decode(text) == features


def test_log_dir_event() -> None:
    text = b'{"version":1,"broker":2,"event":1}'
    assert z.LogDirEvent.encode(2) == text
    assert z.LogDirEvent.decode(text) == 2


def test_delegation_token() -> None:
    token = security.DelegationToken(
        token_id="x",
        owner="User:a b",
        requester="User:c",
        renewers=("User:*",),
        issued_ms=1,
        expires_ms=2,
        max_ms=3,
    )
    text = (
        b'{"issueTimestamp":1,"renewers":["User%3A%2A"],"tokenRequester":"User%3Ac","tokenId":"x",'
        b'"owner":"User%3Aa%20b","expiryTimestamp":2,"maxTimestamp":3,"version":3}'
    )
    assert token.encode() == text
    assert security.DelegationToken.decode(text) == token


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"nonsense", b'{"version":3}'])
def test_what_is_no_topic(data: bytes) -> None:
    with pytest.raises(ValueError):
        z.Topic.decode(data)


ASSIGNMENT: dict[str, Any] = {"0": [1, 2]}
STATE: dict[str, Any] = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2]}
REGISTRATION: dict[str, Any] = {"endpoints": ["PLAINTEXT://h:1"], "rack": "r", "timestamp": "1", "version": 5}
NAMED: dict[str, Any] = {"topic": "a", "partition": 0, "replicas": [1]}
NO_IDS = ([], ["1", 2], [None], [True, 2], [1.5], [1, 1], [-1], [2**31], "12", None)


@pytest.mark.parametrize(
    "partitions", [*({"0": replicas} for replicas in NO_IDS), {"-1": [1]}, {"4294967296": [1]}, {"x": [1]}]
)
def test_an_assignment_of_something_else_than_brokers(partitions: object) -> None:
    text = json.dumps({"partitions": ASSIGNMENT}).encode()
    assert z.Topic.decode(text).partitions == {0: PartitionAssignment(replicas=(1, 2))}
    with pytest.raises(ValueError):
        z.Topic.decode(json.dumps({"partitions": partitions}).encode())


@pytest.mark.parametrize("more", [{"adding_replicas": {"0": ["2"]}}, {"removing_replicas": {"0": [1, 2]}}])
def test_a_move_from_or_to_nowhere(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        z.Topic.decode(json.dumps({"partitions": ASSIGNMENT, **more}).encode())


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {name: value}
            for name in ("leader", "leader_epoch", "controller_epoch")
            for value in (None, "0", 0.5, 2**31)
        ),
        *({"isr": isr} for isr in NO_IDS if isr != []),
    ],
)
def test_a_state_of_something_else_than_numbers(wrong: dict[str, Any]) -> None:
    assert z.Partition.decode(json.dumps(STATE).encode(), 3).isr == (1, 2)
    with pytest.raises(ValueError):
        z.Partition.decode(json.dumps({**STATE, **wrong}).encode(), 3)


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoints": []},
        {"endpoints": ["FOO://h:1"]},
        {"endpoints": ["PLAINTEXT://h:9999999999"]},
        {"endpoints": [f"PLAINTEXT://{'h' * 40_000}:1"]},
        {"rack": 7},
        {"version": None},
        {"features": {"transaction.version": {"max_version": "2"}}},
    ],
)
def test_a_registration_that_nobody_can_be_told_of(wrong: dict[str, Any]) -> None:
    assert z.Broker.decode(1, json.dumps(REGISTRATION).encode(), 7).broker.rack == "r"
    with pytest.raises(ValueError):
        z.Broker.decode(1, json.dumps({**REGISTRATION, **wrong}).encode(), 7)


def test_a_registration_of_kafka_0_8_or_of_no_broker() -> None:
    with pytest.raises(ValueError):
        z.Broker.decode(1, b'{"host":"h","port":9092,"timestamp":"1","version":1,"jmx_port":-1}', 7)
    with pytest.raises(ValueError):
        z.Broker.decode(2**31, json.dumps(REGISTRATION).encode(), 7)


@pytest.mark.parametrize("wrong", [{"topic": ["a"]}, {"topic": None}, {"partition": "0"}, {"partition": -1}])
def test_a_list_of_something_else_than_partitions(wrong: dict[str, Any]) -> None:
    text = json.dumps({"partitions": [NAMED]}).encode()
    assert z.PreferredElections.decode(text) == z.IsrChange.decode(text) == [TopicPartition("a", 0)]
    text = json.dumps({"partitions": [{**NAMED, **wrong}]}).encode()
    for decode in (z.PreferredElections.decode, z.IsrChange.decode, z.Reassignments.decode):
        with pytest.raises(ValueError):
            decode(text)


def test_replicas_that_a_tool_asks_for_may_be_none_that_can_be_but_are_numbers() -> None:
    def text(replicas: Any) -> bytes:
        return json.dumps({"partitions": [{"topic": "a", "partition": 0, "replicas": replicas}]}).encode()

    assert z.Reassignments.decode(text([2, 2, -1])) == {TopicPartition("a", 0): (2, 2, -1)}
    for replicas in (["2"], [2**31], "2", None):
        with pytest.raises((ValueError, TypeError)):
            z.Reassignments.decode(text(replicas))


def test_numbers_that_clients_could_not_be_told() -> None:
    for decode, text in [
        (z.Controller.decode, b'{"version":2,"brokerid":4294967296,"timestamp":"1"}'),
        (z.ControllerEpoch.decode, b"4294967296"),
        (z.Features.decode, b'{"features":{"x":{"max_version_level":65536}},"version":2,"status":1}'),
    ]:
        with pytest.raises(ValueError):
            decode(text)


def test_empty_nodes_that_kafka_leaves() -> None:
    assert z.ProducerIdBlock.decode(b"") is None
    assert z.Config.decode(b"") == {}
    assert at_once(security.Acls.decode(b"")) == []


def test_consumers_of_before_kafka_0_9() -> None:
    consumer = consumers.Consumer({"clicks": 2}, "static", 1410979482421)
    node = b'{"version":1,"subscription":{"clicks":2},"pattern":"static","timestamp":"1410979482421"}'
    assert consumer.encode() == node
    assert consumers.Consumer.decode(node) == consumer
    assert consumers.Consumer.path("g", "g_host-1410979482421-ab12cd34") == (
        "/consumers/g/ids/g_host-1410979482421-ab12cd34"
    )
    assert consumers.Owner.path("g", "clicks", 3) == "/consumers/g/owners/clicks/3"
    assert consumers.Owner.encode("g_host-1410979482421-ab12cd34", 1) == b"g_host-1410979482421-ab12cd34-1"
    assert consumers.Owner.decode(b"g_host-1410979482421-ab12cd34-1") == ("g_host-1410979482421-ab12cd34", 1)


def test_a_consumer_that_tells_less() -> None:
    """As docs of Kafka 0.8 have it, and other clients wrote it."""
    assert consumers.Consumer.decode(b'{"version":1,"subscription":{"a":1}}') == consumers.Consumer(
        {"a": 1}, "static", -1
    )
    with pytest.raises(ValueError):
        consumers.Consumer.decode(b'{"version":1}')
