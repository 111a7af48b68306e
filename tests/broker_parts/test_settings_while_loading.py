"""Settings that others change while a broker loads its logs: they are in force when it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.broker.starting import Identity, Platform, load
from kafkad.controller.configs import ConfigAlterer, ConfigEntry, ResourceKind
from tests.one_broker import OneBroker

CHANGED = {"max.connections": "7", "log.retention.ms": "70000"}


def test_they_are_in_force_when_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def load_meanwhile(platform: Platform, identity: Identity, on_progress: object) -> None:
        await load(platform, identity, lambda progress: None)
        other = ConfigAlterer(
            platform.store, 2, config=lambda: identity.settings.config, topic_exists=lambda topic: False
        )
        await other.alter(ResourceKind.BROKER, "", [ConfigEntry(*setting) for setting in CHANGED.items()])
        await identity.configs.catch_up()

    monkeypatch.setattr("tests.one_broker.load", load_meanwhile)
    broker = OneBroker(tmp_path)
    try:
        assert {name: str(broker.config.value(name)) for name in CHANGED} == CHANGED
        assert broker.parts.platform.server.limits.max_connections == 7
        broker.create("t")
        assert broker.replicas.get("t", 0).log.config.retention_ms == 70_000
    finally:
        broker.stop()
