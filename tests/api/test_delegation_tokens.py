"""The four APIs of delegation tokens: who may ask, what is answered, and what Kafka answered whom it refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from kafkad.api.peer import Peer
from kafkad.api.prepared import Grounds
from kafkad.errors import ErrorCode
from kafkad.security.authorizer import ALLOW_ALL, Anybody, Authorizer, Identity, Operation, Principal, ResourceType
from kafkad.wire.apis import request_class, response_class
from kafkad.wire.frames import read_request_header, read_response_header
from kafkad.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafkad.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kafkad.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafkad.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafkad.wire.schema import decode
from tests.one_broker import OneBroker

DENIED = Path(__file__).parents[1] / "golden" / "security" / "denied.jsonl"
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")


class Nobody(Anybody):
    """May do nothing but what is named; as an authorizer, everybody is like that."""

    def __init__(self, *allowed: tuple[Operation, ResourceType, str]) -> None:
        self._allowed = allowed

    def identity(self, principal: Principal, host: str) -> Identity:
        return self

    def allows(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        return (operation, resource, name) in self._allowed

    def may(self, operation: Operation, resource: ResourceType, name: str, request: str) -> bool:
        return self.allows(operation, resource, name)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    made = OneBroker(tmp_path, "delegation.token.secret.key=lab-master-key")
    yield made
    made.stop()


def log_in(broker: OneBroker, who: Principal, authorizer: Authorizer = ALLOW_ALL, *, token: str | None = None) -> None:
    broker.connection.peer = Peer("SASL", "127.0.0.1", authorizer, Grounds())
    broker.connection.peer.identify(who, token=token)


def create(broker: OneBroker, owner: Principal | None = None, *renewers: Principal) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner.type if owner else None,
        owner_principal_name=owner.name if owner else None,
        renewers=[CreatableRenewers(principal_type=each.type, principal_name=each.name) for each in renewers],
        max_lifetime_ms=-1,
    )
    answer: CreateDelegationTokenResponse = broker.ask(request, 3)
    return answer


def described(broker: OneBroker, *owners: Principal, every: bool = True) -> DescribeDelegationTokenResponse:
    named = [DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners]
    answer: DescribeDelegationTokenResponse = broker.ask(
        DescribeDelegationTokenRequest(owners=None if every and not owners else named), 3
    )
    return answer


def test_renewers_have_a_bound(broker: OneBroker) -> None:
    log_in(broker, ALICE)
    assert not create(broker, None, *[Principal("User", f"u{number}") for number in range(1000)]).error_code
    for renewers in ([BOB] * 1001, [Principal("User", "u" * 30_000)] * 3):
        answer = create(broker, None, *renewers)
        assert (answer.error_code, answer.hmac) == (ErrorCode.INVALID_REQUEST, b"")
    assert len(described(broker).tokens) == 1


def test_tokens_of_an_owner_have_a_bound(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = "delegation.token.secret.key=lab-master-key", "kafkad.max.delegation.tokens.per.owner=2"
    broker = OneBroker(tmp_path, *settings)
    log_in(broker, ALICE)
    assert [create(broker).error_code for _ in range(2)] == [0, 0]
    with caplog.at_level(logging.INFO):
        refused = create(broker)
    assert (refused.error_code, refused.token_id, refused.hmac) == (ErrorCode.POLICY_VIOLATION, "", b"")
    why = "no more delegation tokens for User:alice: it has 2, and kafkad.max.delegation.tokens.per.owner is 2"
    assert why in caplog.text
    log_in(broker, BOB)
    assert create(broker).error_code == 0
    broker.stop()


def test_what_kafka_answered_a_user_without_rights(broker: OneBroker) -> None:
    cases = [case for case in map(json.loads, DENIED.read_text().splitlines()) if case["key"] in range(38, 42)]
    assert len(cases) == 2
    log_in(broker, BOB, Nobody())
    for case in cases:
        key, version = case["key"], case["version"]
        request, answer = (memoryview(bytes.fromhex(case[side])) for side in ("request", "response"))
        _, at = read_request_header(request)
        found = broker.ask(decode(request_class(key), version, request[at:]), version)
        _, at = read_response_header(key, version, bytes(answer))
        assert found == decode(response_class(key), version, answer[at:]), case["what"]


def test_a_token_from_its_creation_to_its_end(broker: OneBroker, caplog: pytest.LogCaptureFixture) -> None:
    log_in(broker, ALICE)
    with caplog.at_level(logging.INFO):
        made = create(broker, None, BOB)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "alice")
    assert (
        f"delegation token {made.token_id} of User:alice created, to be renewed by User:bob; by User:alice"
        in caplog.text
    )
    [token] = described(broker).tokens
    assert (token.token_id, token.hmac, token.expiry_timestamp) == (made.token_id, made.hmac, made.expiry_timestamp_ms)
    assert [renewer.principal_name for renewer in token.renewers] == ["bob"]
    until = broker.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1_000), 2).expiry_timestamp_ms
    assert until < made.expiry_timestamp_ms
    assert broker.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2).error_code == 0
    assert described(broker).tokens == []
    answer = broker.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1), 2)
    assert (answer.error_code, answer.expiry_timestamp_ms) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, -1)


def test_the_secret_is_in_no_log_line_and_who_is_shown_it_is(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    log_in(broker, ALICE)
    with caplog.at_level(logging.DEBUG):
        made = create(broker)
        described(broker)
        broker.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1_000), 2)
    assert "1 delegation tokens shown, with their secrets; to User:alice" in caplog.text
    assert made.hmac.hex() not in caplog.text
    assert str(made.hmac) not in caplog.text


def test_who_may_not_ask_at_all(broker: OneBroker) -> None:
    """Nobody who has not logged in, and none who has by a token."""
    requests = (
        (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
        (RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), 2),
        (ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1), 2),
        (DescribeDelegationTokenRequest(owners=None), 3),
    )
    for request, version in requests:
        assert broker.ask(request, version).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    log_in(broker, ALICE, token="its id")
    for request, version in requests:
        assert broker.ask(request, version).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_without_a_secret_key_there_are_no_tokens(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    log_in(broker, ALICE)
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(broker).error_code == disabled
    assert described(broker).error_code == disabled
    assert broker.ask(RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1), 1).error_code == disabled
    broker.stop()


def test_renewers_are_users(broker: OneBroker) -> None:
    log_in(broker, ALICE)
    assert create(broker, None, Principal("Group", "x")).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_owners_are_users(broker: OneBroker) -> None:
    """A token logs in as the user of its owner's name, of whom nobody has asked whether that may be."""
    log_in(broker, ALICE, Nobody((Operation.CREATE_TOKENS, ResourceType.USER, "Group:bob")))
    refused = create(broker, Principal("Group", "bob"))
    assert (refused.error_code, refused.hmac) == (ErrorCode.INVALID_PRINCIPAL_TYPE, b"")


