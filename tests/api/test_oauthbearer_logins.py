"""Logins with tokens of OAUTHBEARER, and the keys of their issuer."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.broker.issuers import Issuers
from kafkad.broker.logins import logins
from kafkad.config import Config
from kafkad.security.offer import offer
from tests.api.logging_in import (
    JAAS,
    METADATA,
    House,
    at_home,
    authenticated,
    config,
    handshake,
    token,
)
from tests.security.tokens import jwk, key_set, rsa_key, signed

BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@pytest.mark.parametrize("before", ["listener.name.sasl.", "listener.name.sasl.oauthbearer."])
def test_what_a_listener_asks_of_tokens_may_have_the_mechanism_before_it(before: str, tmp_path: Path) -> None:
    """As Kafka's documentation writes these settings."""
    (tmp_path / "keys.json").write_bytes(key_set(jwk(rsa_key(), "k1")))
    asked = {
        "jwks.endpoint.url": f"file://{tmp_path}/keys.json",
        "expected.audience": "kafka",
        "expected.issuer": "https://issuer",
        "sub.claim.name": "email",
        "clock.skew.seconds": "1",
    }
    made = config(
        "sasl.enabled.mechanisms=OAUTHBEARER",
        *[f"{before}sasl.oauthbearer.{name}={value}" for name, value in asked.items()],
    )
    now_s = int(time.time())
    claims = {"aud": "kafka", "iss": "https://issuer", "email": "alice", "iat": now_s, "exp": now_s + 60}

    def shown(**others: object) -> bytes:
        return f"n,,\x01auth=Bearer {signed(rsa_key(), **(claims | others))}\x01\x01".encode()

    async def scenario(house: House) -> None:
        issuers = Issuers(ThreadPoolExecutor(1), house.server.clock, house.server.timers)
        house.logins.offers = {
            "SASL": offer(made, "SASL", b"secret", house.users, house.plain_users, issuers.verify_at, house.seen)
        }
        issuers.start()
        await issuers.asked()
        try:
            client = await house.connect()
            await client.ask(handshake("OAUTHBEARER"))
            assert authenticated(await client.ask(token(shown()))).auth_bytes == b""
            assert [c.peer.principal.name for c in house.router.connections] == ["alice"]
            for others in ({"aud": "other"}, {"iss": "https://other"}, {"email": None}, {"exp": now_s - 10}):
                client = await house.connect()
                await client.ask(handshake("OAUTHBEARER"))
                assert b"invalid_token" in authenticated(await client.ask(token(shown(**others)))).auth_bytes
        finally:
            await issuers.stop()

    at_home(scenario)


def reloaded(before: Config, *settings: str) -> Config:
    """With OAUTHBEARER and these settings in the file, and carol's password no more."""
    mechanisms = "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER"
    bearer = f"listener.name.sasl.oauthbearer.sasl.jaas.config={BEARER} required;"
    return before.with_file(config(mechanisms, f'{JAAS} user_bob="pw2";', bearer, *settings)).config


