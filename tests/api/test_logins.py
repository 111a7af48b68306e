"""Doors and sessions over real sockets: what reaches the router, what waits, and what ends a connection."""

from __future__ import annotations

import asyncio
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from kafkad.config import Config
from kafkad.net.connection import Connection
from kafkad.net.server import Limits, Listener
from kafkad.security.attempts import Attempts
from kafkad.security.gssapi import SeenLogins
from kafkad.security.mechanism import Login
from kafkad.security.offer import ScramUsers, offer
from kafkad.security.scram import ScramClient, ScramCredential
from tests.api.logging_in import (
    DELAY_MS,
    JAAS,
    METADATA,
    VERSIONS,
    House,
    at_home,
    authenticated,
    config,
    first_frames,
    handshake,
    sized,
    token,
)
from tests.net.test_tls import Connect, over_tls


def test_everything_in_one_write() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        client.send(VERSIONS, handshake(), token(b"\0carol\0pw"), METADATA)
        frames = [await client.frame() for _ in range(4)]
        assert authenticated(frames[2]).error_code == 0
        assert frames[3][:4] == b"\0\0\0\x02"
        assert house.router.served == [18, 3]
        peer = house.router.connections[0].peer
        assert (str(peer.principal), peer.authenticated, peer.mechanism) == ("User:carol", True, "PLAIN")
        assert house.counted("successful_authentication_total") == 1

    at_home(scenario)


def test_strangers_do_not_use_up_the_connections_of_those_who_log_in() -> None:
    """Of whom there are no more than there may be, also when they come in the same moment."""

    async def scenario(house: House) -> None:
        for _ in range(5):
            await house.connect()
        known = [await house.connect() for _ in range(2)]
        for client in known:
            assert (await client.log_in()).error_code == 0
        assert house.listener.known == 2
        waiting = await house.connect()
        waiting.send(VERSIONS)
        known[0].writer.close()
        assert await waiting.frame()
        late = await house.connect()
        while house.listener.open < 8:
            await asyncio.sleep(0)
        assert (await waiting.log_in()).error_code == 0
        late.send(handshake(), token(b"\0carol\0pw"), METADATA)
        await late.reader.read()
        assert await late.closed()
        assert house.listener.known == 2
        assert (await known[1].ask(METADATA))[:4] == b"\0\0\0\x02"

    at_home(scenario, limits=Limits(max_connections=2))


def test_those_that_may_not_log_in_do_not_use_up_the_connections_of_others() -> None:
    async def scenario(house: House) -> None:
        refused = [await house.connect() for _ in range(5)]
        honest = await house.connect()
        for client in [*refused, honest]:
            await client.ask(handshake())
        for client in refused:
            client.send(token(b"\0carol\0wrong"))
        while house.logins.probes["SASL"].failed["PLAIN"] < 5:
            await asyncio.sleep(0)
        assert (house.listener.known, len(house.listener.lobby)) == (0, 6)
        assert authenticated(await honest.ask(token(b"\0carol\0pw"))).error_code == 0
        assert (house.listener.known, len(house.listener.lobby)) == (1, 5)
        for client in refused:
            assert authenticated(await client.frame()).error_code == 58
            assert await client.closed()
        assert len(house.listener.lobby) == 0

    at_home(scenario, limits=Limits(max_connections=2))


def test_a_refusal_waits_and_then_leaves_whole_and_others_do_not_wait() -> None:
    async def scenario(house: House) -> None:
        one, other = await house.connect(), await house.connect()
        await one.ask(handshake())
        began = time.monotonic()
        one.send(token(b"\0carol\0wrong"), *[METADATA] * 1000)
        answer = asyncio.ensure_future(one.frame())
        assert (await other.log_in()).error_code == 0
        assert not answer.done()
        refused = authenticated(await answer)
        assert time.monotonic() - began >= 0.5
        assert refused.error_message == "Authentication failed: Invalid username or password"
        assert await one.closed()
        assert house.router.served == []
        assert house.counted("failed_authentication_total") == 1

    at_home(scenario, "connection.failed.authentication.delay.ms=500")


