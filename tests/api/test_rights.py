"""Every API asks for the rights that Kafka asks for, refuses in the same bytes, and is silent about what is hidden."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kafkad.api import dispatch
from kafkad.api.routes import BETWEEN_BROKERS, BY_KEY, ROUTES, Route
from kafkad.metrics import RequestProbe
from kafkad.net.connection import Connection
from kafkad.net.reply import PENDING, Reply
from kafkad.security.acl import Acl, Pattern
from kafkad.security.authorizer import Operation, PatternType, PermissionType, Principal, ResourceType
from kafkad.turns import at_once
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.schema import decode
from tests.api.frames import FakeConnection, Frames
from tests.api.test_acls import AUTHORIZER
from tests.one_broker import OneBroker

GOLDEN = Path(__file__).parents[1] / "golden" / "security"
DENIED = [json.loads(line) for line in (GOLDEN / "denied.jsonl").read_text().splitlines()]
DECISIONS = [json.loads(line) for line in (GOLDEN / "decisions.jsonl").read_text().splitlines()]
KAFKAS_TOPIC_ID = bytes.fromhex("2185c3f85126468da5d6f63a1cb7cd38")
ONE_SHARD = "offsets.topic.num.partitions=1"
KAFKAS_OWN = {"host", "port", "cluster_id"}
PRINTS_AN_OBJECT = {
    "DescribeAcls",
    "CreateAcls",
    "DeleteAcls",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
}
"""Kafka's refusal of these shows a Java object with the request in it. Ours says what the other refusals say."""
BOB, CAROL = Principal("User", "bob"), Principal("User", "carol")


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frames]:
    broker = OneBroker(tmp_path_factory.mktemp("rights"), AUTHORIZER, "super.users=User:admin", ONE_SHARD)
    rights = broker.parts.identity.rights
    assert rights is not None
    broker.context.between_brokers = BETWEEN_BROKERS
    frames = Frames(broker, rights.authorizer)
    for route in BETWEEN_BROKERS:
        frames.probes[route.key] = RequestProbe(route.name)
    broker.create("t1")
    coordination = broker.context.group_coordination
    broker.run(coordination.prepare())
    broker.run_until(lambda: bool(list(coordination.shards())))
    yield frames
    frames.close()
    broker.stop()


def topic_id(frames: Frames) -> bytes:
    return frames.broker.replicas.metadata.topics["t1"].id


def answer(frames: Frames, connection: FakeConnection, request: bytes) -> bytes:
    """To a request without its length, also without."""
    view = memoryview(bytearray(b"\0\0\0\0" + request))

    async def dispatch() -> Any:
        return frames.dispatcher(cast(Connection, connection), view, 4, len(view))

    reply = frames.broker.run(dispatch())
    if reply is PENDING:
        frames.broker.run(_answered(connection))
        reply = connection.replies.pop(0)
    return _bytes(reply)[4:]


async def _answered(connection: FakeConnection) -> None:
    while not connection.replies:
        await asyncio.sleep(0.001)


def _bytes(reply: Reply) -> bytes:
    parts = reply if isinstance(reply, list) else [reply]
    return b"".join(
        bytes(p) if isinstance(p, bytes | bytearray) else os.pread(p.file.fd, p.length, p.position) for p in parts
    )


def served(case: dict[str, Any]) -> bool:
    if case["api"] == "RenewDelegationToken":
        return False  # a broker with tokens says so: see the tests of these
    return case["key"] in BY_KEY or case["key"] in {route.key for route in BETWEEN_BROKERS}


@pytest.mark.parametrize("case", [pytest.param(c, id=c["what"]) for c in DENIED if served(c) and c["response"]])
def test_a_refusal_is_kafkas_byte_for_byte(frames: Frames, case: dict[str, Any]) -> None:
    bob = frames.connect()
    bob.peer.identify(BOB)
    ours = topic_id(frames)
    request = bytes.fromhex(case["request"]).replace(KAFKAS_TOPIC_ID, ours)
    expected = bytes.fromhex(case["response"]).replace(KAFKAS_TOPIC_ID, ours)
    found = answer(frames, bob, request)
    key, version = case["key"], case["version"]
    if case["api"] in PRINTS_AN_OBJECT or KAFKAS_OWN & set(response_class(key).__slots__):
        found_fields, expected_fields = (
            _fields(_decoded(key, version, data), case["api"]) for data in (found, expected)
        )
        assert found_fields == expected_fields
        assert b"RequestContext" not in found
    else:
        assert found.hex() == expected.hex()


