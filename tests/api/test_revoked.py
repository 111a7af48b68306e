"""Rights that are taken away: from then on nothing is appended, read or committed, by whatever way it was before."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from copy import copy
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from kafkad.api import add_partitions_to_txn
from kafkad.api.context import Request
from kafkad.api.produce import ProduceApi
from kafkad.api.produce_repeat import RepeatedProduce
from kafkad.api.routes import ADD_PARTITIONS_TO_TXN, FETCH, OFFSET_COMMIT, PRODUCE
from kafkad.api.verifier import Verifier
from kafkad.controller.controller import Controller
from kafkad.controller.topics import MorePartitions, Topics
from kafkad.group.stored import StoredOffsets
from kafkad.group.subscriptions import Subscriptions
from kafkad.names import GROUPS_TOPIC, TopicPartition
from kafkad.net.connection import Connection
from kafkad.security.acl import Acl, AclIdentity, Pattern
from kafkad.security.authorizer import CLUSTER_NAME, Operation, PermissionType, Principal, ResourceType
from kafkad.turns import LONG, Pieces, at_once
from kafkad.wire.fetch import read_fetch
from kafkad.wire.frames import RequestHeader
from kafkad.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafkad.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkad.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestEntryData,
)
from kafkad.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkad.wire.messages.create_acls import CreateAclsRequest
from kafkad.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkad.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkad.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkad.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafkad.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkad.wire.messages.elect_leaders import ElectLeadersRequest
from kafkad.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkad.wire.messages.heartbeat import HeartbeatRequest
from kafkad.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkad.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kafkad.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkad.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kafkad.wire.messages.sync_group import SyncGroupRequest
from kafkad.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkad.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from kafkad.wire.records import Record
from kafkad.wire.schema import encode
from tests.api.frames import FakeConnection, Frames
from tests.api.test_acls import ADMIN, ANYTHING, AUTHORIZER, TOPIC, create, creation, everything
from tests.api.test_groups import join
from tests.api.test_prepared import ASKED, fetch, produce
from tests.api.test_produce import batch, request
from tests.one_broker import OneBroker

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, ALTER_CONFIGS = 3, 4, 5, 6, 7, 8, 11
JOIN_GROUP = 11
FORBIDDEN = {PRODUCE: 29, FETCH: 29, OFFSET_COMMIT: 30}
SESSION_NOT_FOUND = 70


class Users:
    """Connections of several users, each with the same client id and the same requests."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self._connections: dict[str, FakeConnection] = {}

    def become(self, user: str) -> Frames:
        connection = self._connections.get(user)
        if connection is None:
            connection = self._connections[user] = self.frames.connect()
            connection.peer.identify(Principal("User", user))
        self.frames.connection = connection
        return self.frames

    def grant(self, user: str) -> None:
        self.become("admin")
        who = {"principal": f"User:{user}"}
        rights = [
            creation("t", operation=READ, **who),
            creation("t", operation=WRITE, **who),
            creation("g", operation=READ, resource_type=3, **who),
        ]
        assert create(self.frames, *rights) == [0, 0, 0]

    def revoke(self, user: str) -> None:
        self.become("admin")
        asked = DeleteAclsFilter(pattern_type_filter=1, **ANYTHING | {"principal_filter": f"User:{user}"})
        [result] = self.frames.ask(DeleteAclsRequest(filters=[asked]), 3).filter_results
        assert len(result.matching_acls) == 3

    @property
    def end(self) -> int:
        return self.frames.broker.replicas.get("t", 0).log.end_offset


@pytest.fixture
def users(tmp_path: Path) -> Iterator[Users]:
    broker = OneBroker(
        tmp_path,
        AUTHORIZER,
        f"super.users={ADMIN}",
        "offsets.topic.num.partitions=1",
        "group.initial.rebalance.delay.ms=50",
    )
    coordination = broker.context.group_coordination
    broker.run(coordination.prepare())
    broker.run_until(lambda: bool(list(coordination.shards())))
    broker.create("t")
    rights = broker.parts.identity.rights
    assert rights is not None
    frames = Frames(broker, rights.authorizer)
    rights.acls.on_change += [frames.dispatcher.permissions_changed, frames.fetch.sessions.rights_changed]
    yield Users(frames)
    frames.close()
    broker.stop()


@pytest.mark.parametrize("key", ASKED)
def test_what_was_prepared_is_refused_once_the_right_is_gone_and_served_once_it_is_back(users: Users, key: int) -> None:
    for user in ("alice", "bob"):
        users.grant(user)
        for ask in (produce, *ASKED.values()):
            assert ask(users.become(user)) == 0
        assert set(users.frames.connection.peer.prepared) == set(ASKED)
    users.revoke("alice")
    before = users.end
    assert ASKED[key](users.become("alice")) == FORBIDDEN[key]
    assert users.end == before
    assert ASKED[key](users.become("bob")) == 0, "who has the right sends the same bytes"
    users.grant("alice")
    assert ASKED[key](users.become("alice")) == 0


def test_nothing_is_appended_or_read_after_a_revocation_is_acknowledged(users: Users) -> None:
    """A history of two users who produce, read and commit all the time while their rights come and go."""
    random = Random(7)
    may = dict.fromkeys(("alice", "bob"), False)
    for _ in range(300):
        user = random.choice(tuple(may))
        if random.random() < 0.2:
            (users.revoke if may[user] else users.grant)(user)
            may[user] = not may[user]
        else:
            key = random.choice(tuple(ASKED))
            before = users.end
            assert ASKED[key](users.become(user)) == (0 if may[user] else FORBIDDEN[key])
            assert (users.end > before) == (may[user] and key == PRODUCE)


