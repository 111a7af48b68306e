"""The audit trail: what a client changes is logged with who asked for it, and nothing else is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkad.api.audit import CHANGES, TOLD_BY_HANDLERS, Audit
from kafkad.api.context import Request
from kafkad.api.peer import Peer
from kafkad.api.prepared import Grounds
from kafkad.api.routes import ROUTES
from kafkad.model import BrokerInfo
from kafkad.net.connection import Connection
from kafkad.security.authorizer import ALLOW_ALL, Principal
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData
from kafkad.wire.messages.alter_configs import AlterableConfig as Replacing
from kafkad.wire.messages.alter_configs import AlterConfigsRequest
from kafkad.wire.messages.alter_configs import AlterConfigsResource as ReplacedResource
from kafkad.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkad.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkad.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafkad.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkad.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkad.wire.messages.delete_groups import DeleteGroupsRequest
from kafkad.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest
from kafkad.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkad.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkad.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkad.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkad.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from kafkad.wire.records import Record
from tests.one_broker import OneBroker

WHO = "; by User:ANONYMOUS from 127.0.0.1:50123, client test"
CHANGES_NOTHING = frozenset(
    {
        "Produce",
        "Fetch",
        "ListOffsets",
        "DescribeAcls",
        "Metadata",
        "OffsetFetch",
        "FindCoordinator",
        "JoinGroup",
        "Heartbeat",
        "SyncGroup",
        "DescribeGroups",
        "ListGroups",
        "ApiVersions",
        "SaslAuthenticate",
        "SaslHandshake",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "WriteTxnMarkers",
        "TxnOffsetCommit",
        "DescribeTransactions",
        "ListTransactions",
        "OffsetForLeaderEpoch",
        "DescribeConfigs",
        "DescribeDelegationToken",
        "DescribeClientQuotas",
        "DescribeUserScramCredentials",
        "DescribeLogDirs",
        "ListPartitionReassignments",
        "DescribeCluster",
        "DescribeProducers",
        "ListConfigResources",
        "DescribeTopicPartitions",
    }
)
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND = 0, 1, 2


class Trail(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.levelno == logging.INFO
        self._lines.append(record.getMessage())

    def lines(self) -> list[str]:
        """Since the last call; who asked is checked and cut off."""
        lines, self._lines = self._lines, []
        assert all(line.endswith(WHO) for line in lines), lines
        return [line.removesuffix(WHO) for line in lines]


@pytest.fixture
def trail() -> Iterator[Trail]:
    trail, log, top = Trail(), logging.getLogger("kafkad.audit"), logging.getLogger("kafkad")
    level, top_level = log.level, top.level
    log.addHandler(trail)
    log.setLevel(logging.INFO)
    yield trail
    log.removeHandler(trail)
    log.setLevel(level)
    top.setLevel(top_level)


def test_every_api_is_audited_or_said_to_change_nothing() -> None:
    audited = {route.name for route in ROUTES if route.key in CHANGES or route.key in TOLD_BY_HANDLERS}
    assert audited.isdisjoint(CHANGES_NOTHING)
    assert audited | CHANGES_NOTHING == {route.name for route in ROUTES}


def test_life_of_a_topic(broker: OneBroker, trail: Trail) -> None:
    configs = [CreatableTopicConfig(name="retention.ms", value="1000")]
    new = CreatableTopic(name="orders", num_partitions=2, replication_factor=1, configs=configs)
    broker.ask(CreateTopicsRequest(topics=[new], timeout_ms=5000, validate_only=True), 7)
    assert trail.lines() == []
    broker.ask(CreateTopicsRequest(topics=[new], timeout_ms=5000), 7)
    assert trail.lines() == ["topic orders created with partitions=2, replication.factor=1, retention.ms=1000"]
    broker.ask(CreateTopicsRequest(topics=[new], timeout_ms=5000), 7)
    assert trail.lines() == []
    grown = CreatePartitionsTopic(name="orders", count=3, assignments=None)
    broker.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=5000), 3)
    assert trail.lines() == ["topic orders grown to 3 partitions"]
    broker.append("orders", 1, *(Record(index, 100, None, b"x") for index in range(5)))
    cuts = [DeleteRecordsPartition(partition_index=1, offset=3), DeleteRecordsPartition(partition_index=7, offset=3)]
    broker.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=cuts)], timeout_ms=5000), 2)
    assert trail.lines() == ["records of topic orders deleted, of partition 1 before 3"]
    broker.replicas.metadata.brokers[2] = BrokerInfo(id=2, endpoints=())
    broker.lead("orders", 1, leader=1, isr=[1, 2])
    cuts[0].offset = 4
    late = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="orders", partitions=cuts)], timeout_ms=0)
    broker.ask_together((late, 2))
    assert trail.lines() == ["records of topic orders deleted, of partition 1 before 4"], "though not on broker 2 yet"
    del broker.replicas.metadata.brokers[2]
    broker.ask(DeleteTopicsRequest(topic_names=["orders", "missing", "orders"], timeout_ms=5000), 5)
    assert trail.lines() == ["topic orders deleted with partitions=3, replication.factor=1, retention.ms=1000"]


def test_a_topic_that_is_created_as_somebody_asked_for_it(broker: OneBroker, trail: Trail) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="wanted")], allow_auto_topic_creation=True)
    broker.ask(asked, 9)
    assert trail.lines() == ["topic wanted created, as it was asked for and auto.create.topics.enable is on"]
    broker.ask(asked, 9)
    assert trail.lines() == []


def altered(kind: int, name: str, *configs: AlterableConfig) -> IncrementalAlterConfigsRequest:
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=list(configs))
    return IncrementalAlterConfigsRequest(resources=[resource])


def test_who_asks_may_have_a_name_that_is_no_line(broker: OneBroker) -> None:
    """Nor can it fill the log."""
    connection = broker.connection
    connection.peer = Peer("SASL", "127.0.0.1", ALLOW_ALL, Grounds())
    connection.peer.identify(Principal("User", "a\nb" + "c" * 300))
    header = RequestHeader(3, 1, 1, "d\r" + "e" * 300)
    client = Request(header, cast(Connection, connection), memoryview(b"")).client_text
    assert client == f"User:a\\nb{'c' * 192} from 127.0.0.1:50123, client d\\r{'e' * 198}"


def test_settings(broker: OneBroker, trail: Trail) -> None:
    broker.create("t")
    change = AlterableConfig(name="retention.ms", config_operation=SET, value="7")
    back = AlterableConfig(name="segment.ms", config_operation=DELETE, value=None)
    more = AlterableConfig(name="cleanup.policy", config_operation=APPEND, value="compact")
    broker.ask(altered(TOPIC, "t", change, back, more), 1)
    assert trail.lines() == [
        "settings of topic t changed: retention.ms=7, segment.ms to its default, cleanup.policy+=compact"
    ]
    broker.ask(altered(TOPIC, "t", AlterableConfig(name="retention.ms", config_operation=SET, value="soon")), 1)
    assert trail.lines() == []
    broker.ask(altered(BROKER, "", AlterableConfig(name="log.retention.ms", config_operation=SET, value="8")), 1)
    assert trail.lines() == ["settings of all brokers changed: log.retention.ms=8"]
    broker.ask(altered(LOGGER, "1", AlterableConfig(name="kafkad.audit", config_operation=SET, value="INFO")), 1)
    assert trail.lines() == ["settings of broker logger 1 changed: kafkad.audit=INFO"]
    whole = ReplacedResource(
        resource_type=TOPIC, resource_name="t", configs=[Replacing(name="retention.ms", value="9")]
    )
    broker.ask(AlterConfigsRequest(resources=[whole]), 2)
    assert trail.lines() == ["settings of topic t replaced: retention.ms=9"]


@pytest.mark.parametrize("setting", ["kafkad.audit", "root"])
def test_levels_that_would_silence_the_audit_log(setting: str, broker: OneBroker, trail: Trail) -> None:
    logging.getLogger("kafkad.audit").setLevel(logging.NOTSET)
    for level in ("FATAL", "ERROR"):
        broker.ask(altered(LOGGER, "1", AlterableConfig(name=setting, config_operation=SET, value=level)), 1)
        assert trail.lines() == [f"settings of broker logger 1 changed: {setting}={level}"]


def test_the_level_of_the_whole_log(broker: OneBroker, trail: Trail) -> None:
    logging.getLogger("kafkad.audit").setLevel(logging.NOTSET)
    broker.ask(altered(BROKER, "", AlterableConfig(name="kafkad.log.level", config_operation=SET, value="error")), 1)
    assert trail.lines() == ["settings of all brokers changed: kafkad.log.level=error"]


def test_groups_and_their_offsets(broker: OneBroker, trail: Trail) -> None:
    broker.run(broker.context.group_coordination.prepare())
    broker.run_until(lambda: len(list(broker.context.group_coordination.shards())) == 50)
    trail._lines.clear()
    broker.create("t", 2)

    def commit(offset: int) -> OffsetCommitRequest:
        partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
        return OffsetCommitRequest(
            group_id="read\ners", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)]
        )

    broker.ask(commit(5), 8)
    assert trail.lines() == [r"offsets of group read\ners set by no member, for topic t: 0 to 5"]
    broker.ask(commit(6), 8)
    assert trail.lines() == [], "a consumer without membership would fill the log"
    gone = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    broker.ask(OffsetDeleteRequest(group_id="read\ners", topics=gone), 0)
    assert trail.lines() == [r"offsets of group read\ners deleted, for topic t: 0"]
    broker.ask(commit(7), 8)
    broker.ask(DeleteGroupsRequest(groups_names=["read\ners", "nobody"]), 2)
    assert trail.lines() == [r"group read\ners deleted, with its offsets"]


def test_where_replicas_are(broker: OneBroker, trail: Trail) -> None:
    broker.create("t", 2)
    moved = AlterReplicaLogDirTopic(name="t", partitions=[0, 9])
    twice = [AlterReplicaLogDir(path=path, topics=[moved]) for path in broker.directories]
    broker.ask(AlterReplicaLogDirsRequest(dirs=twice), 2)
    assert trail.lines() == [f"move to log directory {broker.directories[1]} begun for topic t: 0"]
    partitions = [
        ReassignablePartition(partition_index=0, replicas=[99]),
        ReassignablePartition(partition_index=0, replicas=[1]),
        ReassignablePartition(partition_index=1, replicas=[99]),
    ]
    asked = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])
    broker.ask(asked, 1)
    assert trail.lines() == ["reassignment of topic t: 0 to [1]"]


class AuditedAlone:
    """The audit trail without a broker. `seconds_over` has what is to be done at the end of the second."""

    def __init__(self) -> None:
        self.seconds_over: list[Callable[[], None]] = []
        self._audit = Audit(lambda: 0.0, lambda at, action: self.seconds_over.append(action))

    def note(self, key: int, message: Any, response: Any, user: str = "ANONYMOUS") -> None:
        peer = Peer("PLAINTEXT", "127.0.0.1", ALLOW_ALL, Grounds())
        peer.identify(Principal("User", user))
        connection = cast(Connection, SimpleNamespace(address="127.0.0.1:50123", peer=peer))
        self._audit.note(Request(RequestHeader(key, 1, 1, "test"), connection, memoryview(b"")), message, response)


def noted(trail: Trail, key: int, message: Any, response: Any) -> list[str]:
    AuditedAlone().note(key, message, response)
    return trail.lines()


def test_who_commits_for_ever_new_groups_cannot_fill_the_trail(trail: Trail) -> None:
    """Ten lines a second of each principal and kind, and the number of the rest; of what administrators do, all."""
    alone = AuditedAlone()
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    for number in range(1_000):
        alone.note(8, OffsetCommitRequest(group_id=f"g{number}", topics=topics), OffsetCommitResponse())
    alone.note(8, OffsetCommitRequest(group_id="g", topics=topics), OffsetCommitResponse(), user="other")
    features = [FeatureUpdateKey(feature=f"f{number}", max_version_level=1) for number in range(5)]
    for _ in range(5):
        alone.note(57, UpdateFeaturesRequest(feature_updates=features), UpdateFeaturesResponse())
    written = [record.partition(" set")[0] for record in trail._lines]
    assert written[:10] == [f"offsets of group g{number}" for number in range(10)]
    assert written[10:11] == ["offsets of group g"]
    assert len(written[11:]) == 25
    trail._lines.clear()
    for second_over in alone.seconds_over:
        second_over()
    [rest] = trail._lines
    assert rest.startswith(
        "990 more changes like the last ones within a second, among them: offsets of group g980 set by"
    )
    assert rest.count(" | ") == 19
    assert rest.endswith(f"offsets of group g999 set by no member, for topic t: 0 to 5{WHO}")


def test_of_a_change_that_is_written_all_lines_are(trail: Trail) -> None:
    """An operator's reset has a line for each topic, and is one change."""
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    topics = [OffsetCommitRequestTopic(name=f"t{number}", partitions=partitions) for number in range(4)]
    alone = AuditedAlone()
    for group in range(10):
        alone.note(8, OffsetCommitRequest(group_id=f"g{group}", topics=topics), OffsetCommitResponse())
    assert len(trail._lines) == 40


