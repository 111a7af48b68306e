"""Directories that the cluster knows nothing of are named at the start, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkad.broker.findings import tell_of_strays
from tests.broker_parts.several import Brokers


def test_a_broker_that_comes_back_names_what_is_not_its_own_any_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = Brokers(tmp_path)
    brokers.start(1, 2)
    brokers.meet()
    brokers.create("kept", (1, 2))
    brokers.create("gone", (2, 1))
    brokers.leave(2)
    caplog.clear()
    brokers.cut.add(frozenset({1, 2}))  # LeaderAndIsr does not come: its replicas are not open yet
    brokers.start(2)
    back = brokers[2].parts
    metadata = brokers[1].parts.replicas.metadata
    metadata.topics.pop("gone")
    tell_of_strays(back.platform.logs, metadata, 2)
    [told] = [record.message for record in caplog.records if "no replica here" in record.message]
    assert f"{tmp_path}/2/gone-0;" in told
    assert "kept" not in told
    brokers.stop()