def test_the_broker_itself_forgets_on_every_change_of_acls(users: Users) -> None:
    """The other tests have a dispatcher of their own."""
    broker = users.frames.broker
    parts = broker.parts
    peer = parts.dispatcher.peer(cast(Connection, users.frames.connection))
    frame = read_fetch(memoryview(encode(within_session(0, 0, "t"), 12)), 0, 12)
    session = at_once(parts.fetch.sessions.open(frame, False, 0.0))
    for change in (users.grant, users.revoke):
        session.unsure = False
        peer.prepare(PRODUCE, RepeatedProduce(parts.produce, cast(Connection, None), 9), "t")
        assert peer.prepared
        change("alice")
        assert not peer.prepared and session.unsure


def within_session(session_id: int, epoch: int, *names: str, max_wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=name, partitions=[partition]) for name in names],
    )


def test_a_session_says_that_the_right_is_gone_although_nothing_has_moved(users: Users) -> None:
    users.grant("alice")
    alice = users.become("alice")
    opened = alice.ask(within_session(0, 0, "t"), 12)
    assert [p.error_code for t in opened.responses for p in t.partitions] == [0]
    assert alice.ask(within_session(opened.session_id, 1), 12).responses == []
    users.revoke("alice")
    refused = users.become("alice").ask(within_session(opened.session_id, 2), 12)
    assert [p.error_code for t in refused.responses for p in t.partitions] == [29]


def test_a_fetch_that_waits_reads_nothing_once_the_right_is_gone(users: Users) -> None:
    users.grant("alice")
    users.grant("bob")
    waiting = users.become("alice").connection
    assert users.frames.begin(within_session(0, -1, "t", max_wait_ms=60_000), 12) is None
    users.revoke("alice")
    assert not waiting.replies
    assert produce(users.become("bob")) == 0
    users.frames.broker.run_until(lambda: bool(waiting.replies))
    [reply] = waiting.replies
    assert reply is not None
    [topic] = users.frames.decode(reply, FETCH, 12).responses
    assert [(p.error_code, p.records) for p in topic.partitions] == [(29, b"")]


def test_a_member_that_waits_for_others_may_do_no_more_once_the_right_is_gone(users: Users) -> None:
    """It is still told of its generation, as by Kafka."""
    users.grant("alice")
    waiting = users.become("alice").connection
    waiting.host = "127.0.0.1"
    assert users.frames.begin(join("g", 3), 3) is None
    users.revoke("alice")
    users.frames.broker.run_until(lambda: bool(waiting.replies))
    joined = users.become("alice").decode(waiting.replies.pop() or b"", JOIN_GROUP, 3)
    assert joined.error_code == 0
    member = {"group_id": "g", "member_id": joined.member_id}
    in_generation = member | {"generation_id": joined.generation_id}
    for asked in (
        SyncGroupRequest(**in_generation),
        HeartbeatRequest(**in_generation),
        LeaveGroupRequest(**member),
        join("g", 2, joined.member_id),
    ):
        assert users.frames.ask(asked, 2).error_code == 30