def test_a_refusal_does_not_come_together_with_the_end_of_its_connection() -> None:
    """kafka-python passes over what it reads when nothing can follow."""

    async def scenario(house: House) -> None:
        client = await house.connect()
        assert (await client.log_in(password="wrong")).error_code == 58
        [connection] = house.router.connections
        assert not connection.closed
        client.send(METADATA)
        assert await client.closed()
        assert house.router.served == []

    at_home(scenario)


@pytest.mark.parametrize(
    "first",
    [
        sized(METADATA),
        sized(b""),
        sized(b"\0\x24\0\x02" + bytes(10)),
        b"\xff\xff\xff\xff",
        b"\x00\x08\x00\x01",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        sized(b"\0\x12\0\x03" + bytes(5000)),
    ],
)
def test_whatever_else_comes_first_closes_after_the_delay(first: bytes) -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        began = time.monotonic()
        client.writer.write(first)
        assert await client.closed()
        assert time.monotonic() - began >= DELAY_MS / 1000
        assert house.router.served == []

    at_home(scenario)


def test_a_large_frame_is_refused_by_its_length_alone_also_in_the_midst_of_a_login() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        await client.ask(handshake())
        client.writer.write(struct.pack(">i", 524_289))
        assert await client.closed()
        small = await house.connect()
        small.writer.write(struct.pack(">i", 524_288) + b"\0\x11\0\x01")
        await asyncio.sleep(2 * DELAY_MS / 1000)
        assert not house.router.connections[1].closed

    at_home(scenario)


def test_versions_once_and_their_refusals_do_not_count() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        assert (await client.ask(b"\0\x12\0\x63" + VERSIONS[4:]))[4:] == b"\0\x23"
        assert (await client.ask(VERSIONS))[4:] == b"\0\0"
        client.send(VERSIONS)
        assert await client.closed()

    at_home(scenario)


def test_a_bare_conversation() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        await client.ask(handshake(version=0))
        assert await client.ask(b"\0carol\0pw") == b""
        assert (await client.ask(METADATA))[:4] == b"\0\0\0\x02"

    at_home(scenario)


def test_scram_and_what_becomes_of_a_user_who_is_deleted() -> None:
    async def scenario(house: House) -> None:
        credential = ScramCredential.of_password("sha256", "secret", b"salt", 4096)
        house.logins.user_changed("dave", {"SCRAM-SHA-256": credential.text})
        client, other = await house.connect(), await house.connect()
        await client.ask(handshake("SCRAM-SHA-256"))
        exchange = ScramClient("SCRAM-SHA-256", "dave", "secret", "abc")
        answer = authenticated(await client.ask(token(exchange.first)))
        done = authenticated(await client.ask(token(exchange.last(answer.auth_bytes))))
        exchange.verify(done.auth_bytes)
        assert (await other.log_in()).error_code == 0
        house.logins.user_changed("dave", {"SCRAM-SHA-256": credential.text, "producer_byte_rate": "1"})
        assert (await client.ask(METADATA))[:4] == b"\0\0\0\x02"
        house.logins.user_changed("dave", {"producer_byte_rate": "1"})
        assert await client.closed()
        assert (await other.ask(METADATA))[:4] == b"\0\0\0\x02"

    at_home(scenario)


def test_connections_are_looked_through_only_for_lost_credentials_and_once_for_those_of_a_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(house: House) -> None:
        looks = 0

        def connections() -> list[object]:
            nonlocal looks
            looks += 1
            return []

        monkeypatch.setattr(house.logins, "_connections", connections)
        credential = ScramCredential.of_password("sha256", "secret", b"salt", 4096)
        for number in range(3):
            house.logins.user_changed(f"user-{number}", {"SCRAM-SHA-256": credential.text})
            house.logins.user_changed(f"user-{number}", {"SCRAM-SHA-256": credential.text, "producer_byte_rate": "1"})
        house.logins.user_changed("somebody else", {"producer_byte_rate": "1"})
        await asyncio.sleep(0)
        assert looks == 0
        house.logins.user_changed("user-1", {"producer_byte_rate": "1"})
        await asyncio.sleep(0)
        assert looks == 1
        for number in range(500):
            house.logins.token_ended(f"token-{number}")
        for user in ("user-0", "user-2"):
            house.logins.user_changed(user, {})
        await asyncio.sleep(0)
        assert looks == 2

    at_home(scenario)


