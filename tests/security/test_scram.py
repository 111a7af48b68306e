"""SCRAM: RFC 7677's own conversation, Kafka's users, and what a client may have wrong."""

from __future__ import annotations

import hmac
import json
import re
from base64 import b64decode, b64encode
from collections import Counter
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

import pytest

from kafkad.meta.nodetext import json_fields
from kafkad.security.mechanism import Login, LoginFailed
from kafkad.security.offer import ScramUsers
from kafkad.security.scram import (
    MadeUp,
    ScramAccount,
    ScramClient,
    ScramCredential,
    ScramError,
    ScramServer,
    new_nonce,
)
from kafkad.wire.primitives import MalformedError
from kctl.users.credentials import new_salt

GOLDEN = Path(__file__).parents[1] / "golden/security"
VECTORS: list[dict[str, Any]] = json.loads((GOLDEN / "vectors.json").read_text(encoding="utf-8"))["scram"]
ALICE = ScramCredential.of_password("sha256", "alice-pw", b"salt-of-alice-256", 4096)


def server(nonce: str = "servernonce", **users: ScramCredential) -> ScramServer:
    def find(name: str, by_token: bool) -> ScramAccount | None:
        return ScramAccount(users[name], name) if name in users and not by_token else None

    return ScramServer("SCRAM-SHA-256", find, MadeUp(b"secret"), lambda: nonce)


def asked(user: str, secret: bytes, users: ScramUsers, more: str = "") -> tuple[bytes, int]:
    """The salt and the iterations that a user is told."""
    made_up = MadeUp(secret, lambda: users.shapes("SCRAM-SHA-256"))
    exchange = ScramServer("SCRAM-SHA-256", lambda name, _: users.account("SCRAM-SHA-256", name, False), made_up, str)
    answer = exchange.respond(ScramClient("SCRAM-SHA-256", user, "x", "abc").first + more.encode())
    assert isinstance(answer, bytes)
    _, salt, iterations = answer.split(b",")
    return b64decode(salt.removeprefix(b"s=")), int(iterations.removeprefix(b"i="))


def users_with(*salts: tuple[bytes, int]) -> ScramUsers:
    """u0, u1 and so on, each with its salt and iterations."""
    users = ScramUsers()
    for number, (salt, iterations) in enumerate(salts):
        set_password(users, f"u{number}", salt, iterations)
    return users


def set_password(users: ScramUsers, user: str, salt: bytes, iterations: int) -> None:
    users.changed(user, {"SCRAM-SHA-256": ScramCredential.of("sha256", b"x" * 32, salt, iterations).text})


def look(told: tuple[bytes, int]) -> tuple[str, int]:
    """What can be told of a salt, and the iterations."""
    salt, iterations = told
    for kind, pattern in (
        ("of Kafka's tools", rb"[0-9a-z]{22,26}"),
        ("hexadecimal", rb"[0-9a-f]{32}"),
        ("of librdkafka", rb"(?s:.{64})"),
        ("text", rb"[ -~]{10}"),
    ):
        if re.fullmatch(pattern, salt):
            return kind, iterations
    raise AssertionError(told)


UNKNOWN = [f"nobody-{number}" for number in range(400)]
LIBRDKAFKAS = bytes(range(100, 164))
MIXED = [
    *[(new_salt(), 4096)] * 4,
    *[(new_salt(), 8192)] * 2,
    *[(LIBRDKAFKAS, 4096)] * 2,
    (b"%032x" % 77, 8192),
    (b"Salt of me", 10_000),
]


def test_who_does_not_exist_looks_like_those_who_do_in_the_same_numbers() -> None:
    """Clients draw the salts, each in its own way."""
    users = users_with(*MIXED)
    known = Counter(look(asked(f"u{number}", b"secret", users)) for number in range(len(MIXED)))
    unknown = Counter(look(asked(name, b"secret", users)) for name in UNKNOWN)
    assert known.keys() == unknown.keys()
    for each, count in known.items():
        assert abs(unknown[each] / len(UNKNOWN) - count / len(MIXED)) < 0.06, (each, unknown)
    assert any(max(asked(name, b"secret", users)[0]) > 0x7F for name in UNKNOWN), "as of librdkafka"


def test_who_does_not_exist_is_told_the_same_at_each_asking_and_by_each_broker_of_a_cluster() -> None:
    users = users_with(*MIXED)
    told = [asked(name, b"secret", users) for name in UNKNOWN]
    assert len(set(told)) == len(UNKNOWN)
    turned = users_with(*reversed(MIXED))
    assert [asked(name, b"secret", turned) for name in UNKNOWN] == told
    assert not {*told} & {asked(name, b"another", users) for name in UNKNOWN}