def test_the_rest_of_many_members_stays_once_the_right_is_gone(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    users.grant("alice")
    alice = users.become("alice")
    asked, allows = 0, AclIdentity.allows

    def only_at_first(self: AclIdentity, operation: Operation, kind: ResourceType, *rest: Any) -> bool:
        nonlocal asked
        asked += kind is ResourceType.GROUP  # once for the request, then for each member
        return asked <= 21 and allows(self, operation, kind, *rest)

    monkeypatch.setattr(AclIdentity, "allows", only_at_first)
    members = [MemberIdentity(member_id=f"m{number}") for number in range(50)]
    left = alice.ask(LeaveGroupRequest(group_id="g", members=members), 5).members
    assert [member.error_code for member in left] == [25] * 20 + [30] * 30


def test_a_session_is_only_there_for_who_opened_it(users: Users) -> None:
    users.grant("alice")
    users.grant("bob")
    opened = users.become("alice").ask(within_session(0, 0, "t"), 12)
    bob = users.become("bob")
    assert bob.ask(within_session(opened.session_id, 1), 12).error_code == SESSION_NOT_FOUND
    assert bob.ask(within_session(opened.session_id, -1, "t"), 12).error_code == 0, "which would end a session of bob's"
    assert users.become("alice").ask(within_session(opened.session_id, 1), 12).error_code == 0


def test_who_says_that_it_is_a_follower_gets_neither_records_nor_a_session(users: Users) -> None:
    users.grant("alice")
    assert produce(users.become("alice")) == 0
    asked = within_session(0, 0, "t")
    asked.replica_id = 2
    answer = users.frames.ask(asked, 12)
    assert answer.session_id == 0
    assert [p.error_code for t in answer.responses for p in t.partitions] == [29]
    assert not users.frames.fetch.sessions


def test_a_right_that_is_taken_while_a_worker_opens_the_batch_counts(users: Users) -> None:
    users.grant("alice")
    broker = users.frames.broker
    broker.create("c", configs={"compression.type": "zstd"})
    users.become("admin")
    assert create(users.frames, creation("c", operation=WRITE, principal="User:alice")) == [0]
    alice = users.become("alice").connection
    many = batch([Record(n, 100, None, b"value") for n in range(5_000)])
    assert users.frames.begin(request(users.frames, 9, {0: many}, topic="c"), 9) is None
    users.become("admin")
    asked = DeleteAclsFilter(pattern_type_filter=1, **ANYTHING | {"resource_name_filter": "c"})
    users.frames.ask(DeleteAclsRequest(filters=[asked]), 3)
    assert not alice.replies
    broker.run_until(lambda: bool(alice.replies))
    [topic] = users.frames.decode(alice.replies[0] or b"", PRODUCE, 9).responses
    assert topic.partition_responses[0].error_code == 29
    assert broker.replicas.get("c", 0).log.end_offset == 0


def test_a_transactional_id_is_asked_for_with_each_batch_of_a_transaction(users: Users) -> None:
    """One that is named without such a batch needs no right, and prepares nothing for those that may follow."""
    users.grant("alice")
    alice = users.become("alice")

    def send(**options: Any) -> int:
        asked = request(alice, 9, {0: batch(**options)})
        asked.transactional_id = "x"
        [topic] = users.become("alice").ask(asked, 9).responses
        code: int = topic.partition_responses[0].error_code
        return code

    in_transaction = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    assert send() == 0
    assert PRODUCE not in alice.connection.peer.prepared
    before = users.end
    assert send(**in_transaction) == 53
    assert users.end == before
    users.become("admin")
    right = creation("x", operation=WRITE, resource_type=5, principal="User:alice")
    assert create(users.frames, right) == [0]
    assert send() == 0
    assert PRODUCE in alice.connection.peer.prepared
    assert send(**in_transaction) != 53


GROUP, CLUSTER, TRANSACTIONAL_ID = 3, 4, 5
PRODUCER = {"producer_id": 5, "producer_epoch": 0}
IN_TRANSACTION = {**PRODUCER, "base_sequence": 0, "transactional": True}
NAMES = [("t", TOPIC, 29), ("x", TRANSACTIONAL_ID, 53)]


@pytest.fixture
def in_transaction(users: Users) -> Users:
    """Alice has begun one, and its coordinator's answers wait until they are let go."""
    users.grant("alice")
    users.become("admin")
    assert create(
        users.frames, creation("x", operation=WRITE, resource_type=TRANSACTIONAL_ID, principal="User:alice")
    ) == [0]
    transactions = users.frames.transactions
    transactions.begin(
        "x", 5, 0, *(TopicPartition("t", index) for index in range(700)), TopicPartition(GROUPS_TOPIC, 0)
    )
    transactions.holding = True
    context = users.frames.broker.context
    context.verifier = Verifier(lambda: transactions, 1, None, context.clock, context.timers, lambda: 1_000)
    return users


def take(users: Users, name: str, resource_type: int) -> None:
    users.become("admin")
    named = {"resource_name_filter": name, "resource_type_filter": resource_type}
    [result] = users.frames.ask(
        DeleteAclsRequest(filters=[DeleteAclsFilter(pattern_type_filter=1, **ANYTHING | named)]), 3
    ).filter_results
    assert result.matching_acls


def take_when(monkeypatch: pytest.MonkeyPatch, gone: Callable[[Operation, ResourceType], bool]) -> None:
    """Take rights away in the middle of a request: those of which `gone` is true when they are asked for."""
    has_right = AclIdentity.may

    def may(self: AclIdentity, operation: Operation, resource: ResourceType, *rest: Any) -> bool:
        return not gone(operation, resource) and has_right(self, operation, resource, *rest)

    monkeypatch.setattr(AclIdentity, "may", may)


def take_after_first_look(monkeypatch: pytest.MonkeyPatch, taken: ResourceType) -> None:
    """ACLs change as soon as a topic was looked at: from then on nobody may do anything with that kind of resource."""
    has_right, changed = AclIdentity.may, False

    def may(self: AclIdentity, operation: Operation, resource: ResourceType, *rest: Any) -> bool:
        nonlocal changed
        allowed = has_right(self, operation, resource, *rest) and not (changed and resource is taken)
        if resource is ResourceType.TOPIC and not changed:
            changed = True
            self.forget()
        return allowed

    monkeypatch.setattr(AclIdentity, "may", may)


def answered(users: Users, connection: FakeConnection, key: int, version: int) -> Any:
    users.frames.broker.run_until(lambda: bool(connection.replies))
    return users.frames.decode(connection.replies[0] or b"", key, version)


@pytest.mark.parametrize(("name", "resource_type", "code"), [*NAMES, ("g", GROUP, 30)])
@pytest.mark.parametrize("version", [3, 5])
def test_offsets_of_a_transaction_count_no_more_once_a_right_is_gone(
    in_transaction: Users, name: str, resource_type: int, code: int, version: int
) -> None:
    """While the coordinator of the transaction is asked."""
    users = in_transaction
    alice = users.become("alice").connection
    offsets = TxnOffsetCommitRequestTopic(
        name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    )
    commit = TxnOffsetCommitRequest(transactional_id="x", group_id="g", **PRODUCER, topics=[offsets])
    assert users.frames.begin(commit, version) is None
    home = users.frames.broker.context.offsets.home("g")
    before = home.log.end_offset
    take(users, name, resource_type)
    users.frames.transactions.let_go()
    [topic] = answered(users, alice, 28, version).topics
    assert topic.partitions[0].error_code == code
    assert home.log.end_offset == before


@pytest.mark.parametrize(("name", "resource_type", "code"), NAMES)
@pytest.mark.parametrize("version", [9, 12])
def test_nothing_is_appended_to_a_transaction_once_a_right_is_gone(
    in_transaction: Users, name: str, resource_type: int, code: int, version: int
) -> None:
    """While the coordinator of the transaction is asked."""
    users = in_transaction
    alice = users.become("alice").connection
    asked = request(users.frames, version, {0: batch(**IN_TRANSACTION)})
    asked.transactional_id = "x"
    assert users.frames.begin(asked, version) is None
    take(users, name, resource_type)
    users.frames.transactions.let_go()
    [topic] = answered(users, alice, PRODUCE, version).responses
    assert topic.partition_responses[0].error_code == code
    assert users.end == 0


def test_a_transactional_id_that_is_taken_while_a_worker_opens_the_batch_counts(in_transaction: Users) -> None:
    users = in_transaction
    users.frames.transactions.holding = False
    broker = users.frames.broker
    broker.create("c", configs={"compression.type": "zstd"})
    users.frames.transactions.begin("x", 5, 0, TopicPartition("c", 0))
    users.become("admin")
    assert create(users.frames, creation("c", operation=WRITE, principal="User:alice")) == [0]
    alice = users.become("alice").connection
    many = batch([Record(n, 100, None, b"value") for n in range(5_000)], **IN_TRANSACTION)
    asked = request(users.frames, 9, {0: many}, topic="c")
    asked.transactional_id = "x"
    assert users.frames.begin(asked, 9) is None
    take(users, "x", TRANSACTIONAL_ID)
    [topic] = answered(users, alice, PRODUCE, 9).responses
    assert topic.partition_responses[0].error_code == 53
    assert broker.replicas.get("c", 0).log.end_offset == 0


def test_the_rest_of_a_long_produce_is_refused_once_the_transactional_id_is_gone(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is worked on in pieces, between which others are served."""
    users = in_transaction
    users.frames.transactions.holding = False
    grow(users, 600)
    alice = users.become("alice").connection
    pieces, append = 0, ProduceApi._append_topic

    def counted(*arguments: Any) -> None:
        nonlocal pieces
        pieces += 1
        append(*arguments)

    monkeypatch.setattr(ProduceApi, "_append_topic", counted)
    take_when(monkeypatch, lambda operation, resource: pieces == 3 and resource is ResourceType.TRANSACTIONAL_ID)
    asked = request(users.frames, 9, dict.fromkeys(range(600), batch(**IN_TRANSACTION)))
    asked.transactional_id = "x"
    assert users.frames.begin(asked, 9) is None
    [topic] = answered(users, alice, PRODUCE, 9).responses
    codes = [partition.error_code for partition in topic.partition_responses]
    assert codes == [0] * 30 + [53] * 570


def test_the_rest_of_many_offsets_of_a_transaction_is_refused_once_the_topic_is_gone(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = in_transaction
    users.frames.transactions.holding = False
    hear_of(users, 600)
    users.become("alice")
    written: list[int] = []
    offsets = users.frames.broker.context.offsets
    commit = offsets.commit_in_transaction

    def counted(who: Any, producer: Any, some: Any) -> Any:
        written.append(len(some))
        cast(AclIdentity, users.frames.connection.peer.identity).forget()
        return commit(who, producer, some)

    monkeypatch.setattr(offsets, "commit_in_transaction", counted)
    take_when(monkeypatch, lambda operation, resource: bool(written) and resource is ResourceType.TOPIC)
    assert commit_many(users) == [0] * 500 + [29] * 100
    assert written == [500]


def commit_many(users: Users) -> list[int]:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in range(600)]
    topic = TxnOffsetCommitRequestTopic(name="t", partitions=partitions)
    asked = TxnOffsetCommitRequest(transactional_id="x", group_id="g", **PRODUCER, topics=[topic])
    [answer] = users.frames.ask(asked, 3).topics
    return [partition.error_code for partition in answer.partitions]


@pytest.mark.parametrize(("resource", "code"), [(ResourceType.TOPIC, 29), (ResourceType.GROUP, 30)])
def test_no_offset_is_committed_or_deleted_once_a_right_is_gone_while_the_request_is_sorted_out(
    users: Users, monkeypatch: pytest.MonkeyPatch, resource: ResourceType, code: int
) -> None:
    hear_of(users, 600)
    users.grant("alice")
    users.become("admin")
    assert create(users.frames, creation("g", operation=DELETE, resource_type=GROUP, principal="User:alice")) == [0]
    alice = users.become("alice")
    assert codes_of(alice.ask(many_to_commit(), 7)) == {0}
    with monkeypatch.context() as patched:
        take_after_first_look(patched, resource)
        assert codes_of(alice.ask(many_to_commit(), 7)) == {code}
    take_after_first_look(monkeypatch, resource)
    answer = alice.ask(many_to_delete(), 0)
    assert codes_of(answer) == {29} if resource is ResourceType.TOPIC else answer.error_code == code


def change_at_each_look(monkeypatch: pytest.MonkeyPatch, *allowed: bool) -> Callable[[], int]:
    """ACLs change whenever a topic is looked at, which then may be used or not; from the last look on it stays at that.
    How often it was looked at."""
    looks = 0

    def may(self: AclIdentity, operation: Operation, resource: ResourceType, *rest: Any) -> bool:
        nonlocal looks
        if resource is not ResourceType.TOPIC:
            return True
        looks += 1
        if looks < 50:
            self.forget()
        return allowed[min(looks, len(allowed)) - 1]

    monkeypatch.setattr(AclIdentity, "may", may)
    return lambda: looks


LARGE = ["commit", "delete", "add"]


def ask_much(users: Users, what: str) -> set[int]:
    alice = users.become("alice")
    if what == "commit":
        return codes_of(alice.ask(many_to_commit(), 7))
    if what == "delete":
        return codes_of(alice.ask(many_to_delete(), 0))
    added = alice.ask(many_to_add(), 3).results_by_topic_v3_and_below
    return {partition.partition_error_code for topic in added for partition in topic.results_by_partition}


@pytest.mark.parametrize("what", LARGE)
def test_a_large_request_is_done_once_its_rights_are_there_however_many_others_come(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    users = with_offsets(in_transaction)
    looks = change_at_each_look(monkeypatch, True)
    assert ask_much(users, what) == {16 if what == "add" else 0}, "nobody coordinates the transaction here"
    assert looks() == 2


@pytest.mark.parametrize("what", LARGE)
def test_a_large_request_ends_though_its_rights_come_and_go_and_uses_none_that_is_gone(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    users = with_offsets(in_transaction)
    before = users.frames.broker.context.offsets.home("g").log.end_offset
    looks = change_at_each_look(monkeypatch, True, False, True, False)
    assert ask_much(users, what) == {29}
    assert looks() == 5
    assert users.frames.broker.context.offsets.home("g").log.end_offset == before


@pytest.mark.parametrize(("resource", "code"), [(ResourceType.TOPIC, 29), (ResourceType.GROUP, 30)])
def test_no_offset_is_deleted_once_a_right_is_gone_while_it_is_read_what_the_group_consumes(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch, resource: ResourceType, code: int
) -> None:
    users = with_offsets(in_transaction)
    has_been_read = False

    def read(subscriptions: Subscriptions) -> Pieces[None]:
        nonlocal has_been_read
        yield
        has_been_read = True
        cast(AclIdentity, users.frames.connection.peer.identity).forget()

    monkeypatch.setattr(Subscriptions, "are_unread", property(lambda _: not has_been_read))
    monkeypatch.setattr(Subscriptions, "read", read)
    take_when(monkeypatch, lambda _, kind: has_been_read and kind is resource)
    answer = users.become("alice").ask(many_to_delete(), 0)
    assert has_been_read
    assert codes_of(answer) == {29} if resource is ResourceType.TOPIC else answer.error_code == code
    assert len(users.frames.broker.context.group_coordination.shard("g").machine.offsets.positions("g")) == 600


@pytest.mark.parametrize(("resource", "code"), [(ResourceType.TOPIC, 29), (ResourceType.GROUP, 30)])
def test_the_rest_of_many_offsets_stays_once_the_right_is_gone(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch, resource: ResourceType, code: int
) -> None:
    users = with_offsets(in_transaction)
    machine = users.frames.broker.context.group_coordination.shard("g").machine
    allows = AclIdentity.allows

    def only_at_first(self: AclIdentity, operation: Operation, kind: ResourceType, *rest: Any) -> bool:
        has_begun = len(machine.offsets.positions("g")) < 600
        return not (has_begun and kind is resource) and allows(self, operation, kind, *rest)

    monkeypatch.setattr(AclIdentity, "allows", only_at_first)
    alice = users.become("alice").connection
    assert users.frames.begin(many_to_delete(), 0) is None
    answer = answered(users, alice, 47, 0)
    left = len(machine.offsets.positions("g"))
    assert 0 < left < 600
    if resource is ResourceType.GROUP:
        assert answer.error_code == code
    else:
        [topic] = answer.topics
        assert [one.error_code for one in topic.partitions] == [0] * (600 - left) + [code] * left


@pytest.mark.parametrize(("name", "resource_type", "code"), [("t", TOPIC, 29), ("g", GROUP, 30)])
@pytest.mark.parametrize("method", ["commit", "fetch"])
def test_the_rest_of_many_offsets_in_the_store_is_left_alone_once_the_right_is_gone(
    users: Users, monkeypatch: pytest.MonkeyPatch, method: str, name: str, resource_type: int, code: int
) -> None:
    """They are written and read one by one, and others are served between them."""
    hear_of(users, 50)
    users.grant("alice")
    alice = users.become("alice")
    done, of_store, rights = 0, getattr(StoredOffsets, method), users.frames.broker.parts.identity.rights
    assert rights is not None
    taken = [Acl("User:alice", "*", each, PermissionType.ALLOW) for each in (Operation.READ, Operation.WRITE)]

    async def counted(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done == 20:
            await rights.acls.remove(Pattern(ResourceType(resource_type), name), taken)
        return await of_store(*arguments)

    asked: Any = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=list(range(50)))]
    )
    if method == "commit":
        partitions = [OffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in range(50)]
        asked = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])
        assert codes_of(alice.ask(asked, 0)) == {0}
    monkeypatch.setattr(StoredOffsets, method, counted)
    [topic] = alice.ask(asked, 0).topics
    served = 0 if method == "commit" else 3  # nothing was committed
    assert [one.error_code for one in topic.partitions] == [served] * 20 + [code] * 30
    assert done == 20


def with_offsets(users: Users) -> Users:
    """The group has some of 2,000 partitions."""
    hear_of(users, 2_000)
    assert codes_of(users.become("alice").ask(many_to_commit(), 7)) == {0}
    users.become("admin")
    assert create(users.frames, creation("g", operation=DELETE, resource_type=GROUP, principal="User:alice")) == [0]
    return users


def many_to_commit() -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in range(600)]
    topic = OffsetCommitRequestTopic(name="t", partitions=partitions)
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[topic])


def many_to_delete() -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=n) for n in range(600)]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])


def many_to_add() -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=5,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(range(2_000)))],
    )


def test_a_large_request_asks_for_each_right_once(in_transaction: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    users = in_transaction
    users.frames.transactions.holding = False
    hear_of(users, 2_000)
    users.become("admin")
    assert create(users.frames, creation("g", operation=DELETE, resource_type=GROUP, principal="User:alice")) == [0]
    alice = users.become("alice")
    asked: Counter[tuple[Any, ...]] = Counter()
    has_right = AclIdentity.may

    def may(self: AclIdentity, *question: Any) -> bool:
        asked[question] += 1
        return has_right(self, *question)

    monkeypatch.setattr(AclIdentity, "may", may)
    assert codes_of(alice.ask(many_to_commit(), 7)) == {0}
    assert codes_of(alice.ask(many_to_delete(), 0)) == {0}
    alice.ask(many_to_add(), 3)
    assert commit_many(users) == [0] * 600
    assert {(kind, request): count for (_, kind, _, request), count in asked.items()} == {
        (ResourceType.GROUP, "OffsetCommit"): 1,
        (ResourceType.TOPIC, "OffsetCommit"): 1,
        (ResourceType.GROUP, "OffsetDelete"): 1,
        (ResourceType.TOPIC, "OffsetDelete"): 1,
        (ResourceType.TRANSACTIONAL_ID, "AddPartitionsToTxn"): 1,
        (ResourceType.TOPIC, "AddPartitionsToTxn"): 1,
        (ResourceType.TRANSACTIONAL_ID, "TxnOffsetCommit"): 1,
        (ResourceType.GROUP, "TxnOffsetCommit"): 1,
        (ResourceType.TOPIC, "TxnOffsetCommit"): 1,
    }


def codes_of(answer: Any) -> set[int]:
    return {partition.error_code for topic in answer.topics for partition in topic.partitions}


def test_no_partition_is_added_once_the_topic_is_gone_while_the_request_is_sorted_out(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = in_transaction
    hear_of(users, 2_000)
    take_after_first_look(monkeypatch, ResourceType.TOPIC)
    [topic] = users.become("alice").ask(many_to_add(), 3).results_by_topic_v3_and_below
    assert {partition.partition_error_code for partition in topic.results_by_partition} == {29}


def test_no_partition_is_added_once_the_topic_is_gone_while_the_request_waits_for_its_last_turn(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = in_transaction
    hear_of(users, 2_000)
    connection = users.become("alice").connection
    header = RequestHeader(ADD_PARTITIONS_TO_TXN, 3, 1, "test")
    large = Request(header, cast(Connection, connection), memoryview(bytes(5_000)))

    async def add() -> Any:
        pieces = add_partitions_to_txn.handle(users.frames.broker.context, large, many_to_add())
        assert isinstance(pieces, Generator)
        while next(pieces) is not LONG:
            pass
        take_when(monkeypatch, lambda _, resource: resource is ResourceType.TOPIC)
        cast(AclIdentity, connection.peer.identity).forget()
        return at_once(pieces)

    [topic] = users.frames.broker.run(add()).results_by_topic_v3_and_below
    assert {partition.partition_error_code for partition in topic.results_by_partition} == {29}


def test_nothing_is_committed_once_the_topic_is_gone_while_the_request_is_sorted_out(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = in_transaction
    users.frames.transactions.holding = False
    hear_of(users, 600)
    users.become("alice")
    take_after_first_look(monkeypatch, ResourceType.TOPIC)
    assert commit_many(users) == [29] * 600


def hear_of(users: Users, count: int) -> None:
    """The topic has so many partitions, of which this broker has the logs of the first ones only."""
    partitions = users.frames.broker.replicas.metadata.topics["t"].partitions
    for index in range(len(partitions), count):
        partitions[index] = copy(partitions[0])
        partitions[index].partition_index = index


def grow(users: Users, count: int) -> None:
    broker = users.frames.broker
    more = MorePartitions(name="t", count=count)
    [result] = broker.run(broker.controller.create_partitions([more], timeout_ms=60_000))
    assert result.error is None


def test_the_rest_of_many_records_to_delete_stays_once_the_right_is_gone(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow(users, 300)
    users.grant("alice")
    users.become("admin")
    assert create(users.frames, creation("t", operation=DELETE, principal="User:alice")) == [0]
    users.become("alice")
    asked, has_right = 0, AclIdentity.allows

    def allows(self: AclIdentity, operation: Operation, *rest: Any) -> bool:
        nonlocal asked
        asked += operation is Operation.DELETE  # once for the topic, then for each partition
        return asked <= 201 and has_right(self, operation, *rest)

    monkeypatch.setattr(AclIdentity, "allows", allows)
    partitions = [DeleteRecordsPartition(partition_index=n, offset=-1) for n in range(300)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=60_000)
    [topic] = users.frames.ask(request, 2).topics
    assert [partition.error_code for partition in topic.partitions] == [0] * 200 + [29] * 100


def creating() -> Any:
    return CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)])


def growing() -> Any:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)])


def deleting() -> Any:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])


def held_controller(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """What is asked of the controller waits until this is set."""
    operate, held = Controller._operate, asyncio.Event()

    async def operate_later(self: Controller, *operation: Any) -> Any:
        await held.wait()
        return await operate(self, *operation)

    monkeypatch.setattr(Controller, "_operate", operate_later)
    return held


@pytest.mark.parametrize(
    ("ask", "operation", "name", "version"),
    [(creating, CREATE, "new", 7), (growing, ALTER, "t", 3), (deleting, DELETE, "t", 6)],
)
def test_topics_are_not_changed_once_the_right_is_gone(
    users: Users, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any], operation: int, name: str, version: int
) -> None:
    """While the request waits for the controller."""
    users.become("admin")
    assert create(users.frames, creation(name, operation=operation, principal="User:alice")) == [0]
    held = held_controller(monkeypatch)
    alice = users.become("alice").connection
    asked = ask()
    asked.timeout_ms = 5_000
    assert users.frames.begin(asked, version) is None
    take(users, name, TOPIC)
    held.set()
    answer = answered(users, alice, asked.__schema__.key, version)
    results = getattr(answer, {37: "results", 20: "responses", 19: "topics"}[asked.__schema__.key])
    assert [(result.name, result.error_code) for result in results] == [(name, 29)]
    topics = users.frames.broker.replicas.metadata.topics
    assert {name: len(topic.partitions) for name, topic in topics.items() if name in ("t", "new")} == {"t": 1}


def electing() -> Any:
    return ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000)


def reassigning(*replicas: int) -> Any:
    moved = ReassignablePartition(partition_index=0, replicas=list(replicas or (1,)))
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=[moved])])


def resizing() -> Any:
    """And forbids it: then the replicas that there are would be told."""
    asked = reassigning(1, 2)
    asked.allow_replication_factor_change = False
    return asked


def updating() -> Any:
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=2)
    return UpdateFeaturesRequest(feature_updates=[update])


def listing() -> Any:
    return ListPartitionReassignmentsRequest(topics=None)


@pytest.mark.parametrize(
    ("ask", "operation", "version"),
    [(electing, ALTER, 2), (reassigning, ALTER, 0), (resizing, ALTER, 1), (updating, ALTER, 1), (listing, DESCRIBE, 0)],
)
def test_the_cluster_is_not_changed_nor_told_of_once_the_right_is_gone(
    users: Users, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any], operation: int, version: int
) -> None:
    """While the request waits for the controller."""
    users.become("admin")
    assert create(users.frames, creation(CLUSTER_NAME, **on_cluster(operation))) == [0]
    held = held_controller(monkeypatch)
    alice = users.become("alice").connection
    asked = ask()
    assert users.frames.begin(asked, version) is None
    take(users, CLUSTER_NAME, CLUSTER)
    held.set()
    answer = answered(users, alice, asked.__schema__.key, version)
    if ask is reassigning:
        [answer] = answer.responses[0].partitions
    assert answer.error_code == 31


def on_cluster(operation: int) -> dict[str, Any]:
    return {"resource_type": CLUSTER, "operation": operation, "principal": "User:alice"}


def test_no_topic_is_created_on_demand_once_the_right_is_gone(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the request waits for the controller."""
    users.become("admin")
    assert create(users.frames, creation("new", operation=CREATE, principal="User:alice")) == [0]
    assert create(users.frames, creation("new", operation=DESCRIBE, principal="User:alice")) == [0]
    make, taken = Topics.create, False
    take_when(monkeypatch, lambda operation, _: taken and operation is Operation.CREATE)

    async def make_later(*arguments: Any, **options: Any) -> Any:
        nonlocal taken
        taken = True
        return await make(*arguments, **options)

    monkeypatch.setattr(Topics, "create", make_later)
    assert metadata(users.become("alice"), "new") == [(5, "new", 0)]
    assert taken and "new" not in users.frames.broker.replicas.metadata.topics
    assert metadata(users.become("alice"), "new") == [(29, "new", 0)]


@pytest.mark.parametrize(("resource", "code"), [(ResourceType.TRANSACTIONAL_ID, 53), (ResourceType.GROUP, 30)])
def test_no_offsets_are_added_once_a_right_is_gone_while_their_topic_is_made(
    in_transaction: Users, monkeypatch: pytest.MonkeyPatch, resource: ResourceType, code: int
) -> None:
    users = in_transaction
    context = users.frames.broker.context
    made = False

    async def make() -> None:
        nonlocal made
        made = True

    monkeypatch.delitem(context.replicas.metadata.topics, GROUPS_TOPIC)
    monkeypatch.setattr(context.group_coordination, "prepare", make)
    take_when(monkeypatch, lambda _, kind: made and kind is resource)
    asked = AddOffsetsToTxnRequest(transactional_id="x", group_id="g", **PRODUCER)
    assert users.become("alice").ask(asked, 3).error_code == code
    assert made


def granting() -> Any:
    return CreateAclsRequest(creations=[creation(CLUSTER_NAME, **on_cluster(ALTER))])


def taking() -> Any:
    return DeleteAclsRequest(filters=[DeleteAclsFilter(pattern_type_filter=1, **ANYTHING)])


@pytest.mark.parametrize("ask", [granting, taking])
def test_no_acl_is_changed_once_the_right_is_gone(
    users: Users, monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Any]
) -> None:
    """While the request waits for another change of ACLs: its sender could give himself the right again."""
    users.become("admin")
    assert create(users.frames, creation(CLUSTER_NAME, **on_cluster(ALTER))) == [0]
    rights = users.frames.broker.parts.identity.rights
    assert rights is not None
    before, gone = set(rights.acls), False
    take_when(monkeypatch, lambda operation, _: gone and operation is Operation.ALTER)
    users.frames.broker.run(rights.acls._reading.acquire())
    alice, asked = users.become("alice").connection, ask()
    assert users.frames.begin(asked, 3) is None
    users.frames.broker.run(asyncio.sleep(0.01))
    gone = True
    rights.acls._reading.release()
    answer = answered(users, alice, asked.__schema__.key, 3)
    [result] = answer.results if ask is granting else answer.filter_results[0].matching_acls
    assert result.error_code == 31
    assert set(rights.acls) == before


def test_who_takes_the_right_from_himself_changes_nothing_more(users: Users) -> None:
    """Within the same request."""
    cluster = {"resource_type": 4, "operation": 7, "principal": "User:carol"}
    users.become("admin")
    assert create(users.frames, creation("kafka-cluster", **cluster)) == [0]
    carol = users.become("carol")
    denial = creation("kafka-cluster", **cluster, permission_type=2)
    assert create(carol, creation("first"), denial, creation("second")) == [0, 0, 31]
    users.become("admin")
    names = {resource.resource_name for resource in users.frames.ask(everything(3), 3).resources}
    assert "first" in names and "second" not in names


def test_the_rest_of_many_topics_is_not_created_once_the_right_is_gone(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written in groups, between which others are served."""
    users.become("admin")
    new = {"principal": "User:alice", "resource_pattern_type": 4}
    assert create(users.frames, creation("new-", operation=CREATE, **new)) == [0]
    written, write = 0, Topics._write

    async def counted(*arguments: Any) -> None:
        nonlocal written
        await write(*arguments)
        written += 1

    monkeypatch.setattr(Topics, "_write", counted)
    take_when(monkeypatch, lambda operation, resource: operation is Operation.CREATE and written > 0)
    topics = [CreatableTopic(name=f"new-{n}", num_partitions=1, replication_factor=1) for n in range(300)]
    alice = users.become("alice").connection
    assert users.frames.begin(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7) is None
    codes = [topic.error_code for topic in answered(users, alice, 19, 7).topics]
    assert 1 <= written <= 100, "those that were being written"
    assert codes == [0] * written + [29] * (300 - written)


def test_the_rest_of_many_quotas_is_not_changed_once_the_right_is_gone(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are written one by one, and others are served between them."""
    users.become("admin")
    who = {"resource_type": 4, "principal": "User:alice", "operation": ALTER_CONFIGS}
    assert create(users.frames, creation("kafka-cluster", **who)) == [0]
    asked = 0

    def gone(operation: Operation, _: ResourceType) -> bool:
        nonlocal asked
        asked += operation is Operation.ALTER_CONFIGS  # once for the request, then for each entry
        return asked > 21

    take_when(monkeypatch, gone)
    entries = [
        RequestEntryData(
            entity=[EntityData(entity_type="user", entity_name=f"u{number}")],
            ops=[OpData(key="producer_byte_rate", value=1e6)],
        )
        for number in range(50)
    ]
    alice = users.become("alice").connection
    assert users.frames.begin(AlterClientQuotasRequest(entries=entries), 1) is None
    codes = [entry.error_code for entry in answered(users, alice, 49, 1).entries]
    assert codes == [0] * 20 + [31] * 30
    assert len(users.frames.broker.configs.entities.all) == 20


def metadata(frames: Frames, *names: str) -> list[tuple[int, str, int]]:
    wanted = [MetadataRequestTopic(name=name) for name in names] if names else None
    answer = frames.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=True), 9)
    return sorted((topic.error_code, topic.name, len(topic.partitions)) for topic in answer.topics)


