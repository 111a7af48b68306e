"""Logins at the listeners that ask for one: a door for each connection, and its session when it has come through.

Before its login, nothing of a connection reaches the dispatcher but one ApiVersions. `security/sasl` decides what is
answered; here that is carried out: answers wait after a failure, longer after many, and sessions end. Where much has
failed, the logins by a name that has, right or wrong, are answered when those before them have been.

A login costs up to a few milliseconds, and a thousand clients may come back at once: their frames are handled one after
the other, in a share of each turn of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from kafkad.api.answering import LARGEST_VERSIONS, tell_of
from kafkad.api.peer import Peer
from kafkad.clock import Clock
from kafkad.metrics import COUNTER, Family, Labels
from kafkad.net.connection import Answer, Connection, Ending, Serve
from kafkad.net.greetings import other_protocol
from kafkad.net.reply import NOT_TAKEN
from kafkad.security.attempts import Attempts
from kafkad.security.authorizer import Principal
from kafkad.security.offer import Offer, ScramUsers
from kafkad.security.sasl import (
    SASL_HANDSHAKE,
    Conversation,
    LoggedIn,
    NotYet,
    Outcome,
    PreviousLogin,
    Refused,
    Versions,
)
from kafkad.turns import LEAST_S

log = logging.getLogger(__name__)

_SUSPECTS_AT_ONCE: Final = 10
_LONGEST_NAME: Final = 200
"""In the log, escaped."""
_LEAST_BETWEEN_MS: Final = 1_000
"""From one authentication of a session to the next."""

MakeOffer = Callable[[str], Offer]
"""From the name of a listener."""


class LoginProbe:
    """Counters of one listener, by mechanism; `expired` are sessions that were closed."""

    def __init__(self) -> None:
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.succeeded_again: Counter[str] = Counter()
        self.failed_again: Counter[str] = Counter()
        self.expired = 0


class Logins:
    """The logins of a broker. `connections` gives all that are open, at whichever listener."""

    def __init__(
        self,
        listeners: Iterable[str],
        make_offer: MakeOffer,
        users: ScramUsers,
        connections: Callable[[], list[Connection]],
        clock: Clock,
    ) -> None:
        self.users = users
        self.clock = clock
        self.attempts = Attempts(clock)
        self.offers: Mapping[str, Offer] = {}
        self.probes = {listener: LoginProbe() for listener in listeners}
        self._make_offer = make_offer
        self._connections = connections
        self._answering: Counter[_Source] = Counter()
        """How many suspects are being told how their logins ended."""
        self._waiting: dict[_Source, dict[_Door, Connection]] = {}
        """Suspects that are told when others have been."""
        self._unready: dict[_Door, Connection] = {}
        """Those whose mechanism is not ready yet."""
        self._doubted: set[str] = set()
        """Users and tokens that may be known no more, whose connections are looked for in the next turn."""
        self.settings_changed()

    def __contains__(self, listener: str) -> bool:
        return listener in self.probes

    def settings_changed(self) -> None:
        """Closes the connections of users who cannot log in any more by the new settings: their mechanism is off, or
        PLAIN does not know them."""
        self.offers = {listener: self._make_offer(listener) for listener in self.probes}
        self._close_unknown()

    def user_changed(self, user: str, overrides: Mapping[str, str]) -> None:
        """Closes the connections of a user that has lost its credentials: of all changes only that has them looked
        through."""
        if self.users.changed(user, overrides):
            self._doubt(user)

    def token_ended(self, token_id: str) -> None:
        """Closes the connections of a delegation token that is no more."""
        self._doubt(token_id)

    def welcome(self, connection: Connection, dispatch: Serve) -> None:
        """A connection has been opened at one of the listeners."""
        connection.guard(_Door(self, connection, dispatch))

    def put_off(self, door: _Door, connection: Connection) -> None:
        """Until the mechanism is ready, or the time to log in is over."""
        self._unready[door] = connection

    def mechanism_ready(self) -> None:
        """One that was not may be ready now."""
        unready, self._unready = self._unready, {}
        for door, connection in unready.items():
            door.queue(connection)

    def answers_now(self, door: _Door, connection: Connection) -> bool:
        """Takes a place for telling a suspect how its login ended. False if there is none: then the door has its turn
        when there is one."""
        source = _source(connection)
        if self._answering[source] < _SUSPECTS_AT_ONCE:
            self._answering[source] += 1
            return True
        self._waiting.setdefault(source, {})[door] = connection
        connection.listener.lobby.put_off(connection)
        return False

    def answered(self, connection: Connection) -> None:
        """A suspect is in, or closed: the next one is told."""
        source = _source(connection)
        waiting = self._waiting.get(source)
        if waiting:
            door, following = next(iter(waiting.items()))
            self._forget(door, source)
            door.answer(following)
            return
        self._answering[source] -= 1
        if not self._answering[source]:
            del self._answering[source]

    def closed(self, door: _Door, connection: Connection) -> None:
        self._unready.pop(door, None)
        self._forget(door, _source(connection))

    def _forget(self, door: _Door, source: _Source) -> None:
        waiting = self._waiting.get(source, {})
        waiting.pop(door, None)
        if not waiting:
            self._waiting.pop(source, None)

    def _doubt(self, name: str) -> None:
        """All connections are looked through once for the hundreds of users and tokens that may end together, and
        before anything is read that comes from now on."""
        if not self._doubted:
            asyncio.get_running_loop().call_soon(self._close_doubted)
        self._doubted.add(name)

    def _close_doubted(self) -> None:
        names, self._doubted = self._doubted, set()
        self._close_unknown(lambda peer: peer.principal.name in names or peer.token in names)

    def _close_unknown(self, is_meant: Callable[[Peer], bool] = lambda peer: True) -> None:
        for connection in self._connections():
            peer, listener = connection.peer, connection.listener.name
            if peer.mechanism is None or not is_meant(peer):
                continue
            if self.knows(listener, peer.mechanism, peer.principal.name, peer.token):
                continue
            log.info(
                "closing %s: user %s can no longer log in with %s",
                connection.address,
                peer.principal.name,
                peer.mechanism,
            )
            connection.close()

    def knows(self, listener: str, mechanism: str, user: str, token: str | None) -> bool:
        """Whether they can still log in so, the user by the delegation token if there is one."""
        if listener not in self.offers:
            return True
        offered = self.offers[listener]
        if mechanism not in offered.enabled:
            return False
        if token is not None:
            return self.users.account(mechanism, token, by_token=True) is not None
        if mechanism == "PLAIN":
            return user in offered.plain_users
        if mechanism.startswith("SCRAM-"):
            return self.users.find(mechanism, user) is not None
        return True

    def collect(self) -> Iterator[Family]:
        prefix = "kafka_server_socketservermetrics"
        for metric, text, which in (
            ("successful_authentication", "Logins.", "succeeded"),
            ("failed_authentication", "Logins that failed.", "failed"),
            ("successful_reauthentication", "Sessions that authenticated again.", "succeeded_again"),
            ("failed_reauthentication", "Sessions that failed to.", "failed_again"),
        ):
            samples: list[tuple[Labels | str, float]] = [
                ((("listener", listener), ("mechanism", mechanism)), count)
                for listener, probe in self.probes.items()
                for mechanism, count in getattr(probe, which).items()
            ]
            yield Family(f"{prefix}_{metric}_total", COUNTER, text, samples)
        expired: list[tuple[Labels | str, float]] = [
            ((("listener", listener),), probe.expired) for listener, probe in self.probes.items()
        ]
        yield Family(
            f"{prefix}_expired_connections_killed_count", COUNTER, "Closed for not authenticating again.", expired
        )


_Source = tuple[str, str]
"""A listener and an address."""


def _source(connection: Connection) -> _Source:
    return connection.listener.name, connection.host


class _Door:
    """Lets one connection in once it has logged in. `session` is given while it authenticates again."""

    __slots__ = ("_conversation", "_dispatch", "_has_turn", "_is_answered", "_logins", "_outcome", "_session")

    def __init__(
        self, logins: Logins, connection: Connection, dispatch: Serve, session: _Session | None = None
    ) -> None:
        self._has_turn = False
        self._outcome: LoggedIn | Refused | None = None
        """Of a suspect, until it is told."""
        self._is_answered = False
        """A suspect, and told now."""
        self._logins = logins
        self._dispatch = dispatch
        self._session = session
        offer = logins.offers[connection.listener.name]
        before = None
        if session is not None:
            peer = connection.peer
            before = PreviousLogin(peer.principal.name, peer.mechanism)
        self._conversation = Conversation(
            offer.mechanisms, lambda mechanism: offer.lifetimes_ms.get(mechanism, 0), logins.clock.now_ms, before
        )

    def check_size(self, connection: Connection, size: int) -> None:
        largest = self._logins.offers[connection.listener.name].largest_frame
        if not 0 <= size <= largest:
            why = f"a frame of {size} bytes, not 0 to sasl.server.max.receive.size={largest}"
            raise self._ending(connection, None, why + other_protocol(size))

    def __call__(self, connection: Connection, view: memoryview, at: int, end: int) -> Answer:
        self.check_size(connection, end - at)
        if not self._has_turn:
            self.queue(connection)
            return NOT_TAKEN
        self._has_turn = False
        outcome = self._outcome or self._heard(connection, view[at:end])
        if isinstance(outcome, LoggedIn | Refused) and self._has_to_wait(connection):
            self._outcome = outcome
            return NOT_TAKEN
        if outcome is Versions.ASKED:
            return self._tell_versions(connection, view, at, end)
        if outcome is NotYet.READY:
            self._logins.put_off(self, connection)
            return NOT_TAKEN
        if isinstance(outcome, Refused):
            raise self._ending(connection, outcome.answer, outcome.reason)
        if isinstance(outcome, LoggedIn):
            user, token = outcome.login.user, outcome.login.token
            if not self._logins.knows(connection.listener.name, outcome.mechanism, user, token):
                why = f"{outcome.mechanism} was switched off, or the user deleted, while it logged in"
                raise self._ending(connection, None, why)
            self._let_in(connection, outcome)
            return outcome.answer
        return outcome

    def queue(self, connection: Connection) -> None:
        """Its next frame is taken in a later turn of the loop."""
        connection.listener.logins.add(partial(self._take_turn, connection))

    def answer(self, connection: Connection) -> None:
        """The outcome has waited long enough, and has a place."""
        self._is_answered = True
        self.queue(connection)

    def _has_to_wait(self, connection: Connection) -> bool:
        user = self._conversation.user
        if user is None or self._is_answered:
            return False
        if self._logins.attempts.suspects(connection.host, user):
            self._is_answered = self._logins.answers_now(self, connection)
            return not self._is_answered
        return False

    def _take_turn(self, connection: Connection) -> None:
        if self._outcome is not None and connection.has_lost_client():
            connection.close()
            return
        self._has_turn = True
        connection.take_turn(connection.listener.lane.clock() + LEAST_S)
        self._has_turn = False

    def closed(self, connection: Connection) -> None:
        self._logins.closed(self, connection)
        if self._is_answered:
            self._logins.answered(connection)

    def _tell_versions(self, connection: Connection, view: memoryview, at: int, end: int) -> Answer:
        if end - at > LARGEST_VERSIONS:
            raise self._ending(connection, None, f"an ApiVersions of {end - at} bytes")
        try:
            reply = self._dispatch(connection, view, at, end)
        except Ending:
            self._count(connection, succeeded=False)
            raise
        if isinstance(reply, (bytes, bytearray)) and reply[8:10] == b"\0\0":  # its error code
            self._conversation.versions_told()
        return reply

    def _let_in(self, connection: Connection, outcome: LoggedIn) -> None:
        self._count(connection, succeeded=True)
        login = outcome.login
        connection.peer.identify(Principal("User", login.user), mechanism=outcome.mechanism, token=login.token)
        session = None
        if outcome.lifetime_ms:
            session = self._session or _Session(self._logins, self._dispatch)
            session.ends_ms = self._logins.clock.monotonic_ms() + outcome.lifetime_ms
        connection.let_in(session or self._dispatch)
        if self._is_answered:
            self._logins.answered(connection)
        if self._session is None:
            connection.listener.logged_in(connection)

    def _heard(self, connection: Connection, frame: memoryview) -> Outcome:
        try:
            return self._conversation.take(frame)
        except Exception as error:
            self._count(connection, succeeded=False)
            tell_of(connection, "its login", error)
        raise Ending

    def _ending(self, connection: Connection, answer: bytes | None, reason: str) -> Ending:
        self._count(connection, succeeded=False)
        logins, user = self._logins, self._conversation.user
        usual_ms = logins.offers[connection.listener.name].failure_delay_ms
        after_ms = logins.attempts.failed(connection.host, user, usual_ms)
        connection.listener.lobby.refused(connection)
        as_whom = f" as {repr(user[:_LONGEST_NAME])[:_LONGEST_NAME]}" if user else ""
        log.info("%s cannot log in at %s%s: %s", connection.address, connection.listener.name, as_whom, reason)
        return Ending(after_ms, answer)

    def _count(self, connection: Connection, *, succeeded: bool) -> None:
        probe = self._logins.probes[connection.listener.name]
        if self._session is None:
            counted = probe.succeeded if succeeded else probe.failed
        else:
            counted = probe.succeeded_again if succeeded else probe.failed_again
        counted[self._conversation.mechanism or "none"] += 1


class _Session:
    """Stands between a connection and the dispatcher where a login is good only for a limited time."""

    __slots__ = ("_began_ms", "_dispatch", "_logins", "ends_ms")

    def __init__(self, logins: Logins, dispatch: Serve) -> None:
        self.ends_ms = 0.0
        self._logins = logins
        self._dispatch = dispatch
        self._began_ms: float | None = None
        """The last time it began to authenticate again."""

    def __call__(self, connection: Connection, view: memoryview, at: int, end: int) -> Answer:
        now_ms = self._logins.clock.monotonic_ms()
        begins = int.from_bytes(view[at : at + 2]) == SASL_HANDSHAKE
        if begins and (self._began_ms is None or now_ms - self._began_ms >= _LEAST_BETWEEN_MS):
            self._began_ms = now_ms
            door = _Door(self._logins, connection, self._dispatch, self)
            connection.guard(door)
            return door(connection, view, at, end)
        if now_ms >= self.ends_ms:
            self._logins.probes[connection.listener.name].expired += 1
            log.info("closing %s: its session has ended, and it did not authenticate again", connection.address)
            raise Ending(0, None)
        return self._dispatch(connection, view, at, end)