def test_who_has_logged_in_by_a_token_leaves_with_it() -> None:
    """Its owner stays, and whoever has another of its tokens."""

    async def scenario(house: House) -> None:
        house.keep_token("one", 1)
        house.keep_token("other", 1)
        one, other, carol = [await house.connect() for _ in range(3)]
        assert (await one.log_in_by_token("one")).error_code == 0
        assert (await other.log_in_by_token("other")).error_code == 0
        assert (await carol.log_in()).error_code == 0
        house.logins.user_changed("carol", {"producer_byte_rate": "1"})
        for client in (one, other, carol):
            assert (await client.ask(METADATA))[:4] == b"\0\0\0\x02"
        del house.tokens["one"]
        for token_id in ("other", "one", "a third"):
            house.logins.token_ended(token_id)
        assert await one.closed()
        for client in (other, carol):
            assert (await client.ask(METADATA))[:4] == b"\0\0\0\x02"

    at_home(scenario)


def test_users_of_plain_change_at_once() -> None:
    async def scenario(house: House) -> None:
        carol, bob = await house.connect(), await house.connect()
        await carol.log_in()
        await bob.log_in("bob", "pw2")
        house.config = config(*house.settings, f'{JAAS} user_carol="new";')
        house.logins.settings_changed()
        assert await bob.closed()
        assert (await carol.ask(METADATA))[:4] == b"\0\0\0\x02"
        again = await house.connect()
        assert (await again.log_in("carol", "new")).error_code == 0

    at_home(scenario)


def test_a_mechanism_that_is_switched_off_closes_its_connections() -> None:
    async def scenario(house: House) -> None:
        house.users.changed("dave", {"SCRAM-SHA-256": ScramCredential.of_password("sha256", "pw", b"salt", 4096).text})
        dave, carol = await house.connect(), await house.connect()
        await dave.ask(handshake("SCRAM-SHA-256"))
        exchange = ScramClient("SCRAM-SHA-256", "dave", "pw", "nonce")
        asked = authenticated(await dave.ask(token(exchange.first)))
        assert authenticated(await dave.ask(token(exchange.last(asked.auth_bytes)))).error_code == 0
        await carol.log_in()
        house.config = config(*house.settings, "sasl.enabled.mechanisms=PLAIN")
        house.logins.settings_changed()
        assert await dave.closed()
        assert (await carol.ask(METADATA))[:4] == b"\0\0\0\x02"

    at_home(scenario)


def test_who_is_at_the_door_is_not_let_in_by_a_mechanism_that_is_switched_off() -> None:
    async def scenario(house: House) -> None:
        house.users.changed("dave", {"SCRAM-SHA-256": ScramCredential.of_password("sha256", "pw", b"salt", 4096).text})
        dave, carol = await house.connect(), await house.connect()
        await dave.ask(handshake("SCRAM-SHA-256"))
        exchange = ScramClient("SCRAM-SHA-256", "dave", "pw", "nonce")
        asked = authenticated(await dave.ask(token(exchange.first)))
        await carol.ask(handshake())
        house.config = config(*house.settings, "sasl.enabled.mechanisms=PLAIN")
        house.logins.settings_changed()
        dave.send(token(exchange.last(asked.auth_bytes)), METADATA)
        assert await dave.closed()
        assert (house.router.served, house.counted("failed_authentication_total")) == ([], 1)
        assert authenticated(await carol.ask(token(b"\0carol\0pw"))).error_code == 0

    at_home(scenario)