def test_topics_that_may_not_be_seen_look_like_those_that_do_not_exist(users: Users) -> None:
    users.frames.broker.create("secret")
    users.grant("alice")
    alice = users.become("alice")
    assert metadata(alice) == [(0, "t", 1)]
    assert metadata(alice, "secret", "missing", "t") == [(0, "t", 1), (29, "missing", 0), (29, "secret", 0)]
    assert "missing" not in users.frames.broker.replicas.metadata.topics
    users.become("admin")
    assert create(users.frames, creation("new-", operation=8, principal="User:alice", resource_pattern_type=4)) == [0]
    assert metadata(users.become("alice"), "new-1") == [(29, "new-1", 0)], "to see a topic is no right to create it"
    users.become("admin")
    assert create(users.frames, creation("new-", operation=5, principal="User:alice", resource_pattern_type=4)) == [0]
    assert metadata(users.become("alice"), "new-1") == [(0, "new-1", 1)]


def test_a_new_name_that_collides_tells_only_who_may_see_it_of_which_other(users: Users) -> None:
    users.frames.broker.create("pay_roll")
    users.become("admin")
    of_alice = {"principal": "User:alice", "resource_pattern_type": 4}
    assert create(users.frames, creation("pay.", operation=CREATE, **of_alice)) == [0]
    wanted = [CreatableTopic(name="pay.roll", num_partitions=1, replication_factor=1)]

    def refusal(user: str) -> tuple[int, str]:
        [topic] = users.become(user).ask(CreateTopicsRequest(topics=wanted, validate_only=True), 7).topics
        return topic.error_code, topic.error_message

    assert refusal("alice") == (17, "Topic 'pay.roll' collides with an existing topic")
    assert refusal("admin") == (17, "Topic 'pay.roll' collides with existing topics: pay_roll")
    assert create(users.frames, creation("pay_", operation=DESCRIBE, **of_alice)) == [0]
    assert refusal("alice") == refusal("admin")


def test_without_an_authorizer_nobody_is_asked_for_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafkad.security.authorizer import Anybody

    asked: list[Any] = []
    for method in ("allows", "may", "writes_any"):
        monkeypatch.setattr(Anybody, method, lambda *what: asked.append(what) or True)
    broker = OneBroker(tmp_path)
    frames = Frames(broker)
    try:
        broker.create("t")
        for _ in range(3):
            assert (produce(frames), fetch(frames)) == (0, 0)
        assert not asked
    finally:
        frames.close()
        broker.stop()