def test_a_change_that_was_made_is_answered_though_it_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(message: Any, response: Any) -> Iterator[str]:
        raise IndexError
        yield

    monkeypatch.setattr("kafkad.api.audit.CHANGES", {57: broken})
    AuditedAlone().note(57, UpdateFeaturesRequest(), UpdateFeaturesResponse())
    [record] = caplog.records
    assert record.getMessage().startswith("internal error in the audit trail of what was changed by ")


def test_elections(trail: Trail) -> None:
    results = [PartitionResult(partition_id=0), PartitionResult(partition_id=1, error_code=84)]
    response = ElectLeadersResponse(
        replica_election_results=[ReplicaElectionResult(topic="t", partition_result=results)]
    )
    assert noted(trail, 43, ElectLeadersRequest(election_type=1), response) == [
        "unclean leaders elected for topic t: 0"
    ]


def test_of_many_members_that_somebody_removes_some_are_named(trail: Trail) -> None:
    names = [f"m{number}" for number in range(30)]
    asked = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in names])
    answer = LeaveGroupResponse(members=[MemberResponse(member_id=name) for name in names])
    assert noted(trail, 13, asked, answer) == [f"members of group g removed: {', '.join(names[:20])} and 10 more"]


def test_members_that_somebody_else_removes(trail: Trail) -> None:
    by_itself = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="test-1", reason="closed")])
    assert noted(trail, 13, by_itself, LeaveGroupResponse(members=[MemberResponse(member_id="test-1")])) == []
    other = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="app-1")])
    answer = LeaveGroupResponse(members=[MemberResponse(member_id="app-1")])
    assert noted(trail, 13, other, answer) == ["members of group g removed: app-1"]
    static = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="", group_instance_id="i")])
    answer = LeaveGroupResponse(members=[MemberResponse(member_id="", group_instance_id="i")])
    assert noted(trail, 13, static, answer) == ["members of group g removed: i"]