def test_passwords_of_plain_are_those_in_force_when_they_are_shown() -> None:
    """And not those of when a login began."""

    async def scenario(house: House) -> None:
        waiting = [await house.connect() for _ in range(3)]
        for client in waiting:
            await client.ask(handshake())
        house.config = config(*house.settings, f'{JAAS} user_carol="new";')
        house.logins.settings_changed()
        for client, password, code in zip(waiting, ("pw", "pw2", "new"), (58, 58, 0), strict=True):
            client.send_token("bob" if password == "pw2" else "carol", password)
            assert authenticated(await client.frame()).error_code == code

    at_home(scenario)


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_session_ends_unless_its_user_logs_in_again() -> None:
    async def scenario(house: House) -> None:
        client, lazy = await house.connect(), await house.connect()
        assert (await client.log_in()).session_lifetime_ms == 300
        await lazy.log_in()
        assert (await client.log_in()).session_lifetime_ms == 300
        state = await client.ask(handshake())  # within a second of the last time: the router's
        assert state == b"\0\0\0\x07\0\0"
        await asyncio.sleep(0.35)
        lazy.send(METADATA)
        assert await lazy.closed()
        assert house.counted("expired_connections_killed_count") == 1
        assert house.counted("successful_reauthentication_total") == 1
        assert house.router.served == [17]

    at_home(scenario, "connections.max.reauth.ms=300")


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_session_lasts_as_long_as_was_said_whatever_the_wall_clock_does(hours: int) -> None:
    async def scenario(house: House) -> None:
        house.keep_token("one", 6)
        client, lazy = await house.connect(), await house.connect()
        for each in (client, lazy):
            assert (await each.log_in_by_token("one")).session_lifetime_ms == 60_000
        house.clock.hours_off = hours
        house.clock.passed_ms = 30_000
        assert (await client.log_in_by_token("one")).session_lifetime_ms == 60_000
        assert (await lazy.ask(METADATA))[:4] == b"\0\0\0\x02"
        house.clock.passed_ms = 60_001
        assert (await client.ask(METADATA))[:4] == b"\0\0\0\x02"
        lazy.send(METADATA)
        assert await lazy.closed()

    at_home(scenario, "connections.max.reauth.ms=60000")


def test_after_its_end_a_session_may_still_begin_anew() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        await client.log_in()
        await asyncio.sleep(0.1)
        assert (await client.log_in()).error_code == 0
        assert (await client.ask(METADATA))[:4] == b"\0\0\0\x02"

    at_home(scenario, "listener.name.sasl.plain.connections.max.reauth.ms=50")


@pytest.mark.parametrize("setting", ["connections.max.reauth.ms", "listener.name.sasl.plain.connections.max.reauth.ms"])
def test_less_than_no_time_is_no_end_of_a_session(setting: str) -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        assert (await client.log_in()).session_lifetime_ms == 0
        assert (await client.ask(METADATA))[:4] == b"\0\0\0\x02"

    at_home(scenario, f"{setting}=-1")


def test_nobody_else_may_take_over_a_session() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        await client.log_in()
        refused = await client.log_in("bob", "pw2")
        assert refused.error_message == "Cannot change principals during re-authentication from User.carol: User.bob"
        assert await client.closed()
        assert house.counted("failed_reauthentication_total") == 1

    at_home(scenario, "connections.max.reauth.ms=5000")


# -- many failures -----------------------------------------------------------------------------------------------------


def test_from_the_tenth_failure_on_an_address_waits_longer_and_longer_but_who_knows_the_password_does_not() -> None:
    async def scenario(house: House) -> None:
        for _ in range(9):
            client = await house.connect()
            assert (await client.log_in(password="x")).error_code == 58
        for factor in (2, 4):
            client = await house.connect()
            began = time.monotonic()
            assert (await client.log_in(password="x")).error_code == 58
            assert time.monotonic() - began >= factor * 0.1
        guessing = asyncio.ensure_future((await house.connect()).log_in(password="x"))
        client = await house.connect()
        assert (await client.log_in()).error_code == 0
        assert not guessing.done()
        assert (await guessing).error_code == 58

    at_home(scenario, "connection.failed.authentication.delay.ms=1")


def test_who_is_refused_is_told_so_also_when_the_time_to_log_in_is_over() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        assert (await client.log_in(password="x")).error_code == 58
        late = await house.connect()
        assert await late.closed()

    at_home(scenario, "connection.failed.authentication.delay.ms=400", limits=Limits(setup_ms=200))