def test_a_token_for_somebody_else_takes_a_right(broker: OneBroker) -> None:
    log_in(broker, ALICE, Nobody())
    refused = create(broker, BOB)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.issue_timestamp_ms, refused.token_id, refused.hmac) == (-1, "", b"")
    assert create(broker, ALICE).error_code == 0
    log_in(broker, ALICE, Nobody((Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")))
    made = create(broker, BOB)
    assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "bob", "alice")


def test_no_id_looks_like_an_option(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `kctl tokens renew -F…` would."""
    drawn = [UUID(bytes=b"\xf8" * 16), UUID(bytes=b"\x08" * 16)]
    monkeypatch.setattr("kafkad.cluster.tokens.uuid4", lambda: drawn.pop(0))
    log_in(broker, ALICE)
    assert create(broker).token_id == "CAgICAgICAgICAgICAgICA"


def test_a_token_for_another_is_seen_by_who_asked_for_it(broker: OneBroker) -> None:
    """Who cannot renew or end it, unless he is a renewer."""
    log_in(broker, ALICE)
    made = create(broker, BOB)
    log_in(broker, ALICE, Nobody())
    for tokens in (described(broker).tokens, described(broker, ALICE).tokens, described(broker, BOB).tokens):
        assert [(token.token_id, token.hmac) for token in tokens] == [(made.token_id, made.hmac)]
    for request in (
        RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1),
        ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1),
    ):
        assert broker.ask(request, 2).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_others_tokens_are_seen_by_renewers_and_with_a_right(broker: OneBroker) -> None:
    log_in(broker, ALICE)
    first, second = create(broker).token_id, create(broker, None, BOB).token_id

    def seen(*allowed: tuple[Operation, ResourceType, str]) -> set[str]:
        log_in(broker, BOB, Nobody(*allowed))
        return {token.token_id for token in described(broker).tokens}

    assert seen() == {second}
    assert seen((Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, first)) == {first, second}
    assert seen((Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")) == {first, second}
    log_in(broker, ALICE)
    assert {token.token_id for token in described(broker, BOB).tokens} == {second}
    assert described(broker, every=False).tokens == []
    assert described(broker, Principal("User", "nobody")).tokens == []


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_all_versions_are_answered(broker: OneBroker, version: int) -> None:
    log_in(broker, ALICE)
    made: CreateDelegationTokenResponse = broker.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
    assert (made.error_code, made.principal_name) == (ErrorCode.NONE, ALICE.name)
    found: DescribeDelegationTokenResponse = broker.ask(DescribeDelegationTokenRequest(owners=None), version)
    requesters = [token.token_requester_principal_name for token in found.tokens]
    assert requesters == ([ALICE.name] if version == 3 else [""])
