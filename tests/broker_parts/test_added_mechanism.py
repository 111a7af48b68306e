"""A mechanism of logins that is added while the broker runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.one_broker import OneBroker

OAUTHBEARER = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER"}


@pytest.mark.parametrize("has_library", [True, False])
def test_one_that_cannot_be_had_keeps_no_other_setting_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_library: bool
) -> None:
    """Others may have set it for all brokers, and this one has no keys for it, or no library."""
    if not has_library:
        monkeypatch.setitem(sys.modules, "kafkad.security.kerberos", None)
    broker = OneBroker(
        tmp_path,
        "listeners=PLAINTEXT://127.0.0.1:9092,SASL://127.0.0.1:9093",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=SCRAM-SHA-256",
        "inter.broker.listener.name=PLAINTEXT",
    )
    assert broker.parts.logins is not None
    broker.configs.cluster = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,GSSAPI", "max.connections": "7"}

    async def change() -> None:
        broker.parts.overrides_changed()

    broker.run(change())
    assert list(broker.parts.logins.offers["SASL"].mechanisms) == ["SCRAM-SHA-256"]
    assert broker.parts.platform.server.limits.max_connections == 7
    broker.stop()


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