async def refused(house: House, user: str, number: int) -> None:
    """So many connections at a listener that tells them so late; all of them may be at the door at once."""
    failed = house.logins.probes["SASL"].failed
    clients = [await house.connect() for _ in range(number)]
    for client in clients:
        await client.ask(handshake())
    before = failed["PLAIN"]
    for client in clients:
        client.send_token(user, "an old one")
    while failed["PLAIN"] < before + min(number, 20):
        await asyncio.sleep(0)


async def until_waiting(house: House, number: int) -> None:
    while sum(map(len, house.logins._waiting.values())) < number:
        await asyncio.sleep(0)


def test_those_with_an_old_password_keep_nobody_else_waiting_who_comes_from_their_address() -> None:
    async def scenario(house: House) -> None:
        await refused(house, "carol", 60)
        assert (await (await house.connect()).log_in("bob", "pw2")).error_code == 0

    at_home(scenario, "connection.failed.authentication.delay.ms=20000")


def test_of_a_name_that_fails_at_a_suspect_address_few_are_told_at_once_whether_they_are_right() -> None:
    """Who waits for that has no deadline, and is told in its turn."""

    async def scenario(house: House) -> None:
        for _ in range(10):
            house.logins.attempts.failed("127.0.0.1", "carol", 0)
        guesses = [await house.connect() for _ in range(10)]
        for client in guesses:
            await client.ask(handshake())
            client.send_token("carol", "wrong")
        failed = house.logins.probes["SASL"].failed
        while failed["PLAIN"] < 10:
            await asyncio.sleep(0)
        waiting = []
        for password in ("pw", "wrong", "pw"):
            client = await house.connect()
            await client.ask(handshake())
            client.send_token("carol", password)
            waiting.append(client)
        await until_waiting(house, 3)
        house.server.timers.expire(house.clock.monotonic_ms() + 9_000)
        assert (failed["PLAIN"], house.listener.known, house.listener.lobby.late) == (10, 0, 0)
        house.router.connections[0].close()
        assert authenticated(await waiting[0].frame()).error_code == 0
        while failed["PLAIN"] < 11:
            await asyncio.sleep(0)
        assert house.listener.known == 1
        house.router.connections[1].close()
        assert authenticated(await waiting[2].frame()).error_code == 0

    at_home(scenario, "connection.failed.authentication.delay.ms=20000", limits=Limits(setup_ms=5_000))


def test_of_sessions_that_authenticate_again_no_more_are_told_at_once() -> None:
    """Somebody with a token of carol's has sessions of hers, and does not know her password."""

    async def scenario(house: House) -> None:
        sessions = [await house.connect() for _ in range(14)]
        for client in sessions:
            assert (await client.log_in()).error_code == 0
        for _ in range(10):
            house.logins.attempts.failed("127.0.0.1", "carol", 0)
        failed = house.logins.probes["SASL"].failed_again
        for client in sessions[:12]:
            await client.ask(handshake())
            client.send_token("carol", "a guess")
        late = sessions[12]
        await late.ask(handshake())
        late.send_token("carol", "pw")
        await until_waiting(house, 3)
        assert (failed["PLAIN"], house.listener.known) == (10, 14)
        assert (await sessions[13].ask(METADATA))[:4] == b"\0\0\0\x02"
        for connection in house.router.connections[:3]:
            connection.close()
        assert authenticated(await late.frame()).error_code == 0
        assert (await late.ask(METADATA))[:4] == b"\0\0\0\x02"
        assert (failed["PLAIN"], house.counted("successful_reauthentication_total")) == (12, 1)

    at_home(scenario, "connection.failed.authentication.delay.ms=20000", "connections.max.reauth.ms=60000")


def test_who_has_gone_meanwhile_holds_up_none_of_those_that_wait_behind() -> None:
    async def scenario(house: House) -> None:
        await refused(house, "carol", 60)
        await until_waiting(house, 40)
        waiting = [connection for connection in house.router.connections if not connection.muted]
        late = await house.connect()
        await late.ask(handshake())
        late.send_token("carol", "pw")
        await until_waiting(house, 41)
        for client, connection in zip(house.clients, house.router.connections, strict=False):
            if connection in waiting:
                client.writer.transport.abort()
        while not all(connection.has_lost_client() for connection in waiting):
            await asyncio.sleep(0)
        next(connection for connection in house.router.connections if connection.muted).close()
        assert authenticated(await late.frame()).error_code == 0

    at_home(scenario, "connection.failed.authentication.delay.ms=20000")


