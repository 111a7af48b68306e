"""This broker's own logins at other brokers, by what the settings say of the mechanism between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Executor

from kafkad.clock import Clock
from kafkad.config import Config
from kafkad.jaas import LoginModule
from kafkad.net.client import ClientConnection, Login
from kafkad.security import gssapi
from kafkad.security.gssapi import GSSAPI, TicketRefused
from kafkad.security.oauthbearer import OAUTHBEARER
from kafkad.security.scram import ScramClient, ScramError, new_nonce
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest

_USED_OF_LIFETIME = 0.85
"""What is sent later might come too late."""
Conversation = Generator[bytes, bytes, None]
"""Yields what to say, and is sent what is answered. ScramError and TicketRefused end it."""


def login(config: Callable[[], Config], listener: str, clock: Clock, threads: Executor | None) -> Login:
    """At this listener of another broker; each time by the settings in force. Tokens and tickets are asked for in
    `threads`."""

    async def log_in(connection: ClientConnection, deadline_ms: float) -> float | None:
        now = config()
        mechanism = now.str("sasl.mechanism.inter.broker.protocol")
        where = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        module = now.jaas(listener, mechanism)
        if mechanism == OAUTHBEARER:
            who = "the token"
            talk = shown(await _own_token(now, listener, module, threads, connection))
        elif mechanism == GSSAPI:
            own = gssapi.service(now, listener)
            who, talk = own.principal, await _by_ticket(now, listener, own, threads, connection)
        elif module is None or module.username is None or module.password is None:
            raise connection.error(f"cannot be logged in at: {where} has no username and password")
        else:
            who, talk = module.username, conversation(mechanism, module.username, module.password)
        shaken = await connection.ask(SaslHandshakeRequest(mechanism=mechanism), deadline_ms=deadline_ms)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise connection.error(f"does not take {mechanism} at listener {listener}, only {offered}")
        try:
            lifetime_ms = await _converse(connection, talk, deadline_ms)
        except (ScramError, TicketRefused) as error:
            raise connection.error(f"cannot be trusted in {mechanism}: {error}") from error
        except PermissionError as error:
            raise connection.error(f"refuses {who} with {mechanism}: {error}; see {where}") from error
        return clock.monotonic_ms() + lifetime_ms * _USED_OF_LIFETIME if lifetime_ms else None

    return log_in


async def _converse(connection: ClientConnection, talk: Conversation, deadline_ms: float) -> int:
    """The lifetime of the session. PermissionError when the other broker refuses."""
    message = next(talk)
    while True:
        answer = await connection.ask(SaslAuthenticateRequest(auth_bytes=message), deadline_ms=deadline_ms)
        if answer.error_code:
            raise PermissionError(answer.error_message or f"error {answer.error_code}")
        try:
            message = talk.send(bytes(answer.auth_bytes))
        except StopIteration:
            lifetime_ms: int = answer.session_lifetime_ms
            return lifetime_ms


def conversation(mechanism: str, username: str, password: str) -> Conversation:
    if mechanism == "PLAIN":
        yield f"\0{username}\0{password}".encode()
        return
    scram = ScramClient(mechanism, username, password, new_nonce())
    first = yield scram.first
    scram.verify((yield scram.last(first)))


def shown(token: str) -> Conversation:
    """A token that is refused is answered by why, and the refusal follows."""
    refusal = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if refusal:
        yield b"\x01"


async def _own_token(
    config: Config, listener: str, module: LoginModule | None, threads: Executor | None, connection: ClientConnection
) -> str:
    from kafkad.security.own_token import NoToken, TokenSource

    options = module.options if module is not None else {}
    source = TokenSource(
        str(config.for_mechanism(listener, OAUTHBEARER, "sasl.oauthbearer.token.endpoint.url")),
        options.get("clientId", ""),
        options.get("clientSecret", ""),
        options.get("scope", ""),
        options.get("ssl.truststore.location"),
    )
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, source.token)
    except NoToken as error:
        raise connection.error(f"cannot be logged in at without a token: {error}") from error


async def _by_ticket(
    config: Config, listener: str, own: gssapi.Service, threads: Executor | None, connection: ClientConnection
) -> Conversation:
    """As Java does it, for the host by which the other broker is known."""
    from kafkad.security.kerberos import KerberosInitiation

    name = str(config.for_listener(listener, "sasl.kerberos.service.name") or own.principal.partition("/")[0])

    def begin() -> tuple[KerberosInitiation, bytes]:
        initiation = KerberosInitiation(own, name, connection.endpoint.host)
        return initiation, initiation.take(b"")

    try:
        initiation, first = await asyncio.get_running_loop().run_in_executor(threads, begin)
    except TicketRefused as error:
        raise connection.error(f"cannot be logged in at without a ticket: {error}") from error
    return gssapi.conversation(initiation, first)
