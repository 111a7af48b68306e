"""One request that asks for more than any client does: of every API, tens of thousands of each thing it names."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kafkad.api.routes import ROUTES, Route
from kafkad.wire.apis import request_class
from kafkad.wire.frames import RequestHeader, encode_request
from kafkad.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkad.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkad.wire.schema import Field, within
from tests.attacks.honest import TOPIC
from tests.attacks.test_strangers import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.attacks.test_strangers import SETTINGS as LOGINS
from tests.broker import RawClient
from tests.clients.asker import Asker
from tests.oracle.kafka import free_port

pytestmark = pytest.mark.timeout(150)

LONGEST_ANSWER_S = 60
MANY, FEW = 90_000, 9_000
"""Just below what is taken in one request, where it is answered in pieces and where not."""

NUMBERS = {"replica_id": -1, "session_epoch": -1, "max_wait_ms": 100, "max_bytes": 1 << 20, "max_wait_time": 100,
           "generation_id_or_member_epoch": -1, "resource_type": 2, "timeout_ms": 2_000, "session_timeout_ms": 10_000,
           "rebalance_timeout_ms": 1_000, "num_partitions": 1, "replication_factor": 1, "retention_time_ms": -1,
           "acks": 1, "partition_max_bytes": 1 << 10, "key_type": 0, "endpoint_type": 1, "upgrade_type": 1,
           "current_leader_epoch": -1, "leader_epoch": -1, "last_fetched_epoch": -1, "timestamp": -1, "count": 2,
           "response_partition_limit": 2_000, "producer_id": -1, "producer_epoch": -1}  # fmt: skip
TEXTS = {"protocol_type": "consumer", "client_software_name": "attacker", "client_software_version": "1"}
NULLS = {"transactional_id", "group_instance_id", "cursor", "topic_id", "configuration_keys"}
BOOLEANS = {"validate_only": True}


class Maker:
    """Makes a request of a version, in which the arrays at one depth have many items and the others one; those within
    may have none."""

    def __init__(self, version: int, depth: int, count: int, within: int = 1) -> None:
        self._version, self._depth, self._count, self._within = version, depth, count, within

    def message(self, cls: type[Any], number: int, depth: int = 0) -> Any:
        fields = [field for field in cls.__schema__.fields if within(self._version, field.versions)]
        return cls(**{field.name: self._value(field, number, depth) for field in fields if field.tag is None})

    def _value(self, field: Field, number: int, depth: int) -> Any:
        if field.name in NULLS and within(self._version, field.nullable):
            return None
        if field.kind == "array":
            count = self._count if depth == self._depth else self._within if depth > self._depth else 1
            return [self._item(field, i, depth + 1) for i in range(count)]
        if field.kind == "struct":
            return self.message(field.item, number, depth)
        return _plain(field, number)

    def _item(self, field: Field, number: int, depth: int) -> Any:
        if isinstance(field.item, type):
            return self.message(field.item, number, depth)
        item = field.item()
        item.name = field.name
        return _plain(item, number)


def _plain(field: Field, number: int) -> Any:
    if field.kind == "string":
        return TEXTS.get(field.name) or (TOPIC if number == 0 else f"{field.name[:3]}.{number}")
    if field.kind in ("bytes", "records"):
        return b""
    if field.kind == "16s":
        return bytes(16)
    if field.kind == "?":
        return BOOLEANS.get(field.name, False)
    return NUMBERS.get(field.name, number % 128 if field.kind == "b" else 1 if field.kind == "h" else number)


def depth_of(cls: type[Any], version: int) -> int:
    """The depth of nested arrays."""
    arrays = [field for field in cls.__schema__.fields if field.kind == "array" and within(version, field.versions)]
    inside = [depth_of(field.item, version) if isinstance(field.item, type) else 0 for field in arrays]
    return max((1 + depth for depth in inside), default=0)


def ask(port: int, frame: bytes) -> None:
    with RawClient(port, timeout=LONGEST_ANSWER_S) as client, contextlib.suppress(ConnectionError, TimeoutError):
        client.send(frame)
        client.receive_frame()


def large(route: Route, depth: int, count: int, version: int | None = None, within: int = 1) -> bytes:
    version = route.last if version is None else version
    message = Maker(version, depth, count, within).message(request_class(route.key), 0)
    return encode_request(RequestHeader(route.key, version, 1, "attacker"), message)


def as_often_as_it_pays(route: Route) -> Any:
    """Three APIs stand for all where minutes count."""
    mark = pytest.mark.slow if route.name in {"Metadata", "Fetch", "DescribeConfigs"} else pytest.mark.long
    return pytest.param(route, id=route.name, marks=mark)


ASK_FOR_EACH = {
    "FindCoordinator", "OffsetFetch", "CreateTopics", "DeleteTopics", "CreatePartitions", "OffsetCommit",
    "OffsetDelete", "AddPartitionsToTxn",
}  # fmt: skip


def for_many_names(route: Route) -> Any:
    mark = pytest.mark.slow if route.name in ASK_FOR_EACH else pytest.mark.long
    return pytest.param(route, id=route.name, marks=mark)


@pytest.mark.parametrize("route", [as_often_as_it_pays(route) for route in ROUTES])
def test_one_large_request(suffer: Callable[..., None], route: Route) -> None:
    """With many items of its outer arrays, then of those inside each."""
    count = MANY if route.items > 20_000 or route.name == "Fetch" else FEW
    frames = [large(route, depth, count) for depth in range(depth_of(request_class(route.key), route.last))]
    suffer(f"{route.name} of {count:,}", lambda port: [ask(port, frame) for frame in frames])


NAMING = {"AddPartitionsToTxn": 3, "OffsetCommit": 9, "OffsetFetch": 9}
"""Versions, where later ones are for brokers, or name topics by their ids."""


@pytest.mark.parametrize("route", [for_many_names(route) for route in ROUTES])
def test_one_large_request_without_rights(suffer: Callable[..., None], route: Route) -> None:
    """Of alice, who may use one group and one transactional id: all else that she names is refused, and logged."""
    count = MANY if route.items > 20_000 else 2 * FEW
    version = NAMING.get(route.name, route.last)
    depths = range(depth_of(request_class(route.key), version))
    frames = [large(route, depth, count // 2, version) for depth in depths]
    frames += [large(route, depth, count, version, within=0) for depth in depths]
    port = free_port()
    settings = LOGINS | {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }

    def attack(_: int) -> None:
        for frame in frames:
            with RawClient(port, timeout=LONGEST_ANSWER_S) as alice, contextlib.suppress(ConnectionError, TimeoutError):
                alice.exchange(SASL_HANDSHAKE)
                alice.exchange(SASL_AUTHENTICATE)
                alice.send(frame)
                alice.receive_frame()

    suffer(
        f"{route.name} of {count:,} without rights", attack, let_alice_in, settings=settings, listeners={"SASL": port}
    )


def let_alice_in(port: int) -> None:
    asker = Asker(port)
    named = {"resource_name": TOPIC, "resource_pattern_type": 3, "principal": "User:alice", "host": "*"}
    rights = [{"resource_type": kind, **named, "operation": 2, "permission_type": 3} for kind in (3, 5)]
    assert not any(result.error_code for result in asker.ask("CreateAcls", 3, {"creations": rights}).results)
    asker.client.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "kafka_ms"),
    [
        ("Metadata", 2100),
        ("ListOffsets", 600),
        ("OffsetCommit", None),
        ("OffsetFetch", 1300),
        ("Fetch", 1600),
        ("Produce", None),
        ("CreateTopics", None),
    ],
)
def test_too_large_a_request(suffer: Callable[..., None], name: str, kafka_ms: float | None) -> None:
    """A million: refused before it is read."""
    [route] = [route for route in ROUTES if route.name == name]
    depth = depth_of(request_class(route.key), route.last) - 1 - (name == "CreateTopics")
    frame = large(route, depth, 1_000_000)
    suffer(f"{name} of 1,000,000", lambda port: ask(port, frame), kafka_ms=kafka_ms)


@pytest.mark.slow
def test_a_produce_full_of_tagged_fields(suffer: Callable[..., None]) -> None:
    """A thousand for each of its partitions, of which no version has any."""
    fields = b"\xe8\x07" + b"\x05\x00" * 1000
    partition = b"\x00\x00\x00\x00\x00" + fields
    body = b"\x00\x00\x01\x00\x00\x75\x30\x02\x02x" + b"\xa1\x9c\x01" + partition * 20_000 + b"\x00\x00"
    head = struct.pack(">hhih", 0, 9, 1, 1) + b"a" + b"\x00"
    frame = struct.pack(">i", len(head) + len(body)) + head + body
    suffer("Produce for 20,000 partitions with 1,000 tagged fields each", lambda port: ask(port, frame))


@pytest.mark.slow
def test_many_topics_that_are_refused(suffer: Callable[..., None]) -> None:
    """Each asks for as many partitions as one request may create."""
    topics = [CreatableTopic(name=f"bad name {i}", num_partitions=10_000, replication_factor=1) for i in range(FEW)]
    message = CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=True)
    frame = encode_request(RequestHeader(19, 7, 1, "attacker"), message)
    suffer(f"CreateTopics of {FEW:,} invalid names of 10,000 partitions", lambda port: ask(port, frame))


@pytest.mark.slow
def test_small_requests_for_large_answers(suffer: Callable[..., None]) -> None:
    """Thirty at once, each for all that is known of 1,500 topics."""
    names = [f"a-topic-with-a-name-{i}" for i in range(1_500)]

    def prepare(port: int) -> None:
        asker = Asker(port)
        for start in range(0, len(names), 500):
            new = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names[start : start + 500]]
            asker.ask("CreateTopics", 4, {"topics": new, "timeout_ms": 60_000})
        asker.client.close()

    resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    message = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    frame = encode_request(RequestHeader(32, 4, 1, "attacker"), message)

    def attack(port: int) -> None:
        with ThreadPoolExecutor(30) as threads:
            list(threads.map(lambda _: ask(port, frame), range(30)))

    suffer(f"30 x DescribeConfigs of {len(names):,} topics in {len(frame) >> 10} KB", attack, prepare)
