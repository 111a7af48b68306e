"""A listener with logins and clients that talk to it, on an event loop of their own."""

from __future__ import annotations

import asyncio
import ssl
import struct
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

from kafkad.api.logins import Logins
from kafkad.api.peer import Peer
from kafkad.api.prepared import Grounds
from kafkad.api.routes import BETWEEN_BROKERS, ROUTES
from kafkad.broker.issuers import Issuers
from kafkad.clock import SystemClock
from kafkad.config import Config, load
from kafkad.metrics import Family
from kafkad.net.connection import Answer, Connection
from kafkad.net.server import Limits, Server
from kafkad.net.tls import ServerTls, TlsLayer
from kafkad.security.authorizer import ALLOW_ALL
from kafkad.security.gssapi import SeenLogins
from kafkad.security.offer import ScramUsers, offer
from kafkad.security.scram import ScramAccount, ScramClient, ScramCredential
from kafkad.wire.frames import RequestHeader, encode_request, read_response_header
from kafkad.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafkad.wire.messages.sasl_handshake import SaslHandshakeRequest
from kafkad.wire.schema import decode
from tests.certificates import Authority, client_context, server_context
from tests.net.serving import serving

JAAS = "listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required"
DELAY_MS = 60
_HOUR_MS = 3_600_000
VERSIONS = b"\0\x12\0\0\0\0\0\x01\xff\xff"
METADATA = b"\0\x03\0\0\0\0\0\x02\xff\xff\0\0\0\0"


class Router:
    """Says the API key of each frame that reaches it, after the correlation id."""

    def __init__(self, logins: Logins) -> None:
        self.logins = logins
        self.served: list[int] = []
        self.connections: list[Connection] = []

    def peer(self, connection: Connection) -> Peer:
        self.logins.welcome(connection, self)
        self.connections.append(connection)
        return Peer("SASL", connection.host, ALLOW_ALL, Grounds(), must_authenticate=True)

    def __call__(self, connection: Connection, view: memoryview, at: int, end: int) -> Answer:
        key, version = struct.unpack_from(">hh", view, at)
        self.served.append(key)
        return sized(bytes(view[at + 4 : at + 8]) + struct.pack(">h", 35 if key == 18 and version > 4 else 0))


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(map(sized, frames)))

    async def frame(self) -> bytes:
        return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return await self.frame()

    async def closed(self) -> bool:
        """Once nothing more comes."""
        return await asyncio.wait_for(self.reader.read(), 10) == b""

    async def log_in(self, user: str = "carol", password: str = "pw") -> SaslAuthenticateResponse:
        return authenticated((await self._handshaken()).send_token(user, password) or await self.frame())

    async def log_in_by_token(self, token_id: str) -> SaslAuthenticateResponse:
        await self.ask(handshake("SCRAM-SHA-256"))
        exchange = ScramClient("SCRAM-SHA-256", token_id, "secret", "abc")
        exchange._bare += ",tokenauth=true"
        answer = authenticated(await self.ask(token(exchange.first)))
        return authenticated(await self.ask(token(exchange.last(answer.auth_bytes))))

    async def _handshaken(self) -> Client:
        await self.ask(handshake())
        return self

    def send_token(self, user: str, password: str) -> None:
        self.send(token(f"\0{user}\0{password}".encode()))


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return bytes(encode_request(RequestHeader(17, version, 7, "c"), SaslHandshakeRequest(mechanism=mechanism)))[4:]


def token(data: bytes) -> bytes:
    return bytes(encode_request(RequestHeader(36, 2, 7, "c"), SaslAuthenticateRequest(auth_bytes=data)))[4:]


def authenticated(frame: bytes) -> SaslAuthenticateResponse:
    _, at = read_response_header(36, 2, frame)
    return decode(SaslAuthenticateResponse, 2, frame[at:])


