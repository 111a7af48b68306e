"""The secret by which brokers make up users who do not exist: one for a cluster, and nothing that can be guessed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kafkad.broker.identity import login_secret
from kafkad.meta.embedded import EmbeddedStore
from tests.fakes import FakeClock
from tests.one_broker import OneBroker

SASL = (
    "listeners=PLAINTEXT://127.0.0.1:9092,SASL://127.0.0.1:9093",
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=SCRAM-SHA-256",
    "inter.broker.listener.name=PLAINTEXT",
)


def test_the_first_broker_draws_it_for_all() -> None:
    store, other = (EmbeddedStore.in_memory(FakeClock()) for _ in range(2))
    first, second, of_others = (
        asyncio.run(login_secret(session)) for session in (store.session(), store.session(), other.session())
    )
    assert len(first) == 32
    assert first == second != of_others


def test_only_brokers_with_logins_have_one(tmp_path: Path) -> None:
    for settings, size in (((), 0), (SASL, 32)):
        broker = OneBroker(tmp_path / str(size), *settings)
        assert len(broker.parts.identity.login_secret) == size
        broker.stop()