def _decoded(key: int, version: int, data: bytes) -> Any:
    _, at = read_response_header(key, version, data)
    return decode(response_class(key), version, memoryview(data)[at:])


def _fields(message: Any, api: str) -> Any:
    if isinstance(message, list):
        return [_fields(each, api) for each in message]
    if not hasattr(message, "__schema__"):
        return message
    other = KAFKAS_OWN | {"node_id", "broker_id", "rack", "controller_id"}
    if api in PRINTS_AN_OBJECT:
        other |= {"error_message"}
    return {field: _fields(getattr(message, field), api) for field in message.__slots__ if field not in other}


NOT_READY = frozenset({14, 15, 16})
"""Kafka's coordinator was not, so its answer says nothing."""
REFUSALS = frozenset({29, 30, 31, 53})


@pytest.mark.parametrize("case", [pytest.param(c, id=c["what"]) for c in DECISIONS])
def test_what_a_set_of_acls_lets_carol_do(frames: Frames, case: dict[str, Any]) -> None:
    grant(frames, case["acls"])
    carol = frames.connect()
    carol.peer.host = "127.0.0.1"
    carol.peer.identify(CAROL)
    for denied in DENIED:
        what = denied["what"]
        kafkas = set(case["error_codes"].get(what, NOT_READY))
        if not kafkas & NOT_READY:
            found = answer(frames, carol, bytes.fromhex(denied["request"]).replace(KAFKAS_TOPIC_ID, topic_id(frames)))
            codes = _codes(_decoded(denied["key"], denied["version"], found))
            assert codes & REFUSALS == kafkas & REFUSALS, what


def grant(frames: Frames, rows: list[list[str]]) -> None:
    acls: dict[Pattern, tuple[Acl, ...]] = {}
    for kind, pattern_type, name, principal, host, operation, permission in rows:
        pattern = Pattern(ResourceType[kind.upper()], name, PatternType[pattern_type.upper()])
        acl = Acl(principal, host, Operation[operation.upper()], PermissionType[permission.upper()])
        acls[pattern] = (*acls.get(pattern, ()), acl)
    rights = frames.broker.parts.identity.rights
    assert rights is not None
    at_once(rights.authorizer.index.replace(acls.items()))
    for listener in rights.acls.on_change:
        listener()
    frames.dispatcher.permissions_changed()
    frames.fetch.sessions.rights_changed()


def _codes(message: Any) -> set[int]:
    if isinstance(message, list):
        return set().union(*map(_codes, message)) if message else set()
    if not hasattr(message, "__schema__"):
        return set()
    found = {getattr(message, field) for field in message.__slots__ if field.endswith("error_code")}
    return found.union(*(_codes(getattr(message, field)) for field in message.__slots__))


@pytest.mark.parametrize("route", [pytest.param(route, id=route.name) for route in BETWEEN_BROKERS])
def test_a_large_request_of_no_broker_is_refused_unread(
    frames: Frames, monkeypatch: pytest.MonkeyPatch, route: Route
) -> None:
    read: list[Any] = []
    monkeypatch.setattr(dispatch, "decode_in_pieces", lambda cls, *rest: read.append(cls))
    small, large = refused(frames, route, "c"), refused(frames, route, "c" * 5_000)
    assert small == large
    assert small.error_code == 31
    assert read == []


@pytest.mark.parametrize("route", [pytest.param(route, id=route.name) for route in ROUTES])
def test_a_large_request_is_refused_like_a_small_one(frames: Frames, route: Route) -> None:
    if any(permission.whole for permission in route.permissions):
        assert refused(frames, route, "c") == refused(frames, route, "c" * 5_000)


def refused(frames: Frames, route: Route, client_id: str) -> Any:
    """What bob is told, who has no rights."""
    bob = frames.connect()
    bob.peer.identify(BOB)
    grant(frames, [])
    asked = encode_request(RequestHeader(route.key, route.last, 1, client_id), request_class(route.key)())
    return _decoded(route.key, route.last, answer(frames, bob, bytes(asked[4:])))