def test_oauthbearer_may_be_added_and_its_keys_may_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Tokens that nobody signed are not taken for that, and all other changes are in force."""
    address = f"listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path}/keys.json"

    async def scenario(house: House) -> None:
        carol, bob = await house.connect(), await house.connect()
        await carol.log_in()
        await bob.log_in("bob", "pw2")
        house.config = reloaded(house.config, address)
        house.logins.settings_changed()
        assert await carol.closed()
        assert house.logins.offers["SASL"].mechanisms.keys() == {"PLAIN"}
        assert await bob.ask(METADATA)

    with caplog.at_level("ERROR"):
        at_home(scenario)
    assert "nobody can log in with OAUTHBEARER at listener SASL" in caplog.text
    assert "needs a restart" in caplog.text


def test_oauthbearer_may_be_added_where_its_keys_are_named(tmp_path: Path) -> None:
    """Whether others are read already or not, they are read then."""
    address = f"listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path}/keys.json"
    (tmp_path / "keys.json").write_bytes(key_set(jwk(rsa_key(), "k1")))
    now_s = int(time.time())
    shown = f"n,,\x01auth=Bearer {signed(rsa_key(), iat=now_s, exp=now_s + 60)}\x01\x01".encode()

    async def scenario(house: House) -> None:
        house.issuers.on_asked.append(house.logins.mechanism_ready)
        house.issuers.start()
        house.config = reloaded(house.config, address)
        house.logins.settings_changed()
        try:
            client = await house.connect()
            await client.ask(handshake("OAUTHBEARER"))
            assert authenticated(await client.ask(token(shown))).auth_bytes == b""
        finally:
            await house.issuers.stop()

    at_home(scenario, address)


def test_keys_that_no_listener_names_any_more_are_read_no_more(tmp_path: Path) -> None:
    """Neither those of a change before the last nor, without the mechanism, any; what stays as it is is kept."""
    (tmp_path / "keys.json").write_bytes(key_set(jwk(rsa_key(), "k1")))
    oauth = (
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path}/keys.json",
        f"listener.name.sasl.oauthbearer.sasl.server.callback.handler.class={HANDLER}",
    )

    async def scenario(house: House) -> None:
        issuers = Issuers(ThreadPoolExecutor(1), house.server.clock, house.server.timers)
        settings: Any = SimpleNamespace(config=config(*oauth))
        nobody: Any = SimpleNamespace(all={}, listen=lambda changed: None)
        made = logins(settings, b"secret", nobody, list, house.clock, issuers, None)
        others = asyncio.all_tasks()
        issuers.start()
        first = asyncio.all_tasks() - others
        made.settings_changed()
        assert asyncio.all_tasks() - others == first != set()
        for number in range(3):
            jaas = f'{BEARER} required ssl.truststore.location="{tmp_path}/{number}.pem";'
            settings.config = config(*oauth, f"listener.name.sasl.oauthbearer.sasl.jaas.config={jaas}")
            made.settings_changed()
        verify = issuers.verify_at(settings.config, "SASL")
        await asyncio.sleep(0)
        [last] = asyncio.all_tasks() - others
        assert last not in first
        settings.config = config()
        made.settings_changed()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == others
        assert verify() is not None, "a login that has begun would wait for nothing"
        await issuers.stop()

    at_home(scenario)


def test_a_login_waits_while_the_keys_of_its_issuer_are_read_for_the_first_time(tmp_path: Path) -> None:
    """Also one that shows its token at once. Others do not wait, and who goes away is forgotten."""
    now_s = int(time.time())
    (tmp_path / "keys.json").write_bytes(key_set(jwk(rsa_key(), "k1")))
    shown = f"n,,\x01auth=Bearer {signed(rsa_key(), iat=now_s, exp=now_s + 60)}\x01\x01".encode()

    async def scenario(house: House) -> None:
        clock, threads, read = house.server.clock, ThreadPoolExecutor(1), threading.Event()
        issuers = Issuers(threads, clock, house.server.timers)
        oauth = config(
            "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER",
            f"listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path}/keys.json",
            f"listener.name.sasl.oauthbearer.sasl.server.callback.handler.class={HANDLER}",
            f"listener.name.sasl.oauthbearer.sasl.jaas.config={BEARER} required;",
        )
        house.logins.offers = {
            "SASL": offer(oauth, "SASL", b"secret", house.users, house.plain_users, issuers.verify_at, house.seen)
        }
        issuers.on_asked.append(house.logins.mechanism_ready)
        threads.submit(read.wait)
        issuers.start()
        try:
            one, other, gone = [await house.connect() for _ in range(3)]
            one.send(handshake("OAUTHBEARER"))
            other.send(handshake("OAUTHBEARER"), token(shown))
            gone.send(handshake("OAUTHBEARER"))
            gone.writer.close()
            answers = [asyncio.ensure_future(client.frame()) for client in (one, other)]
            plain = await house.connect()
            assert (await plain.log_in()).error_code == 0
            await asyncio.sleep(0.05)
            assert not any(answer.done() for answer in answers)
            assert house.listener.lobby.held > len(shown)
            read.set()
            await asyncio.gather(*answers)
            assert authenticated(await one.ask(token(shown))).auth_bytes == b""
            assert authenticated(await other.frame()).auth_bytes == b""
            assert [c.peer.principal.name for c in house.router.connections[:2]] == ["alice", "alice"]
            assert house.listener.lobby.held == 0
        finally:
            read.set()
            await issuers.stop()
            threads.shutdown()

    at_home(scenario)


# -- whoever knows nothing of the protocol -----------------------------------------------------------------------------
