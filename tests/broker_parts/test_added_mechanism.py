"""A mechanism of logins that is added while the broker runs."""

from __future__ import annotations

from pathlib import Path

from tests.one_broker import OneBroker

OAUTHBEARER = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER"}


def test_oauthbearer(tmp_path: Path) -> None:
    keys = "listener.name.sasl.sasl.oauthbearer.jwks.endpoint.url"
    broker = OneBroker(
        tmp_path,
        "listeners=PLAINTEXT://127.0.0.1:9092,SASL://127.0.0.1:9093",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "inter.broker.listener.name=PLAINTEXT",
        f"{keys}=file://{tmp_path}/keys.json",
    )
    assert broker.parts.logins is not None
    broker.configs.cluster = OAUTHBEARER

    async def change() -> None:
        broker.parts.overrides_changed()

    broker.run(change())
    assert "OAUTHBEARER" in broker.parts.logins.offers["SASL"].mechanisms
    broker.stop()
