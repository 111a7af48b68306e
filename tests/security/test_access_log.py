"""Refusals in the audit log: in Kafka's words or as JSON, and never so many that nothing else can be read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from kafkad.security.access_log import Access, AccessLog
from kafkad.security.authorizer import Operation, ResourceType
from tests.fakes import FakeClock


class Log:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = FakeClock()
        self.due: list[tuple[float, Callable[[], None]]] = []
        self._caplog = caplog

    def access(self, style: str = "text") -> AccessLog:
        return AccessLog(self.clock.monotonic_ms, lambda at, action: self.due.append((at, action)), style)

    def second_later(self) -> None:
        self.clock.advance(1_000)
        due, self.due = self.due, []
        for at, action in due:
            assert at <= self.clock.monotonic_ms()
            action()

    def lines(self) -> list[str]:
        found = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return found


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    monkeypatch.setattr(logging.getLogger("kafkad"), "propagate", True)
    with caplog.at_level(logging.INFO, "kafkad.audit"):
        yield Log(caplog)


def refuse(access: AccessLog, name: str = "nope", principal: str = "User:bob") -> None:
    asked = Access(principal, "127.0.0.1", Operation.CREATE, ResourceType.TOPIC, name, "CreateTopics")
    access.note(asked, allowed=False)


def test_a_refusal_is_in_kafkas_words(log: Log) -> None:
    refuse(log.access())
    [line] = log.lines()
    assert line == (
        "Principal = User:bob is Denied Operation = Create from host = 127.0.0.1 on resource = Topic:LITERAL:nope for "
        "request = CreateTopics with resourceRefCount = 1"
    )


def test_a_grant_is_only_told_when_debugging(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    access = log.access()
    assert access.wants(False)
    assert not access.wants(True)
    with caplog.at_level(logging.DEBUG, "kafkad.audit"):
        assert access.wants(True)
        access.note(
            Access("User:bob", "::1", Operation.CLUSTER_ACTION, ResourceType.TRANSACTIONAL_ID, "x", "EndTxn"),
            allowed=True,
        )
    [line] = log.lines()
    assert line == (
        "Principal = User:bob is Allowed Operation = ClusterAction from host = ::1 on resource = "
        "TransactionalId:LITERAL:x for request = EndTxn with resourceRefCount = 1"
    )


def test_as_json(log: Log) -> None:
    access = log.access("json")
    for _ in range(12):
        refuse(access, 'a"\n')
    log.second_later()
    rows = [json.loads(line) for line in log.lines()]
    assert len(rows) == 11
    assert rows[0] == {
        "principal": "User:bob",
        "outcome": "Denied",
        "operation": "Create",
        "host": "127.0.0.1",
        "resource": "Topic",
        "name": 'a"\n',
        "request": "CreateTopics",
    }
    assert rows[-1] == rows[0] | {"refusals": 2}


def test_ten_lines_a_second_and_a_count_of_the_rest(log: Log) -> None:
    access = log.access()
    for _ in range(500):
        refuse(access)
    refuse(access, "other")
    refuse(access, principal="User:eve")
    assert len(log.lines()) == 12
    log.second_later()
    [line] = log.lines()
    assert line.endswith("resourceRefCount = 1; 490 refusals like this within a second")
    assert not log.due, "nothing runs while nobody is refused"
    refuse(access)
    assert len(log.lines()) == 1


def test_made_up_names_share_ten_lines(log: Log) -> None:
    access = log.access()
    for number in range(5_000):
        refuse(access, f"t{number}")
    assert len(log.lines()) == 1_010
    log.second_later()
    assert log.lines()[0].endswith("; 3990 refusals like this within a second")


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_long_name_is_cut(log: Log, style: str) -> None:
    access = log.access(style)
    for _ in range(11):
        refuse(access, "x" * 30_000, principal="User:" + "y" * 30_000)
    assert max(map(len, log.lines())) < 1_000
    assert all(len(name) < 400 for _, name in access._refusals._lines)
    log.second_later()
    assert max(map(len, log.lines())) < 1_000


def test_a_name_cannot_begin_a_new_line(log: Log) -> None:
    refuse(log.access(), "a\nINFO forged" + "x" * 1_000)
    [line] = log.lines()
    assert "\n" not in line
    assert len(line) < 600
