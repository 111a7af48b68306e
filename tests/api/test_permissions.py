"""Every API says which rights it needs; what a whole request needs is asked for before its handler sees it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kafkad.api.context import Request
from kafkad.api.peer import Peer
from kafkad.api.permissions import NONE
from kafkad.api.prepared import Grounds
from kafkad.api.routes import BETWEEN_BROKERS, BY_KEY, ROUTES, Route
from kafkad.errors import ErrorCode
from kafkad.net.connection import Connection, Ending
from kafkad.security.authorizer import ALLOW_ALL, ANONYMOUS, Operation, Principal, ResourceType, kafka_name
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import RequestHeader, read_request_header, read_response_header
from kafkad.wire.messages.api_versions import ApiVersionsRequest
from kafkad.wire.messages.heartbeat import HeartbeatRequest
from kafkad.wire.messages.metadata import MetadataRequest
from kafkad.wire.schema import decode
from tests.api.frames import Frames
from tests.one_broker import OneBroker

DENIED = Path(__file__).parents[1] / "golden" / "security" / "denied.jsonl"

DOCUMENTED = """
    Produce: Write TransactionalId, IdempotentWrite Cluster, Write Topic
    Fetch: ClusterAction Cluster, Read Topic
    ListOffsets: Describe Topic
    Metadata: Describe Topic, Create Cluster, Create Topic
    OffsetCommit: Read Group, Read Topic
    OffsetFetch: Describe Group, Describe Topic
    FindCoordinator: Describe Group, Describe TransactionalId
    JoinGroup: Read Group
    Heartbeat: Read Group
    LeaveGroup: Read Group
    SyncGroup: Read Group
    DescribeGroups: Describe Group
    ListGroups: Describe Cluster, Describe Group
    SaslHandshake:
    ApiVersions:
    SaslAuthenticate:
    CreateTopics: Create Cluster, Create Topic
    DeleteTopics: Delete Topic
    DeleteRecords: Delete Topic
    InitProducerId: Write TransactionalId, IdempotentWrite Cluster
    OffsetForLeaderEpoch: ClusterAction Cluster, Describe Topic
    AddPartitionsToTxn: Write TransactionalId, Write Topic
    AddOffsetsToTxn: Write TransactionalId, Read Group
    EndTxn: Write TransactionalId
    WriteTxnMarkers: ClusterAction Cluster
    TxnOffsetCommit: Write TransactionalId, Read Group, Read Topic
    DescribeConfigs: DescribeConfigs Cluster, DescribeConfigs Topic
    AlterConfigs: AlterConfigs Cluster, AlterConfigs Topic
    AlterReplicaLogDirs: Alter Cluster
    DescribeLogDirs: Describe Cluster
    CreatePartitions: Alter Topic
    CreateDelegationToken: CreateTokens User
    RenewDelegationToken:
    ExpireDelegationToken:
    DescribeDelegationToken: Describe DelegationToken, DescribeTokens User
    DescribeAcls: Describe Cluster
    CreateAcls: Alter Cluster
    DeleteAcls: Alter Cluster
    DeleteGroups: Delete Group
    ElectLeaders: Alter Cluster
    IncrementalAlterConfigs: AlterConfigs Cluster, AlterConfigs Topic
    AlterPartitionReassignments: Alter Cluster
    ListPartitionReassignments: Describe Cluster
    OffsetDelete: Delete Group, Read Topic
    DescribeClientQuotas: DescribeConfigs Cluster
    AlterClientQuotas: AlterConfigs Cluster
    DescribeUserScramCredentials: Describe Cluster
    AlterUserScramCredentials: Alter Cluster
    UpdateFeatures: Alter Cluster
    DescribeCluster: Describe Cluster
    DescribeProducers: Read Topic
    DescribeTransactions: Describe TransactionalId
    ListTransactions: Describe TransactionalId
    ListConfigResources: DescribeConfigs Cluster
    DescribeTopicPartitions: Describe Topic
    LeaderAndIsr: ClusterAction Cluster
    StopReplica: ClusterAction Cluster
    UpdateMetadata: ClusterAction Cluster
    ControlledShutdown: ClusterAction Cluster
    AlterPartition: ClusterAction Cluster
    AllocateProducerIds: ClusterAction Cluster
"""
"""Of the table "Operations and Resources on Protocols" in the documentation of Kafka 3.9."""

NOT_ASKED_FOR = {("Produce", "IdempotentWrite Cluster")}
"""Rights that are documented, but that no broker asks for any more (KIP-679)."""
UNDOCUMENTED = {
    ("CreateTopics", "DescribeConfigs Topic"),  # for the settings in the answer
    ("DeleteTopics", "Describe Topic"),  # or a topic that is given by its id has no name in the answer
    ("AddPartitionsToTxn", "ClusterAction Cluster"),  # of brokers, which ask for their clients (KIP-890)
    ("DescribeTransactions", "Describe Topic"),  # for the partitions in the answer
    ("WriteTxnMarkers", "Alter Cluster"),  # for tools that end a transaction which nobody coordinates (KIP-664)
    ("InitProducerId", "Write Topic"),  # on any topic, instead of IdempotentWrite
}


def test_every_route_needs_what_is_documented() -> None:
    documented = {
        (name, need)
        for name, _, needs in (line.strip().partition(":") for line in DOCUMENTED.strip().splitlines())
        for need in needs.strip().split(", ")
    }
    found = {
        (route.name, f"{kafka_name(permission.operation)} {kafka_name(permission.resource)}".strip())
        for route in (*ROUTES, *BETWEEN_BROKERS)
        for permission in route.permissions
    } | {(route.name, "") for route in ROUTES if route.permissions == NONE}
    assert found == documented - NOT_ASKED_FOR | UNDOCUMENTED


def test_what_a_whole_request_needs_is_in_its_message() -> None:
    for route in (*ROUTES, *BETWEEN_BROKERS):
        for permission in route.permissions:
            assert not permission.field or permission.whole
            assert (permission.resource is ResourceType.CLUSTER) <= (permission.field == "")
            if permission.field:
                assert permission.resource_name(request_class(route.key)(**{permission.field: "g"})) == "g"


class Refusing:
    """Allows what is in `allowed`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.allowed: set[tuple[Operation, ResourceType, str]] = set()
        self.asked: list[tuple[Principal, str, Operation, ResourceType, str]] = []

    def identity(self, principal: Principal, host: str) -> Refused:
        return Refused(self, principal, host)


