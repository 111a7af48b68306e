"""The login conversation, frame by frame: Kafka's own recorded ones, and the steps that nobody should take."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kafkad.security.gssapi import GSSAPI
from kafkad.security.mechanism import Login, LoginFailed, Mechanism, Mechanisms
from kafkad.security.plain import Plain
from kafkad.security.sasl import Conversation, LoggedIn, NotYet, Outcome, PreviousLogin, Refused, Versions
from kafkad.security.scram import HASHES, MadeUp, ScramAccount, ScramClient, ScramCredential, ScramServer
from kafkad.wire.apis import APIS, request_class, response_class
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kafkad.wire.primitives import MAX_STRING, MalformedError
from kafkad.wire.schema import decode, span

GOLDEN = Path(__file__).parents[1] / "golden/security"
RECORDED = [json.loads(line) for line in (GOLDEN / "sasl.jsonl").read_text(encoding="utf-8").splitlines()]
OURS = [each for each in RECORDED if each["listener"] == "sasl" and each["id"] not in (11, 12, 13)]
"""The others are of delegation tokens and of OAUTHBEARER, which have tests of their own, and of no login at all."""
NOW_MS = 1_795_376_678_266
USERS = {"alice": "alice-pw", "carol": "carol-secret", "bob": "bob-secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER")


@cache
def alice(mechanism: str) -> ScramCredential:
    """Thousands of conversations ask for it."""
    vectors = json.loads((GOLDEN / "vectors.json").read_text(encoding="utf-8"))["scram"]
    [vector] = (each for each in vectors if (each["mechanism"], each["user"]) == (mechanism, "alice"))
    return ScramCredential.of_password(
        HASHES[mechanism], vector["password"], b64decode(vector["salt"]), vector["iterations"]
    )


def offered(nonce: str) -> Mechanisms:
    def scram(mechanism: str) -> Callable[[], Mechanism]:
        def find(name: str, by_token: bool) -> ScramAccount | None:
            return ScramAccount(alice(mechanism), name) if name == "alice" and not by_token else None

        return lambda: ScramServer(mechanism, find, MadeUp(b"secret"), lambda: nonce)

    return {
        mechanism: scram(mechanism) if mechanism in HASHES else (lambda: Plain(lambda: USERS))
        for mechanism in MECHANISMS
    }


def conversation(nonce: str = "servernonce", lifetime_ms: int = 0, before: PreviousLogin | None = None) -> Conversation:
    return Conversation(offered(nonce), lambda mechanism: lifetime_ms, lambda: NOW_MS, before)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> memoryview:
    return request(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 2) -> memoryview:
    return request(SaslAuthenticateRequest(auth_bytes=data), version)


def request(message: Any, version: int) -> memoryview:
    header = RequestHeader(message.__schema__.key, version, 7, "raw")
    return memoryview(bytes(encode_request(header, message)))[4:]


def refusal(outcome: Outcome, key: int, version: int) -> Any:
    assert isinstance(outcome, Refused)
    assert outcome.answer is not None
    correlation_id, at = read_response_header(key, version, outcome.answer, 4)
    assert correlation_id == 7
    return decode(response_class(key), version, memoryview(outcome.answer)[at:])


def plain(user: str, password: str, acts_as: str = "") -> bytes:
    return f"{acts_as}\0{user}\0{password}".encode()


@pytest.mark.parametrize("recorded", OURS, ids=lambda each: f"{each['id']} {each['what']}")
def test_what_is_said_is_what_kafka_says(recorded: dict[str, Any]) -> None:
    talk = conversation(_nonce_of(recorded))
    steps = recorded["steps"]
    expected = [bytes.fromhex(step[1]) for step in steps if step[0] == "receive"]
    said: list[bytes] = []
    ended = False
    for sent in (bytes.fromhex(step[1]) for step in steps if step[0] == "send"):
        assert not ended
        outcome = talk.take(memoryview(sent)[4:])
        if outcome is Versions.ASKED:
            talk.versions_told()
            said.append(expected[len(said)])
        elif isinstance(outcome, Refused):
            ended = True
            said += [outcome.answer] if outcome.answer is not None else []
        elif isinstance(outcome, LoggedIn):
            said.append(outcome.answer)
            break  # what follows is the router's
        else:
            assert isinstance(outcome, bytes)
            said.append(outcome)
    if recorded["id"] == 10:  # an unknown user: here the proof fails, and not the name
        assert b",s=" in said[-1]
        assert said[:-1] == expected[:-1]
        return
    assert said == expected[: len(said)]
    assert ended == (recorded["end"] == "closed")


def _nonce_of(recorded: dict[str, Any]) -> str:
    for kind, data, *_ in recorded["steps"]:
        _, found, rest = bytes.fromhex(data).partition(b"r=fixedclientnonce")
        if kind == "receive" and found:
            return rest.partition(b",")[0].decode()
    return "servernonce"


@pytest.mark.parametrize("frame", [b"", b"\0", b"GET / HT", b"\0\x03\0\x01\0\0\0\x01\xff\xff", b"\x7f\xff" + bytes(10)])
def test_whatever_else_comes_first_ends_it_without_an_answer(frame: bytes) -> None:
    for told in (False, True):
        talk = conversation()
        if told:
            talk.versions_told()
        outcome = talk.take(memoryview(frame))
        assert isinstance(outcome, Refused)
        assert outcome.answer is None


TICKET = b"\x60\x82\x02\x6a" + bytes(40)


class Tickets:
    """Its client is let in by its second message."""

    user = password_of = None

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def respond(self, message: bytes) -> bytes | Login:
        self.taken.append(message)
        return Login("alice", b"in") if len(self.taken) > 1 else b"go on"


def test_a_ticket_may_come_first() -> None:
    tickets = Tickets()
    ready = iter([None, tickets])
    talk = Conversation({GSSAPI: lambda: next(ready)}, lambda mechanism: 60_000, lambda: NOW_MS)
    assert talk.take(memoryview(TICKET)) is NotYet.READY
    assert talk.take(memoryview(TICKET)) == b"\0\0\0\x05go on"
    assert talk.take(memoryview(b"more")) == LoggedIn(b"\0\0\0\x02in", Login("alice", b"in"), GSSAPI, 60_000)
    assert tickets.taken == [TICKET, b"more"]


def test_a_ticket_comes_first_or_after_a_handshake_and_where_it_is_taken() -> None:
    told = Conversation({GSSAPI: Tickets}, lambda mechanism: 0, lambda: NOW_MS)
    told.versions_told()
    again = Conversation({GSSAPI: Tickets}, lambda mechanism: 0, lambda: NOW_MS, PreviousLogin("alice", GSSAPI))
    for talk in (told, again, conversation()):
        outcome = talk.take(memoryview(TICKET))
        assert isinstance(outcome, Refused)
        assert outcome.answer is None


@pytest.mark.parametrize("key", sorted(APIS.keys() - {17, 18}))
def test_no_api_is_looked_into_before_a_handshake(key: int) -> None:
    for version in range(-1, 20):
        header = b"%b%b" % (key.to_bytes(2), (version & 0xFFFF).to_bytes(2))
        outcome = conversation().take(memoryview(header + bytes(4) + b"\xff" * 40))
        assert isinstance(outcome, Refused)
        assert outcome.answer is None


def test_versions_are_told_until_they_are_told_well() -> None:
    talk = conversation()
    ask = memoryview(b"\0\x12\0\x63" + bytes(20))
    assert talk.take(ask) is Versions.ASKED
    assert talk.take(ask) is Versions.ASKED
    talk.versions_told()
    with pytest.raises(MalformedError, match="again"):
        talk.take(ask)


@pytest.mark.parametrize("name", ["GSSAPI", "plain", "", "PLAIN "])
def test_an_unknown_mechanism_is_told_the_known_ones(name: str) -> None:
    response = refusal(conversation().take(handshake(name)), 17, 1)
    assert (response.error_code, response.mechanisms) == (33, list(MECHANISMS))


def test_versions_that_do_not_exist_end_it_at_once() -> None:
    frame = bytearray(handshake())
    frame[3] = 9
    with pytest.raises(MalformedError, match="SaslHandshake in version 9"):
        conversation().take(memoryview(frame))
    talk = conversation()
    talk.take(handshake())
    with pytest.raises(MalformedError, match="SaslAuthenticate in version 99"):
        talk.take(memoryview(b"\0\x24\0\x63" + bytes(20)))


@pytest.mark.parametrize("key", sorted(APIS.keys() - {36}))
def test_every_other_api_in_the_midst_of_a_login_ends_it_with_its_own_answer(key: int) -> None:
    for version in span(request_class(key).__schema__.versions):
        talk = conversation()
        talk.take(handshake())
        response = refusal(talk.take(request(request_class(key)(), version)), key, version)
        assert getattr(response, "error_code", 34) in (34, 0)
    if key in (17, 18):
        assert response.error_code == 34


@pytest.mark.parametrize("bare", [plain("carol", "carol-secret"), b"", b"\0\0\0", b"n,,n=alice,r=abc"])
def test_a_bare_message_after_a_handshake_of_version_1_ends_it_at_once(bare: bytes) -> None:
    talk = conversation()
    talk.take(handshake())
    with pytest.raises(MalformedError):
        talk.take(memoryview(bare))


@pytest.mark.parametrize("frame", [token(plain("carol", "carol-secret")), memoryview(plain("carol", "x"))])
def test_after_a_handshake_of_version_0_a_failure_has_no_answer(frame: memoryview) -> None:
    talk = conversation()
    assert isinstance(talk.take(handshake(version=0)), bytes)
    outcome = talk.take(frame)
    assert isinstance(outcome, Refused)
    assert outcome.answer is None


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (plain("nobody", "x"), "Authentication failed: Invalid username or password"),
        (plain("carol", "x"), "Authentication failed: Invalid username or password"),
        (b"\0carol\0\xff\xfe", "Authentication failed: Invalid username or password"),
        (plain("", "x"), "Authentication failed: username not specified"),
        (plain("carol", ""), "Authentication failed: password not specified"),
        (
            plain("carol", "carol-secret", "bob"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"carol\0carol-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0carol\0carol-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_what_plain_says(message: bytes, text: str) -> None:
    talk = conversation()
    talk.take(handshake())
    response = refusal(talk.take(token(message)), 36, 2)
    assert (response.error_code, response.error_message, response.auth_bytes) == (58, text, b"")


def test_a_message_of_half_a_megabyte_is_not_looked_into() -> None:
    talk = conversation()
    talk.take(handshake())
    assert refusal(talk.take(token(b"\0carol\0" + b"\xff" * 500_000)), 36, 2).error_code == 58
    assert talk.user is None


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_what_scram_says_of_whoever_fails(mechanism: str) -> None:
    talk = conversation()
    talk.take(handshake(mechanism))
    talk.take(token(b"n,,n=alice,r=abc"))
    response = refusal(talk.take(token(b"c=biws,r=abcservernonce,p=AAAA,p=%")), 36, 2)
    text = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert (response.error_code, response.error_message) == (58, text)


@pytest.mark.parametrize("version", [0, 1])
def test_the_log_is_told_more_than_the_client(version: int) -> None:
    class Refusing:
        user = password_of = None

        def respond(self, message: bytes) -> bytes:
            raise LoginFailed("no", reason="it has expired")

    talk = Conversation({"X": Refusing}, lambda mechanism: 0, lambda: NOW_MS)
    talk.take(handshake("X", version))
    outcome = talk.take(token(b"") if version else memoryview(b"x"))
    assert isinstance(outcome, Refused)
    assert outcome.reason == "it has expired"
    assert b"expired" not in (outcome.answer or b"")


# -- sessions ----------------------------------------------------------------------------------------------------------

ALICE = PreviousLogin("alice", "PLAIN")


def lifetime(outcome: Outcome) -> int:
    assert isinstance(outcome, LoggedIn)
    _, at = read_response_header(36, 1, outcome.answer, 4)
    told = decode(SaslAuthenticateResponse, 1, memoryview(outcome.answer)[at:]).session_lifetime_ms
    assert told == outcome.lifetime_ms
    return told


def test_a_session_lasts_as_long_as_the_listener_allows_and_the_credential_is_good() -> None:
    class Bearer:
        user = password_of = None

        def __init__(self, ends_ms: int | None) -> None:
            self._ends_ms = ends_ms

        def respond(self, message: bytes) -> Login:
            return Login("u", ends_ms=self._ends_ms)

    def told(longest_ms: int, ends_ms: int | None) -> int:
        talk = Conversation({"X": lambda: Bearer(ends_ms)}, lambda mechanism: longest_ms, lambda: NOW_MS)
        talk.take(handshake("X"))
        return lifetime(talk.take(token(b"", 1)))

    assert told(0, None) == 0
    assert told(4_000, None) == 4_000
    assert told(4_000, NOW_MS + 1_000) == 1_000
    assert told(4_000, NOW_MS + 9_000) == 4_000
    assert told(0, NOW_MS + 9_000) == 9_000
    assert told(0, NOW_MS - 1) == 1


def test_again_as_the_same_user() -> None:
    talk = conversation(before=ALICE, lifetime_ms=5_000)
    assert isinstance(talk.take(handshake()), bytes)
    assert lifetime(talk.take(token(plain("alice", "alice-pw"), 1))) == 5_000


@pytest.mark.parametrize(
    ("user", "password", "text"),
    [
        ("bob", "bob-secret", "Cannot change principals during re-authentication from User.alice: User.bob"),
        ("bob", "x", "Cannot change principals during re-authentication from User.alice: User.bob"),
        ("nobody", "x", "Cannot change principals during re-authentication from User.alice: User.nobody"),
        ("alice", "x", "Authentication failed: Invalid username or password"),
        ("", "x", "Authentication failed: username not specified"),
    ],
)
def test_again_as_somebody_else(user: str, password: str, text: str) -> None:
    """Nobody learns of another's password whether it is right."""
    talk = conversation(before=ALICE)
    talk.take(handshake())
    response = refusal(talk.take(token(plain(user, password))), 36, 2)
    assert (response.error_code, response.error_message) == (58, text)


