"""CreateAcls, DescribeAcls and DeleteAcls: what real Kafka answered, and what is stricter here on purpose."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkad.cluster.acls import Acls
from kafkad.meta.store import MultiFailed, NoRoom, Refused, TooLarge
from kafkad.net.connection import Ending
from kafkad.security.authorizer import Operation, Principal, ResourceType
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import read_request_header, read_response_header
from kafkad.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kafkad.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkad.wire.messages.describe_acls import DescribeAclsRequest
from kafkad.wire.primitives import MAX_STRING
from kafkad.wire.schema import decode
from tests.api.frames import Frames
from tests.one_broker import OneBroker

GOLDEN = Path(__file__).parents[1] / "golden" / "security" / "acls.jsonl"
AUTHORIZER = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
ADMIN = Principal("User", "admin")
TOPIC, LITERAL, PREFIXED, ALLOW = 2, 3, 4, 3

STRICTER = {
    "type ANY": "ANY and MATCH are for filters",
    "pattern MATCH": "ANY and MATCH are for filters",
    "pattern ANY": "ANY and MATCH are for filters",
    "operation ANY": "ANY and MATCH are for filters",
    "permission ANY": "ANY and MATCH are for filters",
    "principal 'a' (no type)": "'a' is no principal",
    "principal ''": "'' is no principal",
    "host ''": "'' would never match",
    "host 'nonsense'": "'nonsense!' would never match",
    "host 10.0.0.0/8": "'10.0.0.0/8' would never match",
}
"""Kafka answers these with an exception, or keeps an ACL that never matches."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path, AUTHORIZER, "super.users=User:admin")
    yield broker
    broker.stop()


@pytest.fixture
def frames(broker: OneBroker) -> Iterator[Frames]:
    rights = broker.parts.identity.rights
    assert rights is not None
    frames = Frames(broker, rights.authorizer)
    frames.connection.peer.identify(ADMIN)
    yield frames
    frames.close()


def acls(broker: OneBroker) -> Acls:
    assert broker.context.acls is not None
    return broker.context.acls


def test_requests_are_answered_as_kafka_answers_them(
    broker: OneBroker, frames: Frames, caplog: pytest.LogCaptureFixture
) -> None:
    for case in map(json.loads, GOLDEN.read_text().splitlines()):
        key, version = case["key"], case["version"]
        request = memoryview(bytes.fromhex(case["request"]))
        message = decode(request_class(key), version, request[read_request_header(request, 0)[1] :])
        if case["response"] is None:
            caplog.clear()
            with pytest.raises(Ending):
                frames.ask(message, version)
            assert "that its sender does not know itself" in caplog.text
            continue
        answer = frames.ask(message, version)
        if case["what"] in STRICTER:
            [result] = answer.results
            assert result.error_code == 42
            assert result.error_message.startswith(STRICTER[case["what"]])
            continue
        expected = memoryview(bytes.fromhex(case["response"]))
        kafkas = decode(response_class(key), version, expected[read_response_header(key, version, expected)[1] :])
        assert _sorted(answer) == _sorted(kafkas), case["what"]
    left = {(pattern.name, acl.principal) for pattern, acl in acls(broker)}
    assert ("t-o", "User:a") in left and ("t-d", "User:a") not in left


def _sorted(message: Any) -> Any:
    """Kafka's order is that of a hash map. ACLs for hosts that never match are not kept here."""
    if isinstance(message, list):
        return sorted((_sorted(each) for each in message if getattr(each, "resource_name", "") != "t-h"), key=repr)
    if not hasattr(message, "__schema__"):
        return message
    return [_sorted(getattr(message, field)) for field in message.__slots__]


def creation(name: str = "t", **other: Any) -> AclCreation:
    values = {"resource_type": TOPIC, "principal": "User:bob", "host": "*", "operation": 3, "permission_type": ALLOW}
    return AclCreation(resource_name=name, **(values | other))


def create(frames: Frames, *creations: AclCreation, version: int = 3) -> list[int]:
    return [result.error_code for result in frames.ask(CreateAclsRequest(creations=list(creations)), version).results]


ANYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def everything(version: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(pattern_type_filter=1 if version else LITERAL, **ANYTHING)


@pytest.mark.parametrize("version", range(4))
def test_every_version_creates_finds_and_deletes(frames: Frames, version: int) -> None:
    assert create(frames, creation("t"), creation("u", operation=4), version=version) == [0, 0]
    found = frames.ask(everything(version), version)
    assert {resource.resource_name for resource in found.resources} == {"t", "u"}
    asked = DeleteAclsFilter(**ANYTHING | {"resource_type_filter": TOPIC, "resource_name_filter": "t"})
    [result] = frames.ask(DeleteAclsRequest(filters=[asked]), version).filter_results
    assert [acl.resource_name for acl in result.matching_acls] == ["t"]
    assert [resource.resource_name for resource in frames.ask(everything(version), version).resources] == ["u"]


def test_many_are_found_in_pieces(frames: Frames, broker: OneBroker) -> None:
    create(frames, *(creation(f"t{number}") for number in range(80)))
    assert broker.stops(everything(3), 3) >= 4


@pytest.mark.parametrize("name", ["a/b", "..", ".", "a\nb", "\x00"])
def test_names_that_no_znode_can_have_are_refused(frames: Frames, name: str) -> None:
    group = creation(name, resource_type=3)
    assert create(frames, group, creation("t")) == [42, 0]


def test_a_name_that_is_too_long_for_the_store_is_refused_and_the_others_are_created(frames: Frames) -> None:
    answer = frames.ask(CreateAclsRequest(creations=[creation("x" * MAX_STRING), creation("short")]), 3)
    assert [result.error_code for result in answer.results] == [42, 0]
    assert "too long" in answer.results[0].error_message


@pytest.mark.parametrize("version", range(4))
def test_without_an_authorizer_there_are_no_acls(tmp_path: Path, version: int) -> None:
    broker = OneBroker(tmp_path)
    frames = Frames(broker)
    try:
        answer = frames.ask(everything(version), version)
        assert (answer.error_code, answer.error_message) == (54, "No Authorizer is configured on the broker")
        assert create(frames, creation(), creation(), version=version) == [54, 54]
        filters = [DeleteAclsFilter(**ANYTHING)]
        [result] = frames.ask(DeleteAclsRequest(filters=filters), version).filter_results
        assert (result.error_code, result.error_message) == (54, "No Authorizer is configured.")
    finally:
        frames.close()
        broker.stop()


def test_what_is_added_and_removed_holds_at_once_and_is_in_the_audit_log(
    frames: Frames, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("kafkad"), "propagate", True)
    bob = frames.connect()
    bob.peer.identify(Principal("User", "bob"))
    rights = Operation.READ, ResourceType.TOPIC
    assert not bob.peer.identity.allows(*rights, "orders")
    with caplog.at_level(logging.INFO, "kafkad.audit"):
        create(frames, creation("ord", resource_pattern_type=PREFIXED))
        assert bob.peer.identity.allows(*rights, "orders")
        asked = DeleteAclsFilter(pattern_type_filter=1, **ANYTHING)
        frames.ask(DeleteAclsRequest(filters=[asked]), 3)
    assert not bob.peer.identity.allows(*rights, "orders")
    assert [record.getMessage() for record in caplog.records] == [
        f"ACL {what}: allow User:bob from * read on topic ord*; by User:admin from a-test:1, client test"
        for what in ("created", "deleted")
    ]


@pytest.mark.parametrize(("error", "code"), [(TooLarge, 42), (NoRoom, 56)])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_what_the_store_refuses_is_refused_and_what_else_is_asked_for_is_done(
    broker: OneBroker,
    frames: Frames,
    monkeypatch: pytest.MonkeyPatch,
    error: type[Refused],
    code: int,
    in_transaction: bool,
) -> None:
    create(frames, creation("t"), creation("u"))
    store_type = type(broker.store)
    multi, node = store_type.multi, "/kafka-acl/Topic/t"

    async def refusing(self: Any, operations: Sequence[Any]) -> Any:
        if operations[0].path != node:
            return await multi(self, operations)
        raise MultiFailed(0, error(node, "it is full")) if in_transaction else error(node, "it is full")

    monkeypatch.setattr(store_type, "multi", refusing)
    asked = CreateAclsRequest(creations=[creation("t", operation=4), creation("u", operation=4)])
    refused, done = frames.ask(asked, 3).results
    assert (refused.error_code, "it is full" in refused.error_message, done.error_code) == (code, True, 0)
    deletion = DeleteAclsRequest(filters=[DeleteAclsFilter(pattern_type_filter=1, **ANYTHING)])
    [deleted] = frames.ask(deletion, 3).filter_results
    codes = {(each.resource_name, each.error_code) for each in deleted.matching_acls}
    assert codes == {("t", code), ("u", 0)}


def test_a_damaged_node_is_named_and_cannot_be_written_over(
    broker: OneBroker, frames: Frames, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("kafkad"), "propagate", True)
    create(frames, creation("t"), creation("u"))
    bob = frames.connect()
    bob.peer.identify(Principal("User", "bob"))
    broker.run(broker.store.set("/kafka-acl/Topic/t", b'{"version":1,"acls":[{"principal":"User:bob"'))
    broker.run(broker.store.create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True))
    broker.settle()
    assert "the ACLs in /kafka-acl/Topic/t cannot be read" in caplog.text
    assert acls(broker).damaged == ["/kafka-acl/Topic/t"]
    allows = bob.peer.identity.allows
    assert not allows(Operation.READ, ResourceType.TOPIC, "t")
    assert allows(Operation.READ, ResourceType.TOPIC, "u")
    [result] = frames.ask(CreateAclsRequest(creations=[creation("t", operation=4)]), 3).results
    assert (result.error_code, "mend or delete the node" in result.error_message) == (-1, True)