def test_suspects_at_one_listener_keep_nobody_out_of_another() -> None:
    async def scenario(house: House) -> None:
        def connection(listener: str) -> Any:
            return Mock(listener=SimpleNamespace(name=listener, lobby=house.listener.lobby), host="a")

        may = [house.logins.answers_now(cast(Any, object()), connection("OUTSIDE")) for _ in range(11)]
        assert may == [True] * 10 + [False]
        assert house.logins.answers_now(cast(Any, object()), connection("INSIDE"))

    at_home(scenario)


def test_a_user_who_is_deleted_while_its_login_waits_is_not_let_in() -> None:
    async def scenario(house: House) -> None:
        await refused(house, "carol", 40)
        late = await house.connect()
        await late.ask(handshake())
        late.send_token("carol", "pw")
        await until_waiting(house, 21)
        house.config = config(*house.settings, f'{JAAS} user_bob="pw2";')
        house.logins.settings_changed()
        while not house.router.connections[-1].muted:
            next(each for each in house.router.connections if not each.closed).close()
            await asyncio.sleep(0)
        assert house.listener.known == 0

    at_home(scenario, "connection.failed.authentication.delay.ms=20000")


def test_strangers_at_the_door_take_no_memory_from_those_inside() -> None:
    async def scenario(house: House) -> None:
        server = house.server
        inside = await house.connect()
        assert (await inside.log_in()).error_code == 0
        half = sized(bytes(400_000))[:300_000]
        strangers = [await house.connect() for _ in range(20)]
        for stranger in strangers:
            stranger.writer.write(half)
        while house.listener.lobby.displaced < 10:
            await asyncio.sleep(0.01)
        assert 0 < house.listener.lobby.held <= 1 << 20
        assert not server.queued.full
        inside.writer.write(half)
        while not house.router.connections[0].held:
            await asyncio.sleep(0.01)
        late = await house.connect()
        assert (await late.log_in()).error_code == 0

    at_home(scenario, limits=Limits(queued_bytes=4 << 20))


def test_what_a_login_brings_of_the_next_request_counts_inside_from_then_on() -> None:
    async def scenario(house: House) -> None:
        queued, lobby = house.server.queued, house.listener.lobby
        client = await house.connect()
        await client.ask(handshake())
        [connection] = house.router.connections
        login = sized(token(b"\0carol\0pw"))
        client.writer.write(login[:20])
        while connection.held < 20:
            await asyncio.sleep(0.01)
        assert (lobby.held, queued.full) == (20, False)
        client.writer.write(login[20:] + sized(METADATA)[:9])
        assert authenticated(await client.frame()).error_code == 0
        assert (lobby.held, queued.full) == (0, True)
        client.writer.write(sized(METADATA)[9:])
        await client.frame()
        assert not queued.full

    at_home(scenario, limits=Limits(queued_bytes=9))


# -- frames that wait at the door --------------------------------------------------------------------------------------


class Slow:
    """A mechanism that takes a millisecond; `done` counts its logins."""

    password_of = None

    def __init__(self, done: list[int]) -> None:
        self.user = None
        self._done = done

    def respond(self, message: bytes) -> Login:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        self._done[-1] += 1
        return Login(message.decode())


def test_logins_take_turns_with_the_rest() -> None:
    async def scenario(house: House) -> None:
        done = [0]
        """In each turn of the loop."""
        offered = house.logins.offers["SASL"]
        users = {f"u{number}": "" for number in range(80)}
        house.logins.offers = {"SASL": offered._replace(mechanisms={"PLAIN": lambda: Slow(done)}, plain_users=users)}
        clients = [await house.connect() for _ in range(80)]
        for client in clients:
            await client.ask(handshake())
        for number, client in enumerate(clients):
            client.send(token(b"u%d" % number), METADATA)
        while sum(done) < len(clients):
            done.append(0)
            await asyncio.sleep(0)
        assert 1 < max(done) <= 8, done
        for number, client in enumerate(clients):
            assert authenticated(await client.frame()).error_code == 0
            assert (await client.frame())[:4] == b"\0\0\0\x02"
            assert house.router.connections[number].peer.principal.name == f"u{number}"

    at_home(scenario, limits=Limits(max_unauthenticated_per_ip=100))


