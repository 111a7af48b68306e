"""Partitions whose brokers are away for longer than the time-out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kctl.errors import KctlError
from kctl.reach.session import Session, open_session
from kctl.records.bounds import FOR_EVER, Span
from kctl.records.reading import Reader
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl
from tests.kctl.records.conftest import NewTopic, until


@pytest.fixture
def session(broker: KafkadProcess) -> Iterator[Session]:
    settings = Settings()
    settings.bootstrap = broker.bootstrap
    session = open_session(settings)
    yield session
    session.close()


def leaderless(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | KctlError]:
    error = KctlError("it has no leader", code=ErrorCode.LEADER_NOT_AVAILABLE.name)
    return dict.fromkeys(partitions, error)


def test_a_followed_partition_is_not_given_up_and_told_once(
    session: Session, on_broker: Kctl, topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    assert on_broker("produce", name, "--value", "x").code == 0
    where = TopicPartition(name, 0)
    told: list[str] = []
    waited = 0.0
    reader = Reader(session, {where: Span(0, FOR_EVER)}, tell=told.append, clock=lambda: time.monotonic() + waited)
    with monkeypatch.context() as outage:
        outage.setattr(session, "leaders", leaderless)
        for _ in range(5):
            assert reader.poll(0) == []
            waited += session.settings.timeout
    assert told == [f"{where} cannot be read, and is tried again: it has no leader"]
    assert (list(reader.lost), reader.failed, reader.done) == ([where], {}, False)
    until(lambda: reader.poll(0.5) != [])
    assert told[1:] == [f"{where} is read again"]
    assert not reader.lost
    reader.close()


def test_a_partition_that_is_read_to_its_end_is_given_up_after_the_time_out(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = TopicPartition("t", 0)
    now = 0.0
    reader = Reader(session, {where: Span(0, 1)}, clock=lambda: now)
    monkeypatch.setattr(session, "leaders", leaderless)
    monkeypatch.setattr(session, "metadata", lambda topics: [])
    reader.poll(0)
    now += session.settings.timeout
    reader.poll(0)
    assert (list(reader.failed), reader.done) == ([where], True)