def test_features(trail: Trail) -> None:
    updates = [FeatureUpdateKey(feature="metadata.version", max_version_level=3)]
    request = UpdateFeaturesRequest(feature_updates=updates)
    assert noted(trail, 57, request, UpdateFeaturesResponse()) == ["feature metadata.version set to level 3"]
    assert noted(trail, 57, request, UpdateFeaturesResponse(error_code=95)) == []
    twice = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature="x", max_version_level=0)] * 2)
    assert noted(trail, 57, twice, UpdateFeaturesResponse()) == ["feature x removed"]


def test_many_partitions_are_counted(trail: Trail) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=n, committed_offset=7) for n in range(300)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
    [line] = noted(trail, 8, request, OffsetCommitResponse())
    assert line.startswith("offsets of group g set by no member, for topic t: 0 to 7, 1 to 7, ")
    assert line.endswith(", 19 to 7 and 280 more")


def test_secrets_stay_out_of_it(trail: Trail) -> None:
    config = AlterableConfig(name="ssl.keystore.password", config_operation=SET, value="123")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    assert noted(trail, 44, request, SimpleNamespace(responses=[])) == [
        "settings of broker 1 changed: ssl.keystore.password=(hidden)"
    ]


def test_many_changes_are_all_written(broker: OneBroker, trail: Trail) -> None:
    topics = [CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(250)]
    broker.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    broker.settle()
    assert len(trail.lines()) == 250


