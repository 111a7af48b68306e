from __future__ import annotations

from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from kafkad.names import TopicPartition
from kafkad_etl.cluster import ends
from kafkad_etl.job import Offsets
from kctl.errors import KctlError
from kctl.reach.offsets import OffsetAt

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_ends_are_asked_for_again_whatever_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([KctlError("away"), KeyError("odd"), {A: OffsetAt(50, -1, -1), B: KctlError("no leader")}])

    def ask(*_: object, **__: object) -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        polling.close()
        return answer

    monkeypatch.setattr(ends, "offsets_at", ask)
    monkeypatch.setattr(ends, "ASK_SECONDS", 0.01)
    told: SimpleQueue[Offsets] = SimpleQueue()
    session: Any = SimpleNamespace(close=lambda: None)
    polling = ends.EndsPoller(session, lambda: [A, B], told.put, committed_only=False)
    assert told.get(timeout=10) == {"orders": {0: 50}}
