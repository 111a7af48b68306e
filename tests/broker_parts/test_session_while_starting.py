"""A session with the metadata store that expires while a broker starts is followed by a new one, whenever it does."""

from __future__ import annotations

import logging
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kafkad.meta.embedded import EmbeddedSession
from tests.broker_parts.several import MEMORY, Brokers

_ASKS = ("get", "get_many", "exists", "children", "create", "set", "delete", "multi")


class Expiring:
    """Sessions, one of which expires at their operation number `at`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.at = -1
        self.done = 0
        self.expired_at = ""
        for name in _ASKS:
            patch.setattr(EmbeddedSession, name, self._counted(getattr(EmbeddedSession, name)))

    def _counted(self, operation: Any) -> Any:
        async def ask(session: EmbeddedSession, first: Any, *args: Any, **options: Any) -> Any:
            self.done += 1
            if self.done == self.at:
                self.expired_at = str(first)
                await session.expire()
            return await operation(session, first, *args, **options)

        return ask


def test_a_broker_starts_whenever_its_session_expires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expiring = Expiring(monkeypatch)
    for at in count(1):
        expiring.at, expiring.done, expiring.expired_at = at, 0, ""
        brokers = Brokers(tmp_path / str(at), MEMORY)
        broker = brokers.ended(brokers._start(1), advance_ms=500)
        brokers.running[1] = broker
        if not expiring.expired_at:
            break
        brokers.until(broker.parts.replicas.metadata.is_here.is_set, advance_ms=500)
        assert not brokers.halted, f"{expiring.expired_at} was the last that it asked for"
        brokers.stop()
    assert at > 40
    told = [record for record in caplog.records if record.name.startswith("kafkad.controller")]
    assert [record.getMessage() for record in told if record.levelno >= logging.ERROR] == []
