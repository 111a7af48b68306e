"""What becomes of records whose request is not answered, and how large requests are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.records import Record
from kctl.errors import Disconnected, failure
from kctl.reach.session import Session, open_session
from kctl.records.batches import Producer
from kctl.records.channels import Answer
from kctl.records.sending import Options, Sender
from kctl.settings import Settings

LEADER = 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """One that asks nobody."""
    settings = Settings()
    settings.bootstrap = "127.0.0.1:1"
    session = open_session(settings)
    monkeypatch.setattr(session, "leaders", lambda partitions: dict.fromkeys(partitions, LEADER))
    monkeypatch.setattr(session, "metadata", lambda topics: [])
    yield session
    session.close()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[list[TopicPartition]]:
    """The partitions of each request, none of which is answered."""
    sent: list[list[TopicPartition]] = []
    monkeypatch.setattr(
        "kctl.records.channels.Channels.send", lambda self, leader, build, tag, *_: sent.append(list(tag))
    )
    return sent


def record(size: int) -> Record:
    return Record(0, 0, None, b"x" * size, ())


@pytest.mark.parametrize("sent", [True, False])
def test_records_that_may_have_been_written_are_not_denied(session: Session, requests: list[Any], sent: bool) -> None:
    now = 0.0
    where = TopicPartition("t", 0)
    sender = Sender(session, Options(-1, 0, None), Producer(7, 0), clock=lambda: now)
    sender.add(where, record(10))
    sender.poll(0)
    for at, was_sent in ((0.0, sent), (session.settings.timeout, False)):
        now = at
        sender._taken(Answer(LEADER, [where], Disconnected("no answer"), was_sent))
    [lost] = sender.undelivered
    assert lost.error.what == ("no answer; the records may be in t-0 or not" if sent else "no answer")


def test_a_request_is_not_larger_than_a_slow_link_can_take(
    session: Session, requests: list[list[TopicPartition]]
) -> None:
    sender = Sender(session, Options(-1, 0, None), Producer(7, 0))
    for number in range(16):
        sender.add(TopicPartition("t", number), record(400_000))
    sender._send_due(0)
    assert max(map(len, requests)) == 2


def test_what_was_never_sent_is_not_told_with_the_name_of_another_partition(
    session: Session, requests: list[Any]
) -> None:
    full, other = TopicPartition("t", 1), TopicPartition("t", 0)
    sender = Sender(session, Options(-1, 0, None), Producer(7, 0))
    sender.add(full, record(10))
    sender.poll(0)
    sender.add(other, record(10))
    error = failure(ErrorCode.KAFKA_STORAGE_ERROR, "partition t-1 does not take the records")
    sender._taken(Answer(LEADER, [full], error, True))
    sender.flush()
    first, rest = sender.undelivered
    assert (first.where, rest.where) == (full, other)
    assert rest.error.what == "t-0: not sent, after this: partition t-1 does not take the records"
    assert rest.error.hints == first.error.hints
    assert "or its disk is full" in rest.error.hints[0]


def test_of_batches_behind_one_in_doubt_it_is_said_that_they_were_not_sent(
    session: Session, requests: list[Any]
) -> None:
    broken, other = TopicPartition("t", 1), TopicPartition("t", 0)
    sender = Sender(session, Options(batch_bytes=100), Producer(7, 0))
    sender.add(broken, record(10))
    sender.add(other, record(90))
    sender.poll(0)
    sender.add(other, record(90))
    sender._taken(Answer(LEADER, [other], Disconnected("no answer"), True))
    sender._taken(Answer(LEADER, [broken], failure(ErrorCode.INVALID_PRODUCER_EPOCH, "it is fenced"), True))
    sender.flush()
    told = [each.error.what for each in sender.undelivered if each.where == other]
    assert told == [
        "t-0: not sent again, after this: it is fenced; the records may be in t-0 or not",
        "t-0: not sent, after this: it is fenced",
    ]