def test_who_does_not_exist_is_told_the_same_while_users_come_and_go() -> None:
    """But for those of whom it looks as if their password had been set, to the look that has become more usual."""
    users = users_with(*MIXED)
    told = {name: asked(name, b"secret", users) for name in UNKNOWN}
    set_password(users, "late", LIBRDKAFKAS, 16_384)
    after = {name: asked(name, b"secret", users) for name in UNKNOWN}
    moved = [name for name in UNKNOWN if after[name] != told[name]]
    assert 0 < len(moved) < 2 * len(UNKNOWN) / len(MIXED)
    assert {look(after[name]) for name in moved} == {("of librdkafka", 16_384)}
    users.changed("late", {})
    assert {name: asked(name, b"secret", users) for name in UNKNOWN} == told
    set_password(users, "u0", new_salt(), 8192)
    for name in UNKNOWN:
        salt, iterations = asked(name, b"secret", users)
        assert salt != told[name][0] or iterations == told[name][1]


def test_without_users_and_for_tokens_salts_are_as_kafkas_tools_make_them() -> None:
    users = ScramUsers()
    assert {look(asked(name, b"secret", users)) for name in UNKNOWN} == {("of Kafka's tools", 4096)}
    set_password(users, "alice", LIBRDKAFKAS, 8192)
    of_token = {look(asked(name, b"secret", users, ",tokenauth=true")) for name in UNKNOWN}
    assert of_token == {("of Kafka's tools", 4096)}
    users.changed("alice", {})
    name = UNKNOWN[0]
    assert asked(name, b"secret", users) != asked(name, b"secret", users, ",tokenauth=true"), "as for a user who exists"


def test_a_login_looks_at_few_kinds_of_salts_however_many_there_are() -> None:
    usual = [(new_salt(), 4096)] * 3
    users = users_with(*usual, *((new_salt(), iterations) for iterations in range(5000, 5100)))
    shapes = users.shapes("SCRAM-SHA-256")
    assert len(shapes) == 32
    assert (shapes[0][0].iterations, shapes[0][1]) == (4096, 3)
    assert users.shapes("SCRAM-SHA-256") is shapes, "counted once after each change"


def test_the_conversation_of_rfc_7677() -> None:
    credential = ScramCredential.of_password("sha256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    exchange = server("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", user=credential)
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    answer = exchange.respond(client.first)
    assert answer == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    last = client.last(answer)
    assert last.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    done = exchange.respond(last)
    assert isinstance(done, Login)
    assert (done.user, done.last) == ("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    client.verify(done.last)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['user']}-{v['mechanism']}")
def test_credentials_are_those_that_kafka_stores(vector: dict[str, Any]) -> None:
    hash_name = vector["mechanism"].removeprefix("SCRAM-").replace("-", "").lower()
    made = ScramCredential.of_password(
        hash_name, vector["password"], b64decode(vector["salt"]), int(vector["iterations"])
    )
    stored = (GOLDEN / "znodes.json").read_text(encoding="utf-8")
    assert f"{vector['mechanism']}" in stored
    if vector["user"] != "gone":
        assert made.text in stored
    assert ScramCredential.parse(made.text) == made


@pytest.mark.parametrize(
    "text", ["", "salt=x", "salt=,stored_key=,server_key=,iterations=x", "salt=%,stored_key=,server_key=,iterations=1"]
)
def test_a_damaged_credential_is_named_without_what_it_holds(text: str) -> None:
    with pytest.raises(ValueError, match="not a SCRAM credential"):
        ScramCredential.parse(text)


def test_nobody_is_told_from_a_wrong_password() -> None:
    asked = [b"n,,n=nobody,r=abc", b"n,,n=nobody,r=abc", b"n,,n=other,r=abc", b"n,,n=alice,r=abc"]
    first, again, other, alice = (server(alice=ALICE).respond(message) for message in asked)
    assert isinstance(first, bytes)
    assert isinstance(alice, bytes)
    assert first == again != other
    assert first.startswith(b"r=abcservernonce,s=")
    assert first.endswith(b",i=4096")
    assert abs(len(first) - len(alice)) < 24
    for exchange in (server(), server(alice=ALICE)):
        client = ScramClient("SCRAM-SHA-256", "alice", "wrong", "abc")
        answer = exchange.respond(client.first)
        assert isinstance(answer, bytes)
        with pytest.raises(LoginFailed, match=r"^$"):
            exchange.respond(client.last(answer))


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,m=must,n=alice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice",
        b"n,,r=abc,n=alice",
        b"n,x=alice,n=alice,r=abc",
        b"n,,n=alice,r=a\xc3\xa4",
        b"\xff\xff",
        b"",
        b"n,,n=" + b"=2C" * 130_000 + b",r=abc",
        b"n,,n=alice,r=" + b"x" * 257,
    ],
)
def test_first_messages_that_are_none(first: bytes) -> None:
    with pytest.raises(LoginFailed, match=r"^$"):
        server(alice=ALICE).respond(first)


def test_an_authorization_id_of_somebody_else() -> None:
    assert isinstance(server(alice=ALICE).respond(b"n,a=alice,n=alice,r=abc"), bytes)
    with pytest.raises(LoginFailed, match="authorization id that is different from username"):
        server(alice=ALICE).respond(b"n,a=bob,n=alice,r=abc")