@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_again_by_scram_as_somebody_else_ends_before_a_proof(user: str) -> None:
    talk = conversation(before=PreviousLogin("carol", "SCRAM-SHA-256"))
    talk.take(handshake("SCRAM-SHA-256"))
    response = refusal(talk.take(token(b"n,,n=%b,r=abc" % user.encode())), 36, 2)
    assert response.error_message == f"Cannot change principals during re-authentication from User.carol: User.{user}"


def test_again_by_a_delegation_token_that_is_none() -> None:
    """Its id is no user, and not told as one."""
    talk = conversation(before=PreviousLogin("alice", "SCRAM-SHA-256"))
    talk.take(handshake("SCRAM-SHA-256"))
    exchange = ScramClient("SCRAM-SHA-256", "a-token", "x", "abc")
    exchange._bare += ",tokenauth=true"
    answer = talk.take(token(exchange.first))
    assert isinstance(answer, bytes)
    asked = decode(SaslAuthenticateResponse, 2, memoryview(answer)[read_response_header(36, 2, answer, 4)[1] :])
    response = refusal(talk.take(token(exchange.last(bytes(asked.auth_bytes)))), 36, 2)
    assert response.error_message.startswith(
        "Authentication failed during re-authentication due to invalid credentials"
    )


def test_an_answer_can_hold_two_long_users() -> None:
    class Bearer:
        user = password_of = None

        def respond(self, message: bytes) -> Login:
            return Login("b" * MAX_STRING)

    before = PreviousLogin("a" * MAX_STRING, "X")
    talk = Conversation({"X": Bearer}, lambda mechanism: 0, lambda: NOW_MS, before)
    talk.take(handshake("X"))
    response = refusal(talk.take(token(b"")), 36, 2)
    assert response.error_message.startswith("Cannot change principals")


def test_again_by_another_mechanism() -> None:
    talk = conversation(before=ALICE)
    answer = talk.take(handshake("SCRAM-SHA-256"))
    assert isinstance(answer, bytes)
    assert decode(SaslHandshakeResponse, 1, memoryview(answer)[8:]).error_code == 0
    outcome = talk.take(token(b"n,,n=alice,r=abc"))
    assert isinstance(outcome, Refused)
    assert outcome.answer is None


def test_again_with_something_else_in_between() -> None:
    for key in (3, 17, 18):
        talk = conversation(before=ALICE)
        talk.take(handshake())
        refusal(talk.take(request(request_class(key)(), 1)), key, 1)
