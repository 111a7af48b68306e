"""The APIs of classic groups, in every version, as Kafka 3.9 answers them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkad.api.java import address_text
from kafkad.api.operations import NOT_ASKED_FOR
from kafkad.errors import ErrorCode, KafkaError
from kafkad.group.events import DescribedMember, Description, State
from kafkad.group.records import GroupWritten, decode
from kafkad.wire.messages.delete_groups import DeleteGroupsRequest
from kafkad.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from kafkad.wire.messages.heartbeat import HeartbeatRequest
from kafkad.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafkad.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafkad.wire.messages.list_groups import ListGroupsRequest
from kafkad.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkad.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafkad.wire.primitives import MAX_STRING
from kafkad.wire.records import BATCH_HEADER, HEADER_SIZE, parse_records
from kafkad.wire.schema import encode
from tests.one_broker import OneBroker

OK = ErrorCode.NONE
READ_DELETE_DESCRIBE = 1 << 3 | 1 << 6 | 1 << 8


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:
    """One for all: each test has groups of its own."""
    directory: Path = tmp_path_factory.mktemp("groups")
    started = OneBroker(directory, "group.initial.rebalance.delay.ms=0", "group.max.size=3")
    started.run(started.context.group_coordination.prepare())
    started.run_until(lambda: len(list(started.context.group_coordination.shards())) == 50)
    yield started
    started.stop()


def join(group: str, version: int, member_id: str = "", **more: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    if version >= 1:
        request.rebalance_timeout_ms = 20_000
    for name, value in more.items():
        setattr(request, name, value)
    return request


def joined(broker: OneBroker, group: str, version: int = 3, **more: Any) -> Any:
    [answer] = broker.ask_together((join(group, version, **more), version))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        [answer] = broker.ask_together((join(group, version, answer.member_id, **more), version))
    assert answer.error_code == OK
    return answer


def refusal(broker: OneBroker, message: Any, version: int) -> ErrorCode:
    """Of a request as a whole, which dispatch makes an answer of."""
    with pytest.raises(KafkaError) as refused:
        broker.ask(message, version)
    return refused.value.code


def sync(group: str, version: int, member_id: str, generation: int = 1, **assignments: bytes) -> SyncGroupRequest:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=one, assignment=part) for one, part in assignments.items()],
    )
    if version >= 5:
        request.protocol_type, request.protocol_name = "consumer", "range"
    return request


def stable(broker: OneBroker, group: str, **more: Any) -> str:
    member: str = joined(broker, group, 9, **more).member_id
    request = sync(group, 3, member)
    request.assignments = [SyncGroupRequestAssignment(member_id=member, assignment=b"part")]
    assert broker.ask(request, 3).error_code == OK
    return member


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins(broker: OneBroker, version: int) -> None:
    group = f"join-{version}"
    [first] = broker.ask_together((join(group, version), version))
    if version >= 4:
        assert (first.error_code, first.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert (first.leader, first.members) == ("", [])
        assert (first.protocol_type, first.protocol_name) == (None, None if version >= 7 else "")
        [first] = broker.ask_together((join(group, version, first.member_id), version))
    assert (first.error_code, first.generation_id, first.protocol_name) == (OK, 1, "range")
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    assert first.member_id.startswith("test-")
    assert len(first.member_id) == len("test-") + 36
    assert first.leader == first.member_id
    assert [(one.member_id, one.group_instance_id, one.metadata) for one in first.members] == [
        (first.member_id, None, b"m")
    ]


def test_metadata_that_no_record_could_hold_is_refused(broker: OneBroker) -> None:
    large = [JoinGroupRequestProtocol(name="range", metadata=bytes(1_100_000))]
    assert broker.ask(join("large", 3, protocols=large), 3).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(("version", "timeout_ms"), [(0, 10_000), (1, 20_000)])
def test_the_first_version_has_no_rebalance_timeout_but_its_session(
    broker: OneBroker, version: int, timeout_ms: int
) -> None:
    group = f"patient-{version}"
    member = joined(broker, group, version).member_id
    log = broker.context.group_coordination.shard(group).partition.log
    at = log.size
    assert broker.ask(sync(group, 0, member), 0).error_code == OK
    data = os.pread(log.segments[0].file.fd, log.size - at, at)
    [record] = parse_records(data[HEADER_SIZE:], BATCH_HEADER.unpack_from(data))
    written = decode(record.key or b"", record.value)
    assert isinstance(written, GroupWritten)
    assert [(one.session_timeout, one.rebalance_timeout) for one in written.members] == [(10_000, timeout_ms)]


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_comes_back(broker: OneBroker, version: int) -> None:
    group = f"static-{version}"
    old = stable(broker, group, group_instance_id="i")
    assert old.startswith("i-")
    [back] = broker.ask_together((join(group, version, group_instance_id="i"), version))
    assert (back.error_code, back.generation_id) == (OK, 1)
    assert back.skip_assignment == (version >= 9)
    assert back.leader == (back.member_id if version >= 9 else old)
    answer = broker.ask(sync(group, 3, back.member_id), 3)
    assert answer.assignment == b"part"
    heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id=old, group_instance_id="i")
    assert broker.ask(heartbeat, 3).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_may_have_an_empty_name(broker: OneBroker) -> None:
    """It is the start of the member's id then, and not the client's."""
    assert stable(broker, "nameless", group_instance_id="").startswith("-")


@pytest.mark.parametrize("version", range(10))
def test_joins_that_are_refused(broker: OneBroker, version: int) -> None:
    def refused(group: str, **more: Any) -> tuple[int, str]:
        answer = broker.ask(join(group, version, **more), version)
        assert (answer.generation_id, answer.leader, answer.members) == (-1, "", [])
        assert answer.protocol_name == (None if version >= 7 else "")
        return answer.error_code, answer.member_id

    assert refused("", member_id="m") == (ErrorCode.INVALID_GROUP_ID, "m")
    assert refused("g", session_timeout_ms=5999) == (ErrorCode.INVALID_SESSION_TIMEOUT, "")
    assert refused("g", session_timeout_ms=2**31 - 1) == (ErrorCode.INVALID_SESSION_TIMEOUT, "")
    assert refused("g", protocol_type="") == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused("g", protocols=[]) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert refused("g", member_id="m") == (ErrorCode.UNKNOWN_MEMBER_ID, "m")


def test_a_group_may_be_full(broker: OneBroker) -> None:
    questions = [(join("full", 3), 3) for _ in range(3)]
    assert {answer.generation_id for answer in broker.ask_together(*questions)} == {1}
    answer = broker.ask(join("full", 3), 3)
    assert (answer.error_code, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


@pytest.mark.parametrize("version", range(6))
def test_everybody_syncs(broker: OneBroker, version: int) -> None:
    group = f"sync-{version}"
    leader, follower = broker.ask_together((join(group, 3), 3), (join(group, 3), 3))
    if not leader.members:
        leader, follower = follower, leader
    leads = sync(group, version, leader.member_id)
    leads.assignments = [
        SyncGroupRequestAssignment(member_id=leader.member_id, assignment=b"L"),
        SyncGroupRequestAssignment(member_id=follower.member_id, assignment=b"F"),
        SyncGroupRequestAssignment(member_id="stranger", assignment=b"S"),
    ]
    answers = broker.ask_together((sync(group, version, follower.member_id), version), (leads, version))
    assert [(answer.error_code, answer.assignment) for answer in answers] == [(OK, b"F"), (OK, b"L")]
    expected = ("consumer", "range") if version >= 5 else (None, None)
    assert {(answer.protocol_type, answer.protocol_name) for answer in answers} == {expected}


@pytest.mark.parametrize("version", range(6))
def test_syncs_that_are_refused(broker: OneBroker, version: int) -> None:
    group = f"unsynced-{version}"
    member = stable(broker, group)

    def refused(request: SyncGroupRequest) -> int:
        answer = broker.ask(request, version)
        assert (answer.protocol_type, answer.protocol_name, answer.assignment) == (None, None, b"")
        code: int = answer.error_code
        return code

    assert refused(sync("", version, member)) == ErrorCode.INVALID_GROUP_ID
    assert refused(sync("nowhere", version, member)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(sync(group, version, "stranger")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused(sync(group, version, member, 7)) == ErrorCode.ILLEGAL_GENERATION
    if version >= 5:
        for kind, protocol in ((None, "range"), ("consumer", None), ("connect", "range"), ("consumer", "sticky")):
            request = sync(group, version, member)
            request.protocol_type, request.protocol_name = kind, protocol
            assert refused(request) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
def test_heartbeats(broker: OneBroker, version: int) -> None:
    group = f"heartbeat-{version}"
    member = stable(broker, group)

    def beat(group: str, member: str, generation: int = 1, **more: Any) -> int:
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, **more)
        code: int = broker.ask(request, version).error_code
        return code

    assert beat(group, member) == OK
    assert beat(group, member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert beat(group, "stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("nowhere", member) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat("", member) == ErrorCode.INVALID_GROUP_ID
    if version >= 3:
        assert beat(group, member, group_instance_id="i") == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_members_leave(broker: OneBroker, version: int) -> None:
    group = f"leave-{version}"
    member = stable(broker, group)
    if version < 3:
        assert broker.ask(LeaveGroupRequest(group_id=group, member_id="x"), version).error_code == 25
        assert broker.ask(LeaveGroupRequest(group_id=group, member_id=member), version).error_code == OK
        assert refusal(broker, LeaveGroupRequest(group_id="", member_id=member), version) == 24
        return
    members = [
        MemberIdentity(member_id="x"),
        MemberIdentity(member_id=member, **({"reason": "tired"} if version >= 5 else {})),
        MemberIdentity(member_id="", group_instance_id="i"),
    ]
    answer = broker.ask(LeaveGroupRequest(group_id=group, members=members), version)
    assert answer.error_code == OK
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in answer.members] == [
        ("x", None, ErrorCode.UNKNOWN_MEMBER_ID),
        (member, None, OK),
        ("", "i", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert refusal(broker, LeaveGroupRequest(group_id="", members=members), version) == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(7))
def test_groups_are_described(broker: OneBroker, version: int) -> None:
    group = f"described-{version}"
    member = stable(broker, group, group_instance_id="i")
    request = DescribeGroupsRequest(groups=[group, "nowhere", ""], include_authorized_operations=version >= 3)
    found, missing, nameless = broker.ask(request, version).groups
    assert found == DescribedGroup(
        group_id=group,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[
            DescribedGroupMember(
                member_id=member,
                group_instance_id="i" if version >= 4 else None,
                client_id="test",
                client_host="/127.0.0.1",
                member_metadata=b"m",
                member_assignment=b"part",
            )
        ],
        authorized_operations=READ_DELETE_DESCRIBE if version >= 3 else NOT_ASKED_FOR,
    )
    for absent, name in ((missing, "nowhere"), (nameless, "")):
        assert (absent.group_id, absent.group_state, absent.members) == (name, "Dead", [])
        assert absent.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else OK)


def test_a_group_that_is_named_twice_is_described_once(broker: OneBroker) -> None:
    stable(broker, "repeated")
    found = broker.ask(DescribeGroupsRequest(groups=["repeated", "nowhere", "repeated"]), 5).groups
    assert [group.group_id for group in found] == ["repeated", "nowhere"]


def test_an_answer_can_hold_that_a_group_of_any_name_is_not_there(broker: OneBroker) -> None:
    answer = broker.ask(DescribeGroupsRequest(groups=["g" * MAX_STRING]), 6)
    assert answer.groups[0].error_message.startswith("Group ggg")
    assert encode(answer, 6)


def test_only_a_stable_group_shows_what_was_assigned(broker: OneBroker) -> None:
    joined(broker, "unassigned")
    [found] = broker.ask(DescribeGroupsRequest(groups=["unassigned"]), 5).groups
    [member] = found.members
    assert (found.group_state, found.protocol_data) == ("CompletingRebalance", "")
    assert (member.member_metadata, member.member_assignment) == (b"", b"")


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(broker: OneBroker, version: int) -> None:
    group = f"listed-{version}"
    stable(broker, group)
    listed = {one.group_id: one for one in broker.ask(ListGroupsRequest(), version).groups}
    assert listed[group].protocol_type == "consumer"
    assert listed[group].group_state == ("Stable" if version >= 4 else "")
    assert listed[group].group_type == ("classic" if version >= 5 else "")


def test_many_groups_are_listed_in_pieces(broker: OneBroker) -> None:
    machine = broker.context.group_coordination.shard("many").machine
    for number in range(300):
        machine.begin(f"many-{number}")
    assert broker.stops(ListGroupsRequest(), 4) >= 30


def test_many_members_leave_in_pieces(broker: OneBroker) -> None:
    member = stable(broker, "exodus")
    members = [MemberIdentity(member_id=f"m{number}") for number in range(50)]
    assert (
        broker.stops(LeaveGroupRequest(group_id="exodus", members=[*members, MemberIdentity(member_id=member)]), 5)
        >= 50
    )
    [found] = broker.ask(DescribeGroupsRequest(groups=["exodus"]), 5).groups
    assert found.group_state == "Empty"


def test_many_members_are_described_in_pieces(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    members = tuple(DescribedMember(f"m{number}", None, "c", "/127.0.0.1", b"", b"") for number in range(50))
    monkeypatch.setattr(broker.context.groups, "describe", lambda group: Description(State.STABLE, members=members))
    assert broker.stops(DescribeGroupsRequest(groups=["crowd"]), 5) >= 50


def test_lists_are_filtered(broker: OneBroker) -> None:
    stable(broker, "filtered")

    def listed(**filters: list[str]) -> bool:
        version = 5 if "types_filter" in filters else 4
        answer = broker.ask(ListGroupsRequest(**filters), version)  # type: ignore[arg-type]
        return "filtered" in {one.group_id for one in answer.groups}

    assert listed(states_filter=["stable"])
    assert listed(states_filter=["Empty", "STABLE"])
    assert not listed(states_filter=["Empty", "nonsense"])
    assert listed(types_filter=["Classic"])
    assert not listed(types_filter=["consumer"])
    assert not listed(types_filter=["classic"], states_filter=["Dead"])


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted(broker: OneBroker, version: int) -> None:
    empty, busy = f"empty-{version}", f"busy-{version}"
    member = stable(broker, empty)
    stable(broker, busy)
    broker.ask(LeaveGroupRequest(group_id=empty, member_id=member), 0)
    answer = broker.ask(DeleteGroupsRequest(groups_names=[empty, busy, "nowhere", empty, ""]), version)
    assert [(one.group_id, one.error_code) for one in answer.results] == [
        (empty, OK),
        (busy, ErrorCode.NON_EMPTY_GROUP),
        ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_a_deletion_that_takes_too_long_is_answered_and_goes_on(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "offsets.commit.timeout.ms=1", "offsets.topic.num.partitions=1")
    broker.run(broker.context.group_coordination.prepare())
    broker.run_until(lambda: bool(list(broker.context.group_coordination.shards())))
    broker.create("t")
    topics = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=0)])]
    broker.ask(OffsetCommitRequest(group_id="g", topics=topics), 5)
    home = broker.context.group_coordination.shard("g").partition
    broker.lead(*home.tp, leader=1, isr=[1, 2])
    broker.run_until(lambda: not broker.context.group_coordination.loading)
    [[deleted]] = [one.results for one in broker.ask_together((DeleteGroupsRequest(groups_names=["g"]), 2))]
    assert deleted.error_code == ErrorCode.REQUEST_TIMED_OUT
    machine = broker.context.group_coordination.shard("g").machine
    assert machine.groups["g"].state is State.DEAD

    async def fetched() -> None:
        home.fetched_by(2, home.log.end_offset, 0)

    broker.run(fetched())
    broker.settle()
    assert "g" not in machine.groups
    broker.stop()


def test_a_group_with_a_long_name_and_many_offsets_is_deleted(broker: OneBroker) -> None:
    """All its tombstones together are more than a batch may have."""
    broker.create("many", 10)
    group = "g" * 3_000
    home = broker.context.group_coordination.shard(group).partition
    home.update_config(replace(home.log.config, max_message_bytes=20_000))
    for at in (0, 5):
        partitions = [OffsetCommitRequestPartition(partition_index=at + each, committed_offset=1) for each in range(5)]
        topics = [OffsetCommitRequestTopic(name="many", partitions=partitions)]
        [answer] = broker.ask(OffsetCommitRequest(group_id=group, topics=topics), 5).topics
        assert not any(one.error_code for one in answer.partitions)
    [deleted] = broker.ask(DeleteGroupsRequest(groups_names=[group]), 2).results
    assert deleted.error_code == OK
    [described] = broker.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    assert described.group_state == "Dead"


def test_while_groups_are_loaded(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members go on as if nothing were, as old clients know no code for it."""
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def refuse(group: str) -> None:
        raise KafkaError(loading, "it is being loaded")

    monkeypatch.setattr(broker.context.group_coordination, "shard", refuse)
    monkeypatch.setattr(type(broker.context.group_coordination), "loading", True)
    assert broker.ask(join("g", 9), 9).error_code == loading
    assert broker.ask(sync("g", 5, "m"), 5).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert broker.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4).error_code == OK
    assert refusal(broker, LeaveGroupRequest(group_id="g", members=[MemberIdentity()]), 4) == loading
    [described] = broker.ask(DescribeGroupsRequest(groups=["g"], include_authorized_operations=True), 5).groups
    assert (described.error_code, described.group_state) == (loading, "")
    assert described.authorized_operations == NOT_ASKED_FOR
    [deleted] = broker.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
    assert deleted.error_code == loading
    assert broker.ask(ListGroupsRequest(), 4).error_code == loading


def test_the_metrics_have_kafkas_names(broker: OneBroker) -> None:
    stable(broker, "measured")
    families = {family.name: family for family in broker.context.groups.collect()}
    prefix = "kafka_coordinator_group_groupmetadatamanager"
    states = ("preparingrebalance", "completingrebalance", "stable", "dead", "empty")
    of_states = [families[f"{prefix}_numgroups{state}"].samples for state in states]
    [(_, total)] = families[f"{prefix}_numgroups"].samples
    assert total == sum(value for [(_, value)] in of_states) >= 1


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42", "/2001:db8:0:0:0:0:ff00:42"),
        ("::ffff:10.0.0.1", "/10.0.0.1"),
        ("fe80::1%eth0", "/fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_addresses_are_shown_as_java_does(host: str, text: str) -> None:
    assert address_text(host) == text


def test_metrics_have_the_names_of_the_usual_exporter(broker: OneBroker) -> None:
    names = {family.name for family in broker.context.groups.collect()}
    assert "kafka_coordinator_group_groupmetadatamanager_numgroups" in names
    assert {f"kafka_server_group_coordinator_metrics_partition_load_time_{kind}" for kind in ("avg", "max")} <= names