def test_passwords(broker: OneBroker, trail: Trail) -> None:
    upsertions = [
        ScramCredentialUpsertion(name=name, mechanism=1, iterations=4096, salt=b"s", salted_password=salted)
        for name, salted in (("alice", b"p" * 32), ("bob", b"short"))
    ]
    broker.ask(AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
    deletions = [ScramCredentialDeletion(name="alice", mechanism=1)]
    broker.ask(AlterUserScramCredentialsRequest(deletions=deletions), 0)
    assert trail.lines() == [
        "SCRAM-SHA-256 password of user alice set",
        "SCRAM-SHA-256 password of user alice deleted",
    ]


def test_quotas(broker: OneBroker, trail: Trail) -> None:
    set_both = [OpData(key="producer_byte_rate", value=1e7), OpData(key="consumer_byte_rate", remove=True)]
    entries = [
        RequestEntryData(
            entity=[
                EntityData(entity_type="user", entity_name="alice"),
                EntityData(entity_type="client-id", entity_name=None),
            ],
            ops=set_both,
        ),
        RequestEntryData(
            entity=[EntityData(entity_type="user", entity_name="bob")], ops=[OpData(key="nonsense", value=1)]
        ),
    ]
    broker.ask(AlterClientQuotasRequest(entries=entries, validate_only=True), 1)
    assert trail.lines() == []
    broker.ask(AlterClientQuotasRequest(entries=entries), 1)
    assert trail.lines() == [
        "quotas of user alice and every client-id changed: producer_byte_rate=10000000, consumer_byte_rate removed"
    ]