def test_what_is_not_known_is_passed_over() -> None:
    assert isinstance(server(alice=ALICE).respond(b"n,,n=alice,r=abc,foo=bar"), bytes)


def test_names_with_signs_and_in_other_letters() -> None:
    users = {name: ScramCredential.of_password("sha256", "pw", b"s", 4096) for name in ("a,b=c", "müller")}
    for name in users:
        exchange = server(**users)
        client = ScramClient("SCRAM-SHA-256", name, "pw", new_nonce())
        answer = exchange.respond(client.first)
        assert isinstance(answer, bytes)
        done = exchange.respond(client.last(answer))
        assert isinstance(done, Login)
        assert done.user == name


def last_of(answer: bytes) -> bytes:
    client = ScramClient("SCRAM-SHA-256", "alice", "alice-pw", "abc")
    assert client.first == b"n,,n=alice,r=abc"
    return client.last(answer)


@pytest.mark.parametrize(
    ("what", "instead"),
    [
        (b"r=abc", b"r=xabc"),
        (b"servernonce", b"servernoncex"),
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c="),
        (b",p=", b",q="),
    ],
)
def test_last_messages_that_do_not_fit(what: bytes, instead: bytes) -> None:
    exchange = server(alice=ALICE)
    answer = exchange.respond(b"n,,n=alice,r=abc")
    assert isinstance(answer, bytes)
    with pytest.raises(LoginFailed):
        exchange.respond(last_of(answer).replace(what, instead, 1))


def test_a_long_last_message_is_not_looked_into() -> None:
    """The proof covers it all."""
    with pytest.raises(LoginFailed):
        proved("c=biws,r=abcservernonce," + "," * 4096)


def test_the_proof_covers_what_it_is_sent_with() -> None:
    """Kafka takes any channel binding that the proof covers, and any nonce that ends as its own."""
    for unproved in ("c=eSws,r=abcservernonce", "c=biws,r=xabcservernonce"):
        with pytest.raises(LoginFailed):
            proved(unproved)


def test_librdkafka_before_2_6_1_repeats_its_nonce() -> None:
    assert proved("c=biws,r=abcabcservernonce").user == "alice"


def proved(unproved: str) -> Login:
    """Alice's last message, with a proof that covers it."""
    exchange = server(alice=ALICE)
    answer = exchange.respond(b"n,,n=alice,r=abc")
    assert isinstance(answer, bytes)
    salted = pbkdf2_hmac("sha256", b"alice-pw", b"salt-of-alice-256", 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    said = b"n=alice,r=abc," + answer + b"," + unproved.encode()
    signature = hmac.digest(ALICE.stored_key, said, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    login = exchange.respond(unproved.encode() + b",p=" + b64encode(proof))
    assert isinstance(login, Login)
    return login


def test_a_proof_of_another_length_is_no_message() -> None:
    exchange = server(alice=ALICE)
    exchange.respond(b"n,,n=alice,r=abc")
    with pytest.raises(MalformedError, match="proof of 5 bytes"):
        exchange.respond(b"c=biws,r=abcservernonce,p=MTIzNDU=")


def test_who_is_changed_while_logging_in_fails() -> None:
    users = {"alice": ALICE}
    exchange = ScramServer(
        "SCRAM-SHA-256",
        lambda name, by_token: ScramAccount(users[name], name) if name in users else None,
        MadeUp(b"secret"),
        lambda: "servernonce",
    )
    answer = exchange.respond(b"n,,n=alice,r=abc")
    assert isinstance(answer, bytes)
    users["alice"] = ScramCredential.of_password("sha256", "other", b"s", 4096)
    with pytest.raises(LoginFailed):
        exchange.respond(last_of(answer))


@pytest.mark.parametrize(
    "answer",
    [
        b"r=abcx,s=cw==,i=4095",
        b"r=abcx,s=cw==,i=99999999",
        b"r=abc,s=cw==,i=4096",
        b"r=abcx,s=%,i=4096",
        b"\xff",
        b"e=other-error",
    ],
)
def test_a_client_does_not_follow_a_server_that_is_none(answer: bytes) -> None:
    with pytest.raises(ScramError):
        ScramClient("SCRAM-SHA-256", "alice", "alice-pw", "abc").last(answer)


def test_a_client_wants_to_know_that_the_server_knows() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "alice-pw", "abc")
    client.last(b"r=abcx,s=cw==,i=4096")
    with pytest.raises(ScramError, match="does not know the password"):
        client.verify(b"v=" + b"QUFB")


def test_the_store_has_what_is_read() -> None:
    """Texts stand in JSON as Kafka writes them."""
    text = ALICE.text
    node = json_fields(json.dumps({"version": 1, "config": {"SCRAM-SHA-256": text}}).encode())
    assert ScramCredential.parse(node["config"]["SCRAM-SHA-256"]) == ALICE
