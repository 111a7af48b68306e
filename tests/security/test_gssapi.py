"""GSSAPI's exchange of messages, with tokens that say what they are."""

from __future__ import annotations

import pytest

from kafkad.config.local_names import LocalNames
from kafkad.security.gssapi import Gssapi, TicketRefused, conversation
from kafkad.security.mechanism import Login, LoginFailed

NAMES = LocalNames.of(["DEFAULT"], "EXAMPLE.ORG")


class Tickets:
    """Takes the tokens `ticket:PRINCIPAL` and, before one, `more`."""

    def __init__(self, answer: bytes = b"welcome") -> None:
        self.principal: str | None = None
        self._answer = answer

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


def exchange(answer: bytes = b"welcome") -> Gssapi:
    return Gssapi(lambda: Tickets(answer), NAMES)


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