def first_frames() -> Iterator[bytes]:
    """Of each API, in every version that is served and some that are not, with random bytes behind the header; and of
    APIs that are not there."""
    random = Random(7)
    last = dict.fromkeys((*range(-1, 95), 32_767), 0) | {each.key: each.last for each in (*ROUTES, *BETWEEN_BROKERS)}
    for key, highest in last.items():
        for version in range(-1, highest + 2):
            yield struct.pack(">hhi", key, version, 1) + random.randbytes(random.randrange(60))


class JumpingClock(SystemClock):
    hours_off = 0
    """Of the wall clock."""
    passed_ms = 0
    """More than has."""

    def now_ms(self) -> int:
        return super().now_ms() + self.hours_off * _HOUR_MS

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.passed_ms


class House:
    """A listener at which peers log in."""

    def __init__(
        self, server: Server, *settings: str, encrypted: tuple[ServerTls, ssl.SSLContext] | None = None
    ) -> None:
        """`encrypted`: with what the listener has TLS, and clients trust it."""
        self.settings = settings
        self.config = config(*settings)
        self.tokens: dict[str, ScramAccount] = {}
        """Delegation tokens, by their ids."""
        self.users = ScramUsers(lambda mechanism, token_id: self.tokens.get(token_id))
        self.clock = JumpingClock()
        self.server = server
        self.issuers = Issuers(ThreadPoolExecutor(1), server.clock, server.timers)
        self.seen = SeenLogins(self.clock.monotonic_ms)
        self.logins = Logins(
            ["SASL"],
            lambda listener: offer(
                self.config, listener, b"secret", self.users, self.plain_users, self.issuers.verify_at, self.seen
            ),
            self.users,
            server.connections,
            self.clock,
        )
        self.router = Router(self.logins)
        tls, self._trusting = encrypted or (None, None)
        self.listener = server.listen("SASL", "127.0.0.1", 0, tls=tls, login=True)
        self.clients: list[Client] = []
        server.start(self.router)

    def plain_users(self) -> Mapping[str, str]:
        return self.logins.offers["SASL"].plain_users

    def keep_token(self, token_id: str, hours: int) -> None:
        """Of carol's."""
        credential = ScramCredential.of_password("sha256", "secret", b"salt", 4096)
        self.tokens[token_id] = ScramAccount(credential, "carol", self.clock.now_ms() + hours * _HOUR_MS)

    async def connect(self) -> Client:
        name = None if self._trusting is None else "localhost"
        port = self.listener.port
        opened = await asyncio.open_connection("127.0.0.1", port, ssl=self._trusting, server_hostname=name)
        client = Client(*opened)
        self.clients.append(client)
        return client

    def counted(self, name: str) -> float:
        families = {family.name: family for family in self.logins.collect() if isinstance(family, Family)}
        return sum(value for _, value in families[f"kafka_server_socketservermetrics_{name}"].samples)


def config(*settings: str) -> Config:
    return load(
        None,
        [
            "listeners=SASL://127.0.0.1:0",
            "listener.security.protocol.map=SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name=SASL",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            f"connection.failed.authentication.delay.ms={DELAY_MS}",
            f'{JAAS} user_carol="pw" user_bob="pw2";',
            *settings,
        ],
        {},
    )


def at_home(
    scenario: Callable[[House], Awaitable[None]],
    *settings: str,
    limits: Limits | None = None,
    encrypted: bool = False,
) -> None:
    async def main() -> None:
        server = serving(limits)
        house = House(server, *settings, encrypted=_encrypted(server) if encrypted else None)
        try:
            await asyncio.wait_for(scenario(house), 60)
        finally:
            server.close()
            for client in house.clients:
                client.writer.close()

    asyncio.run(main())


def _encrypted(server: Server) -> tuple[ServerTls, ssl.SSLContext]:
    authority = Authority()
    with tempfile.TemporaryDirectory() as directory:
        context = server_context(authority.issue(), Path(directory), num_tickets=0)
    tls = ServerTls(TlsLayer(server.loop.call_soon), context, lambda der: "nobody")
    return tls, client_context(authority)