class Refused:
    restricted = True
    era = 0

    def __init__(self, by: Refusing, principal: Principal, host: str) -> None:
        self.by = by
        self.who = principal, host

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        self.by.asked.append((*self.who, operation, resource, name))
        return (operation, resource, name) in self.by.allowed

    def may(self, operation: Operation, resource: ResourceType, name: str, request: str) -> bool:
        return self.allows(operation, resource, name)

    def writes_any(self, resource: ResourceType) -> bool:
        return any(each[:2] == (Operation.WRITE, resource) for each in self.by.allowed)


@pytest.fixture
def authorizer() -> Refusing:
    return Refusing()


@pytest.fixture
def frames(broker: OneBroker, authorizer: Refusing) -> Iterator[Frames]:
    frames = Frames(broker, authorizer)
    yield frames
    frames.close()


def is_whole(route: Route) -> bool:
    return any(permission.whole for permission in route.permissions)


def denied() -> list[Any]:
    cases = map(json.loads, DENIED.read_text().splitlines())
    return [
        pytest.param(case, id=case["what"]) for case in cases if case["key"] in BY_KEY and is_whole(BY_KEY[case["key"]])
    ]


@pytest.mark.parametrize("case", denied())
def test_a_whole_request_is_refused_as_kafka_refuses_it(
    frames: Frames, authorizer: Refusing, case: dict[str, Any]
) -> None:
    key, version = case["key"], case["version"]
    request = bytes.fromhex(case["request"])
    header, at = read_request_header(memoryview(request))
    message = decode(request_class(key), version, memoryview(request)[at:])
    answer = frames.ask(message, version)
    if case["response"] is None:  # Kafka fails to build it, and never answers
        assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return
    expected = bytes.fromhex(case["response"])
    _, at = read_response_header(key, version, expected)
    assert _without_texts(answer) == _without_texts(decode(response_class(key), version, memoryview(expected)[at:]))
    principal, host, *asked = authorizer.asked[0]
    permission = next(each for each in BY_KEY[key].permissions if each.whole)
    assert (principal, host) == (ANONYMOUS, frames.connection.host)
    assert asked == [permission.operation, permission.resource, permission.resource_name(message)]
    assert header.api_key == key


def _without_texts(message: Any) -> Any:
    """Kafka prints an object of its own in some, and leaves out others."""
    if isinstance(message, list):
        return [_without_texts(each) for each in message]
    if not hasattr(message, "__schema__"):
        return message
    return {
        field: _without_texts(getattr(message, field)) for field in message.__slots__ if not field.endswith("_message")
    }


def test_every_whole_request_has_a_place_for_its_refusal(frames: Frames) -> None:
    for route in filter(is_whole, ROUTES):
        for version in range(route.first, route.last + 1):
            frames.ask(request_class(route.key)(), version)
            assert not frames.connection.closed


def test_who_may_is_served(frames: Frames, authorizer: Refusing) -> None:
    authorizer.allowed.add((Operation.READ, ResourceType.GROUP, "mine"))
    codes = [
        frames.ask(HeartbeatRequest(group_id=group, generation_id=1, member_id="m"), 4).error_code
        for group in ("mine", "other")
    ]
    assert codes[1] == 30
    assert codes[0] not in (0, 30)


def test_a_handler_asks_for_what_is_named(frames: Frames, authorizer: Refusing) -> None:
    request = Request(RequestHeader(3, 9, 1, "c"), cast(Connection, frames.connection), memoryview(b""))
    authorizer.allowed.add((Operation.READ, ResourceType.TOPIC, "t"))
    assert request.allowed(Operation.READ, ResourceType.TOPIC, "t")
    assert not request.allowed(Operation.READ, ResourceType.TOPIC, "u")
    frames.connection.peer.identify(Principal("User", "bob"))
    assert not request.allowed(Operation.WRITE, ResourceType.TOPIC, "t")
    assert authorizer.asked[-1][:2] == (Principal("User", "bob"), frames.connection.host)


def test_who_must_authenticate_is_told_the_versions_and_nothing_else(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    frames = Frames(broker)
    frames.connection.peer = Peer("PLAINTEXT", "host", ALLOW_ALL, Grounds(), must_authenticate=True)
    try:
        versions = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        assert frames.ask(versions, 3).api_keys
        for route in ROUTES:
            if route.name != "ApiVersions":
                with pytest.raises(Ending):
                    frames.begin(request_class(route.key)(), route.last)
                refused = f"refused: {route.name} comes before its sender has authenticated itself"
                assert refused in caplog.records[-1].getMessage()
        frames.connection.peer.identify(Principal("User", "bob"))
        assert frames.ask(MetadataRequest(topics=[]), 9).cluster_id
    finally:
        frames.close()
