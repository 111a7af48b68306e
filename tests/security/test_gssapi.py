"""GSSAPI's exchange of messages, with tokens that say what they are."""

from __future__ import annotations

import pytest

from kafkad.config.local_names import LocalNames
from kafkad.security.gssapi import Gssapi, SeenLogins, TicketRefused, conversation
from kafkad.security.mechanism import Login, LoginFailed

NAMES = LocalNames.of(["DEFAULT"], "EXAMPLE.ORG")


class Tickets:
    """Takes the tokens `ticket:PRINCIPAL` and, before one, `more`."""

    def __init__(self, answer: bytes = b"welcome", mark: bytes = b"") -> None:
        self.principal: str | None = None
        self._answer = answer
        self._mark = mark

    def take(self, token: bytes) -> bytes:
        kind, _, principal = token.decode().partition(":")
        if kind == "more":
            return b"go on"
        if kind != "ticket":
            raise TicketRefused("its ticket: forged")
        self.principal = principal
        return self._answer

    def wrap(self, message: bytes) -> bytes:
        return b"wrapped" + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(b"wrapped"):
            raise TicketRefused("its last message: forged")
        return message.removeprefix(b"wrapped")

    def mark(self) -> bytes:
        return self._mark


def exchange(answer: bytes = b"welcome") -> Gssapi:
    return Gssapi(lambda: Tickets(answer), NAMES, SeenLogins(lambda: 0.0))


def test_a_login_is_none_again_for_as_long_as_kerberos_takes_its_ticket() -> None:
    """By its mark, whoever it is of."""
    now = [0.0]
    seen = SeenLogins(lambda: now[0])

    def log_in(mark: bytes, user: str = "alice") -> bool:
        talk = Gssapi(lambda: Tickets(b"", mark), NAMES, seen)
        talk.respond(f"ticket:{user}@EXAMPLE.ORG".encode())
        try:
            talk.respond(b"wrapped\x01\0\0\0")
        except LoginFailed as failed:
            assert "a login before" in failed.reason
            return False
        return True

    minute = 60_000
    assert log_in(b"a" * 32)
    assert log_in(b"b" * 32)
    for now[0] in (0, 9 * minute, 10 * minute, 19 * minute):
        assert not log_in(b"a" * 32), now[0]
    assert log_in(b"c" * 32)
    now[0] = 20 * minute
    assert not log_in(b"c" * 32)
    assert log_in(b"a" * 32)
    now[0] = 60 * minute
    assert log_in(b"c" * 32)


def test_a_user_who_logs_in_all_the_time_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkad.security.gssapi._MOST_OF_USER", 3)
    now = [0.0]
    seen = SeenLogins(lambda: now[0])
    for number in range(3):
        seen.add("alice", bytes([number]) * 32)
    with pytest.raises(LoginFailed) as failed:
        seen.add("alice", bytes([7]) * 32)
    assert failed.value.reason == "alice has logged in 3 times within ten minutes"
    seen.add("bob", bytes([8]) * 32)
    now[0] = 600_000.0
    seen.add("alice", bytes([7]) * 32)


@pytest.mark.parametrize("acts_as", [b"", b"alice", b"kafka@127.0.0.1"])
def test_a_ticket_then_the_offer_of_no_layer_then_the_login(acts_as: bytes) -> None:
    talk = exchange()
    assert talk.respond(b"more") == b"go on"
    assert talk.respond(b"ticket:alice@EXAMPLE.ORG") == b"welcome"
    assert talk.respond(b"") == b"wrapped\x01\0\0\0"
    assert talk.respond(b"wrapped\x01\0\0\0" + acts_as) == Login("alice", last=None)


def test_without_a_token_of_the_broker_the_offer_comes_at_once() -> None:
    talk = exchange(b"")
    assert talk.respond(b"ticket:alice@EXAMPLE.ORG") == b"wrapped\x01\0\0\0"
    assert talk.respond(b"wrapped\x01\0\0\0") == Login("alice", last=None)


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([b"nonsense"], "its ticket: forged"),
        ([b"ticket:alice@OTHER.ORG"], "fits alice@OTHER.ORG"),
        ([b"ticket:alice@EXAMPLE.ORG", b"more"], "where none is due"),
        ([b"ticket:alice@EXAMPLE.ORG", b"", b"\x01\0\0\0"], "its last message: forged"),
        ([b"ticket:alice@EXAMPLE.ORG", b"", b"wrapped\x01\0\0"], "protected by Kerberos"),
        ([b"ticket:alice@EXAMPLE.ORG", b"", b"wrapped\x04\0\0\0"], "protected by Kerberos"),
        ([b"ticket:alice@EXAMPLE.ORG", b"", b"wrapped"], "protected by Kerberos"),
    ],
)
def test_what_is_refused(messages: list[bytes], why: str) -> None:
    talk = exchange()
    *before, last = messages
    for message in before:
        talk.respond(message)
    with pytest.raises(LoginFailed) as failed:
        talk.respond(last)
    assert why in failed.value.reason
    assert str(failed.value) == ""


class Asked(Tickets):
    """The client's side: shows its ticket once it has been told to go on."""

    established = False

    def take(self, token: bytes) -> bytes:
        if token == b"go on":
            return b"ticket:alice@EXAMPLE.ORG"
        if token != b"welcome":
            raise TicketRefused("its answer: forged")
        self.established = True
        return b""


def test_both_sides_of_the_exchange() -> None:
    server, client = exchange(), conversation(Asked(), b"more")
    message = next(client)
    while not isinstance(done := server.respond(message), Login):
        message = client.send(done)
    assert done == Login("alice", last=None)
    with pytest.raises(StopIteration):
        client.send(b"")


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([b"nonsense"], "its answer: forged"),
        ([b"go on", b"welcome", b"\x01\0\0\0"], "its last message: forged"),
        ([b"go on", b"welcome", b"wrapped\x06\0\xff\xff"], "protected by Kerberos"),
        ([b"go on", b"welcome", b"wrapped"], "protected by Kerberos"),
    ],
)
def test_a_server_that_is_none(answers: list[bytes], why: str) -> None:
    client = conversation(Asked(), b"more")
    next(client)
    *before, last = answers
    for answer in before:
        client.send(answer)
    with pytest.raises(TicketRefused, match=why):
        client.send(last)
