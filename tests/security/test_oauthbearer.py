"""OAUTHBEARER: messages, tokens, and the keys that sign them."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kafkad.security.jwks import Jwks, JwksSettings, reader
from kafkad.security.mechanism import Login, LoginFailed
from kafkad.security.oauth_token import Bearer, Expected, Key, SignedTokens, TokenRefused, UnsecuredTokens, keys_of
from kafkad.security.oauthbearer import OAuthBearer
from kafkad.timers import Timers
from tests.fakes import FakeClock
from tests.security.tokens import NOW_MS, NOW_S, ec_key, jwk, key_set, rsa_key, signed, unsecured

GOLDEN = Path(__file__).parents[1] / "golden" / "security" / "sasl.jsonl"


def keys(*entries: dict[str, str]) -> list[Key]:
    found, problems = keys_of(key_set(*entries))
    assert problems == []
    return found


def verify(
    token: str, *entries: dict[str, str], expected: Expected | None = None, unknown: list[int] | None = None
) -> Bearer:
    counted = unknown if unknown is not None else []
    there = keys(*entries)
    return SignedTokens(expected or Expected(), lambda: there, lambda: NOW_MS, lambda: counted.append(1))(token)


def refusal(token: str, *entries: dict[str, str], expected: Expected | None = None) -> str:
    with pytest.raises(TokenRefused) as caught:
        verify(token, *entries, expected=expected)
    return str(caught.value)


RSA, EC = jwk(rsa_key(), "k1"), jwk(ec_key(), "k1")


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS512"])
def test_rsa(algorithm: str) -> None:
    assert verify(signed(rsa_key(), algorithm), RSA) == Bearer("alice", (NOW_S + 3600) * 1000)


def test_elliptic_curves_and_keys_for_one_algorithm() -> None:
    assert verify(signed(ec_key(), "ES256"), EC).user == "alice"
    only = jwk(rsa_key(), "k1", alg="RS512")
    assert verify(signed(rsa_key(), "RS512"), only).user == "alice"
    assert "no key that is known" in refusal(signed(rsa_key(), "RS256"), only)


def test_without_a_key_id_every_key_is_tried() -> None:
    token = signed(rsa_key(2), kid=None)
    assert verify(token, EC, RSA, jwk(rsa_key(2), "k2")).user == "alice"
    assert refusal(token, EC, RSA).startswith("its signature is not valid")


def test_an_unknown_key_id_is_told_of() -> None:
    told: list[int] = []
    with pytest.raises(TokenRefused, match="a key that is not known: 'new'"):
        verify(signed(rsa_key(), kid="new"), RSA, unknown=told)
    assert told == [1]


def test_another_key_under_the_same_id() -> None:
    assert refusal(signed(rsa_key(2)), RSA).startswith("its signature is not valid")


def test_an_algorithm_is_the_keys_and_not_the_tokens() -> None:
    """Among them the public key used as if it were a secret, and no signature at all."""
    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, payload = ({"alg": "HS256", "kid": "k1"}, {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 9})
    said = ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, payload))
    proof = urlsafe_b64encode(hmac.new(public, said.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()
    assert refusal(f"{said}.{proof}", RSA) == "it is signed by no key that is known"
    assert refusal(unsecured(), RSA) == "it is signed by no key that is known"
    assert refusal(signed(ec_key(), "ES256"), RSA) == "it is signed by no key that is known"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW_S - 31}, "it has expired"),
        ({"exp": None}, "its claim exp is no time"),
        ({"exp": "soon"}, "its claim exp is no time"),
        ({"exp": True}, "its claim exp is no time"),
        ({"exp": 1e300}, "its claim exp is no time"),
        ({"iat": None}, "its claim iat is no time"),
        ({"nbf": NOW_S + 31}, "it is not valid yet"),
        ({"sub": None}, "its claim sub names no user"),
        ({"sub": " "}, "its claim sub names no user"),
        ({"sub": ["alice"]}, "its claim sub names no user"),
        ({"sub": "\ud800"}, "its claim sub names no user"),
        ({"sub": "x" * 32_768}, "its claim sub names no user"),
    ],
)
def test_claims_that_refuse(claims: dict[str, object], why: str) -> None:
    assert refusal(signed(rsa_key(), **claims), RSA) == why


@pytest.mark.parametrize(
    "claims", [{"exp": NOW_S - 29}, {"nbf": NOW_S + 29}, {"iat": NOW_S + 9999}, {"scope": None}, {"aud": "any"}]
)
def test_claims_that_do_not(claims: dict[str, object]) -> None:
    assert verify(signed(rsa_key(), **claims), RSA).user == "alice"


def test_blanks_that_java_does_not_take_off_make_another_user() -> None:
    assert verify(signed(rsa_key(), sub="\t alice \0"), RSA).user == "alice"
    for name in ("\u00a0alice", "alice\u3000", "\x85alice", "\u2028"):
        assert verify(signed(rsa_key(), sub=name), RSA).user == name


def test_audience_issuer_and_the_claim_with_the_user() -> None:
    expected = Expected(audiences=("kafka", "other"), issuer="https://issuer", user_claim="client_id", skew_ms=0)
    good = {"aud": ["x", "kafka"], "iss": "https://issuer", "client_id": "bob"}
    assert verify(signed(rsa_key(), **good), RSA, expected=expected).user == "bob"
    assert verify(signed(rsa_key(), **{**good, "aud": "other"}), RSA, expected=expected).user == "bob"
    for wrong, why in (
        ({"aud": "x"}, "the audience 'x'"),
        ({"aud": None}, "the audience 'None'"),
        ({"aud": {"kafka": 1}}, "the audience"),
        ({"iss": "https://other"}, "the issuer 'https://other'"),
        ({"client_id": None}, "its claim client_id names no user"),
        ({"exp": NOW_S}, "it has expired"),
    ):
        assert why in refusal(signed(rsa_key(), **{**good, **wrong}), RSA, expected=expected)


@pytest.mark.parametrize(
    "token", ["", "x", "a.b", "a.b.c.d", "!.!.!", "e30.e30.x", "W10.e30.", "e30." + "x" * 70_000 + "."]
)
def test_what_is_no_token(token: str) -> None:
    assert refusal(token, RSA)


def test_json_that_is_too_deep() -> None:
    deep = urlsafe_b64encode(b"[" * 40_000).decode()
    assert "not in JSON" in refusal(f"{deep}.e30.x", RSA)
    with pytest.raises(ValueError, match="no set of keys"):
        keys_of(b'{"keys": ' + b"[" * 200_000)


def test_keys_that_cannot_be_used_are_named_and_the_others_count() -> None:
    text = key_set(
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {"kty": "RSA", "kid": "half", "e": "AQAB"},
        jwk(rsa_key(1, 1024), "short"),
        jwk(rsa_key(), "odd", alg="HS256"),
        {"kty": "EC", "crv": ["P-256"], "kid": "listed"},
        jwk(rsa_key(), "encrypts", use="enc"),
        {**RSA, "kid": "good"},
    )
    found, problems = keys_of(text)
    assert [key.kid for key in found] == ["good"]
    assert [problem.split("'")[1] for problem in problems] == ["secret", "half", "short", "odd", "listed"]
    for wrong in (b"", b"[]", b'{"keys": 1}', b'{"keys": [1]}', b"\xff"):
        with pytest.raises(ValueError, match="no set of keys"):
            keys_of(wrong)


def test_unsecured_tokens() -> None:
    take = UnsecuredTokens(Expected(skew_ms=0), lambda: NOW_MS)
    assert take(unsecured()) == Bearer("alice", (NOW_S + 3600) * 1000)
    assert take(unsecured(iat=None, exp=NOW_S + 0.5)).ends_ms == NOW_MS + 500
    for wrong in (unsecured(exp=NOW_S), unsecured(sub=None), signed(rsa_key()), f"{unsecured()}x"):
        with pytest.raises(TokenRefused):
            take(wrong)


# -- the exchange ----------------------------------------------------------------------------------------------------


def exchange() -> OAuthBearer:
    return OAuthBearer(UnsecuredTokens(Expected(skew_ms=0), lambda: NOW_MS))


def first(token: str, binding: str = "n,,", more: str = "") -> bytes:
    return f"{binding}\x01auth=Bearer {token}\x01{more}\x01".encode()


def test_a_good_token() -> None:
    begun = exchange()
    assert begun.respond(first(unsecured())) == Login("alice", ends_ms=(NOW_S + 3600) * 1000)
    assert begun.user == "alice"
    assert exchange().respond(first(unsecured(), "n,a=alice,", "traceId=1 2\x01x=y\x01"))


def test_a_long_message_is_not_looked_into() -> None:
    assert exchange().respond(first(unsecured(), more=f"x={'y' * 60_000}\x01"))
    with pytest.raises(LoginFailed) as refused:
        exchange().respond(first(unsecured(), more=f"x={'y' * 70_000}\x01"))
    assert refused.value.reason.startswith("its first message has ")


def test_what_kafka_was_sent() -> None:
    """The tokens of the recording fit its time only."""
    sent = {
        case["what"]: [bytes.fromhex(data[0]) for step, *data in case["steps"] if step == "send"]
        for case in map(json.loads, GOLDEN.read_text().splitlines())
        if case["what"].startswith("OAUTHBEARER")
    }
    good, expired = (frames[1].partition(b"\x03raw\x00\x88\x01")[2][:-1] for frames in sent.values())
    at_ms = 1_795_376_678_300
    begun = OAuthBearer(UnsecuredTokens(Expected(skew_ms=0), lambda: at_ms))
    assert begun.respond(good) == Login("oauser", ends_ms=1_795_380_278_266)
    refused = OAuthBearer(UnsecuredTokens(Expected(skew_ms=0), lambda: at_ms))
    assert refused.respond(expired) == b'{"status":"invalid_token"}'
    with pytest.raises(LoginFailed, match=r'^{"status":"invalid_token"}$') as caught:
        refused.respond(b"\x01")
    assert caught.value.reason == "its token is refused: it has expired"


def test_a_good_token_after_a_bad_one_comes_too_late() -> None:
    begun = exchange()
    assert begun.respond(first(unsecured(exp=1))) == b'{"status":"invalid_token"}'
    with pytest.raises(LoginFailed):
        begun.respond(first(unsecured()))


def test_acting_as_somebody_else() -> None:
    with pytest.raises(LoginFailed, match=r"authorization id \(b,b\).* principal name \(alice\)$"):
        exchange().respond(first(unsecured(), "n,a=b=2Cb,"))


def test_whom_a_client_would_act_as_begins_no_line_of_the_log() -> None:
    with pytest.raises(LoginFailed) as refused:
        exchange().respond(first(unsecured(), "n,a=b\n2026-11-27 INFO a line,"))
    assert refused.value.reason == "it wants to act as 'b\\n2026-11-27 INFO a line'"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"y,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01x=y\x01\x01",
        b"n,,\x01\x01",
        b"n,a=\xff,\x01auth=Bearer x\x01\x01",
        b"n,,\x01" + b"a=b\x01" * 100_000,
    ],
)
def test_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(LoginFailed, match=r"^$"):
        exchange().respond(message)


# -- the issuer ------------------------------------------------------------------------------------------------------


class Issuer:
    """Its keys, read through a Jwks; a test moves the time."""

    def __init__(self, settings: JwksSettings | None = None) -> None:
        self.clock, self.timers, self.threads = FakeClock(), Timers(), ThreadPoolExecutor(1)
        self.text: bytes | OSError = key_set(RSA)
        self.reads = 0
        self.jwks = Jwks(settings or JwksSettings("file:///keys"), self._read, self.threads, self.clock, self.timers)

    def _read(self) -> bytes:
        self.reads += 1
        if isinstance(self.text, OSError):
            raise self.text
        return self.text

    @property
    def kids(self) -> list[str | None]:
        return [key.kid for key in self.jwks.keys]

    async def after(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.expire(self.clock.monotonic_ms())
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
            await asyncio.get_running_loop().run_in_executor(self.threads, int)
        await asyncio.sleep(0)


def with_issuer(test: Callable[[Issuer], object]) -> Callable[[], None]:
    def run() -> None:
        async def whole() -> None:
            issuer = Issuer()
            issuer.jwks.start()
            await issuer.settle()
            try:
                await test(issuer)  # type: ignore[misc]
            finally:
                await issuer.jwks.stop()
                issuer.threads.shutdown()

        asyncio.run(whole())

    return run


@with_issuer
async def test_keys_are_read_at_the_start_and_each_hour(issuer: Issuer) -> None:
    assert issuer.kids == ["k1"]
    issuer.text = key_set(RSA, jwk(rsa_key(2), "k2"))
    await issuer.after(10_000)
    await issuer.after(3_589_999)
    assert issuer.kids == ["k1"]
    await issuer.after(1)
    assert issuer.kids == ["k1", "k2"]


@with_issuer
async def test_an_unknown_key_is_looked_for_soon_but_not_all_the_time(issuer: Issuer) -> None:
    issuer.text = key_set(jwk(rsa_key(2), "k2"))
    issuer.jwks.missed()
    await issuer.after(9_999)
    assert issuer.reads == 1
    await issuer.after(1)
    assert (issuer.reads, issuer.kids) == (2, ["k2"])
    await issuer.after(10_000)
    assert issuer.reads == 2
    issuer.jwks.missed()
    await issuer.settle()
    assert issuer.reads == 3


@with_issuer
async def test_keys_stay_while_the_issuer_is_away(issuer: Issuer) -> None:
    issuer.text = OSError("connection refused")
    await issuer.after(10_000)
    issuer.jwks.missed()
    await issuer.settle()
    assert (issuer.kids, issuer.jwks.failure) == (["k1"], "connection refused")
    for pause_ms in (100, 200, 400):
        issuer.text = OSError(f"away {pause_ms}")
        await issuer.after(pause_ms)
        assert issuer.jwks.failure == f"away {pause_ms}"
    issuer.text = key_set(EC)
    await issuer.after(800)
    assert (issuer.kids, issuer.jwks.failure) == (["k1"], None)


@pytest.mark.parametrize("ms", [0, -1])
def test_times_of_nothing_count_as_100_ms(ms: int) -> None:
    async def reads_in_a_second(settings: JwksSettings, text: bytes | OSError) -> int:
        issuer = Issuer(settings)
        issuer.text = text
        issuer.jwks.start()
        await issuer.settle()
        for _ in range(100):
            await issuer.after(10)
        await issuer.jwks.stop()
        issuer.threads.shutdown()
        return issuer.reads

    url, away = "file:///keys", OSError("away")
    for settings, text in (
        (JwksSettings(url, refresh_ms=ms), key_set(EC)),
        (JwksSettings(url, retry_ms=ms), away),
        (JwksSettings(url, retry_max_ms=ms), away),
    ):
        assert 2 < asyncio.run(reads_in_a_second(settings, text)) <= 11


def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def whole() -> None:
        issuer = Issuer()
        issuer.text = OSError("away")
        issuer.jwks.start()
        await issuer.settle()
        for _ in range(5):
            await issuer.after(10_000)
        await issuer.jwks.stop()
        assert issuer.reads > 3

    with caplog.at_level(logging.INFO):
        asyncio.run(whole())
    assert caplog.text.count("cannot read the keys of file:///keys: away; nobody logs in by OAUTHBEARER") == 1


def test_where_keys_are_read_from(tmp_path: Path) -> None:
    path = tmp_path / "a b.json"
    path.write_bytes(key_set(RSA))
    assert reader(JwksSettings(path.as_uri()))() == path.read_bytes()
    for wrong in ("http://issuer/keys", "https://", "file://host/keys", "ftp://x/y", "keys.json"):
        with pytest.raises(ValueError, match="https://… or file:///…"):
            reader(JwksSettings(wrong))
    with pytest.raises(OSError, match="refused"):
        reader(JwksSettings("https://127.0.0.1:1/keys"))()


def test_keys_and_authorities_that_are_pipes_are_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for settings in (JwksSettings(pipe.as_uri()), JwksSettings("https://127.0.0.1:1/keys", trusted=str(pipe))):
        with pytest.raises(ValueError, match="is no regular file"):
            reader(settings)()


def test_who_waits_for_the_first_answer_waits_for_a_failure_too() -> None:
    """A broker is ready then, be the issuer there or not."""

    async def first(text: bytes | OSError) -> list[str | None]:
        issuer = Issuer()
        issuer.text = text
        assert not issuer.jwks.asked.is_set()
        issuer.jwks.start()
        try:
            await asyncio.wait_for(issuer.jwks.asked.wait(), 30)
            return issuer.kids
        finally:
            await issuer.jwks.stop()
            issuer.threads.shutdown()

    assert asyncio.run(first(key_set(RSA))) != []
    assert asyncio.run(first(OSError("away"))) == []
