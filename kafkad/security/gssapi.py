"""GSSAPI (RFC 4752): tokens of Kerberos until both know who the other is, then the agreement on what protects the rest,
which is nothing but the listener's own TLS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Final, NamedTuple, Protocol

from kafkad.config import Config
from kafkad.config.local_names import LocalNames
from kafkad.security.mechanism import Login, LoginFailed

GSSAPI: Final = "GSSAPI"
FIRST_BYTE: Final = b"\x60"
"""Of the first token of an exchange (RFC 2743, 3.1). No API's key begins with it."""
_NO_LAYER: Final = 1
_OFFER: Final = bytes([_NO_LAYER, 0, 0, 0])
"""Of the layers, and of the largest message in one: there are no messages in none. It is the choice as well."""


class TicketRefused(Exception):
    """The text is for the log."""


class Acceptance(Protocol):
    """The broker's side of one exchange of tokens. Everything raises TicketRefused."""

    principal: str | None
    """Who the client is, once it has been established."""

    def take(self, token: bytes) -> bytes:
        """The answer to the client's token; empty if there is none."""

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...

    def mark(self) -> bytes:
        """After the last message. The same for the same messages again, and for no others."""


class Initiation(Protocol):
    """The client's side of one exchange of tokens. Everything raises TicketRefused."""

    established: bool
    """True once the server has shown who it is."""

    def take(self, token: bytes) -> bytes:
        """What to say to the server's token, which is empty at the beginning."""

    def wrap(self, message: bytes) -> bytes: ...

    def unwrap(self, message: bytes) -> bytes: ...


class Service(NamedTuple):
    """As whom a listener accepts tickets and its broker has some itself, and what clients are called there."""

    principal: str
    keytab: str
    names: LocalNames


def service(config: Config, listener: str) -> Service:
    """By the settings of a listener that takes GSSAPI. ValueError if it has no keys by them: the mechanism may be added
    while the broker runs, and its keys be taken away."""
    module = config.jaas(listener, GSSAPI)
    if module is None or not {"principal", "keyTab"} <= module.options.keys():
        raise ValueError("it has no sasl.jaas.config with a principal and a keyTab")
    rules = config.for_listener(listener, "sasl.kerberos.principal.to.local.rules")
    assert isinstance(rules, tuple)
    principal = module.options["principal"]
    return Service(principal, module.options["keyTab"], LocalNames.of(rules, principal.rpartition("@")[2]))


class SeenLogins:
    """Those of the last ten to twenty minutes, of which some could be sent again by whoever has recorded them.

    Kerberos takes a ticket's message for as long as the clocks may differ: five minutes either way, if krb5.conf does
    not say more.
    """

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._since_ms = now_ms()
        self._latest: set[int] = set()
        self._before: set[int] = set()
        self._of_user: Counter[str] = Counter()
        """How many of the latest."""

    def add(self, user: str, mark: bytes) -> None:
        """Raises LoginFailed if it is one of them."""
        now_ms = self._now_ms()
        if now_ms - self._since_ms >= _KEPT_MS:
            self._before = self._latest if now_ms - self._since_ms < 2 * _KEPT_MS else set()
            self._latest, self._of_user, self._since_ms = set(), Counter(), now_ms
        short = int.from_bytes(mark[:_MARK_BYTES])
        if short in self._latest or short in self._before:
            raise LoginFailed(reason="the same messages have been a login before")
        if self._of_user[user] >= _MOST_OF_USER:
            raise LoginFailed(reason=f"{user} has logged in {_MOST_OF_USER} times within ten minutes")
        self._of_user[user] += 1
        self._latest.add(short)


_KEPT_MS: Final = 10 * 60_000
_MARK_BYTES: Final = 8
_MOST_OF_USER: Final = 50_000
"""Which take four megabytes."""


class Gssapi:
    """One exchange."""

    password_of = None

    def __init__(self, begin: Callable[[], Acceptance], names: LocalNames, seen: SeenLogins) -> None:
        self.user: str | None = None
        self._begin = begin
        self._names = names
        self._seen = seen
        self._acceptance: Acceptance | None = None
        self._next = self._token

    def respond(self, message: bytes) -> bytes | Login:
        try:
            return self._next(message)
        except TicketRefused as refusal:
            raise LoginFailed(reason=str(refusal)) from refusal

    def _token(self, message: bytes) -> bytes | Login:
        acceptance = self._acceptance
        if acceptance is None:
            acceptance = self._acceptance = self._begin()
        answer = acceptance.take(message)
        if acceptance.principal is None:
            return answer
        try:
            self.user = self._names.user_of(acceptance.principal)
        except ValueError as error:
            raise LoginFailed(reason=str(error)) from error
        self._next = self._empty
        return answer or self._empty(b"")

    def _empty(self, message: bytes) -> bytes | Login:
        """The client has the broker's token, and nothing to say to it."""
        assert self._acceptance is not None
        if message:
            raise LoginFailed(reason="a message where none is due")
        self._next = self._layer
        return self._acceptance.wrap(_OFFER)

    def _layer(self, message: bytes) -> bytes | Login:
        """Whom it wants to act as stands behind the layer. As with Kafka that has no effect: clients write anything."""
        assert self._acceptance is not None and self.user is not None
        chosen = self._acceptance.unwrap(message)
        if len(chosen) < len(_OFFER) or chosen[0] != _NO_LAYER:
            raise LoginFailed(reason="it wants messages to be protected by Kerberos, which only TLS does here")
        self._seen.add(self.user, self._acceptance.mark())
        return Login(self.user, last=None)


def conversation(initiation: Initiation, first: bytes) -> Generator[bytes, bytes, None]:
    """The client's side, from its first token on: yields what to say, and is sent what is answered."""
    answer = yield first
    while not initiation.established:
        answer = yield initiation.take(answer)
    offer = initiation.unwrap(answer)
    if len(offer) != len(_OFFER) or not offer[0] & _NO_LAYER:
        raise TicketRefused("it wants messages to be protected by Kerberos, which only TLS does here")
    yield initiation.wrap(_OFFER)


def keytab_problem(config: Config) -> str | None:
    """Why a listener could accept no ticket at all; for settings of which nothing is missing."""
    if not config.listeners_with(GSSAPI):
        return None
    from kafkad.security.kerberos import problem  # needs a package that others do not

    return problem(config)