def test_a_large_frame_that_waits_its_turn_is_held_once() -> None:
    async def scenario(house: House) -> None:
        client = await house.connect()
        await client.ask(handshake())
        [connection] = house.router.connections
        message = b"\0carol\0" + b"x" * 200_000
        client.send(token(message))
        held = 0
        while connection.held or not held:
            held = max(held, connection.held)
            await asyncio.sleep(0)
        assert 200_000 < held < 201_000
        assert authenticated(await client.frame()).error_code == 58
        assert house.listener.lobby.held == 0

    at_home(scenario)


class Patient(Attempts):
    """Has nobody wait."""

    def failed(self, address: str, name: str | None, usual_ms: int) -> int:
        return 0

    def suspects(self, address: str, name: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("before", "encrypted"),
    [
        pytest.param([], False, id="SASL_PLAINTEXT"),
        pytest.param([handshake()], False, id="SASL_PLAINTEXT, after a handshake"),
        pytest.param([], True, id="SASL_SSL"),
    ],
)
def test_no_first_frame_reaches_the_router_whatever_its_api_and_version(before: list[bytes], encrypted: bool) -> None:
    async def scenario(house: House) -> None:
        house.logins.attempts = Patient(house.server.clock)
        frames = list(first_frames())
        for at in range(0, len(frames), 90):
            some = frames[at : at + 90]
            clients = [await house.connect() for _ in some]
            for client, frame in zip(clients, some, strict=True):
                client.send(*before, frame)
            for client, frame in zip(clients, some, strict=True):
                if before or int.from_bytes(frame[:2]) not in (17, 18):
                    await asyncio.wait_for(client.reader.read(), 10)
                client.writer.close()
        assert set(house.router.served) <= {18}
        assert not any(connection.peer.authenticated for connection in house.router.connections)

    at_home(scenario, "connection.failed.authentication.delay.ms=0", encrypted=encrypted)


def over_tls_served(scenario: Callable[[Listener, Connect], Awaitable[None]], **server: Any) -> list[bytes]:
    """The frames that come through."""
    served: list[bytes] = []

    def note(connection: Connection, view: memoryview, at: int, end: int) -> None:
        served.append(bytes(view[at:end]))

    over_tls(note, scenario, server=server)
    return served


def test_no_first_frame_is_served_in_clear_where_there_is_tls() -> None:
    async def scenario(listener: Listener, connect: Connect) -> None:
        for frame in first_frames():
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(sized(frame))
            with suppress(ConnectionError):
                await reader.read()
            writer.close()

    assert over_tls_served(scenario) == []


def test_no_first_frame_is_served_without_the_certificate_that_is_asked_for() -> None:
    """By TLS 1.3 a client may send it before it is told so."""

    async def scenario(listener: Listener, connect: Connect) -> None:
        for frame in first_frames():
            reader, writer = await connect()
            writer.write(sized(frame))
            with suppress(ConnectionError, ssl.SSLError):
                await reader.read()
            writer.close()

    assert over_tls_served(scenario, verify_mode=ssl.CERT_REQUIRED) == []


def test_a_mechanism_whose_line_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As somebody has written it into the metadata store."""

    def unreadable(config: Config, listener: str, mechanism: str) -> None:
        raise ValueError("Login module not specified in JAAS config")

    made = config("sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256")
    monkeypatch.setattr(Config, "jaas", unreadable)
    seen = SeenLogins(lambda: 0.0)
    offered = offer(made, "SASL", b"secret", ScramUsers(), dict, lambda config, listener: lambda: None, seen)
    assert (list(offered.mechanisms), dict(offered.plain_users)) == (["SCRAM-SHA-256"], {})
