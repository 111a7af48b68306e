"""A ZooKeeper that asks for logins and certificates, and the ACLs of the nodes that a broker makes there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from kafkad.broker.loop_timers import LoopTimers
from kafkad.clock import SystemClock
from kafkad.meta.digest_login import DigestError, DigestLogin, ZooKeeperLogin
from kafkad.meta.kazoo_session import ZooKeeperSettings
from kafkad.meta.store import ConnectionLoss, Create
from kafkad.meta.zookeeper import ZooKeeperStore
from tests.broker import KafkadProcess
from tests.certificates import Authority
from tests.oracle.kafka import free_port
from tests.oracle.zookeeper import ZooKeeper, missing

LOGIN = ZooKeeperLogin("kafka", 'a "pass", \\word')


def test_a_login_as_in_the_rfc() -> None:
    """Its example (RFC 2831, section 4), but for the URI, with the values worked out by hand."""
    exchange = DigestLogin(ZooKeeperLogin("chris", "secret"), "OA6MHXh6VqTrRk")
    challenge = b'realm="elwood",nonce="OA6MG9tEQGm2hh",qop="auth,auth-int",algorithm=md5-sess,charset=utf-8'
    answer = exchange.respond(challenge)
    assert answer is not None
    assert b'username="chris",realm="elwood",nonce="OA6MG9tEQGm2hh",nc=00000001,cnonce="OA6MHXh6VqTrRk"' in answer
    assert len(answer.partition(b"response=")[2].partition(b",")[0]) == 32
    with pytest.raises(DigestError, match="does not know the password"):
        exchange.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")
    with pytest.raises(DigestError, match="in a way that is not known"):
        exchange.respond(b'nonce="x",qop="auth-conf"')


def test_a_login_does_not_show_its_password() -> None:
    assert LOGIN.password not in repr(LOGIN)


class Place(NamedTuple):
    """A server for logins at `plain`, and for certificates at `secure`."""

    plain: str
    secure: str
    directory: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    reason = missing("3.8")
    if reason:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("zookeeper")
    authority = Authority()
    authority.write(directory / "ca.pem")
    (directory / "other-ca.pem").write_text(Authority("Other").pem)
    for name in ("server", "broker"):
        authority.issue(name).write(directory / f"{name}.pem")
    password = LOGIN.password.replace("\\", "\\\\").replace('"', '\\"')
    (directory / "jaas.conf").write_text(
        "Server { org.apache.zookeeper.server.auth.DigestLoginModule required "
        f'user_{LOGIN.username}="{password}"; }};\n'
    )
    server = ZooKeeper("3.8")
    secure = free_port()
    server.options = [f"-Djava.security.auth.login.config={directory}/jaas.conf"]
    server.settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(secure),
        "secureClientPortAddress": "127.0.0.1",
        "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "ssl.keyStore.location": f"{directory}/server.pem",
        "ssl.trustStore.location": f"{directory}/ca.pem",
    }
    with server:
        yield Place(server.connect, f"localhost:{secure}", directory)


def context(place: Place, *, trusted: str = "ca.pem", shown: str | None = "broker.pem") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=place.directory / trusted)
    if shown is not None:
        made.load_cert_chain(place.directory / shown)
    return made


def settings(servers: str, root: str = "/nobody", **others: object) -> ZooKeeperSettings:
    return ZooKeeperSettings(servers, root, 6_000, 10, **others)  # type: ignore[arg-type]


def on_a_store(found: ZooKeeperSettings, test: Callable[[ZooKeeperStore], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = SystemClock()
        timers = LoopTimers(asyncio.get_running_loop(), clock).timers
        store = await ZooKeeperStore.connect(found, 5_000, clock, timers)
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(run())


async def acls(store: ZooKeeperStore, root: str) -> dict[str, set[tuple[str, str, int]]]:
    """As the broker itself may see them."""

    def read() -> dict[str, set[tuple[str, str, int]]]:
        lists = {path: store._session.client.get_acls(root + path)[0] for path in PATHS}
        return {path: {(acl.id.scheme, acl.id.id, acl.perms) for acl in found} for path, found in lists.items()}

    return await asyncio.get_running_loop().run_in_executor(None, read)


ALL, READ = 31, 1
PATHS = (
    "/config",
    "/config/users",
    "/config/users/alice",
    "/delegation_token",
    "/delegation_token/tokens",
    "/kafkad",
    "/kafkad/login_secret",
    "/consumers",
)


async def make(store: ZooKeeperStore) -> None:
    await store.multi([Create(path, b"x" * 200_000 if path == "/config/users/alice" else b"") for path in PATHS])
    await store.create("/brokers", ephemeral=True)


def protected(scheme: str, who: str) -> dict[str, set[tuple[str, str, int]]]:
    mine, everybodys = (scheme, who, ALL), ("world", "anyone", READ)
    return {
        "/config": {mine, everybodys},
        "/config/users": {mine},
        "/config/users/alice": {mine},
        "/delegation_token": {mine, everybodys},
        "/delegation_token/tokens": {mine},
        "/kafkad": {mine, everybodys},
        "/kafkad/login_secret": {mine},
        "/consumers": {("world", "anyone", ALL)},
    }


@pytest.mark.slow
@pytest.mark.java
def test_a_login_and_the_acls_of_what_it_makes(place: Place) -> None:
    async def test(store: ZooKeeperStore) -> None:
        await make(store)
        assert len((await store.get("/config/users/alice"))[0]) == 200_000
        loop = asyncio.get_running_loop()
        assert await acls(store, "/by-login") == protected("sasl", LOGIN.username)
        client = KazooClient(place.plain)
        await loop.run_in_executor(None, client.start)
        with pytest.raises(NoAuthError):
            await loop.run_in_executor(None, client.get, "/by-login/config/users/alice")
        with pytest.raises(NoAuthError):
            await loop.run_in_executor(None, client.set, "/by-login/config", b"mine")
        await loop.run_in_executor(None, client.stop)
        client.close()

    on_a_store(settings(place.plain, "/by-login", login=LOGIN, protects=True), test)


@pytest.mark.slow
@pytest.mark.java
def test_a_wrong_password_says_so(place: Place) -> None:
    async def never(store: ZooKeeperStore) -> None:
        raise AssertionError

    with pytest.raises(ConnectionLoss, match=r"refuses the login of kafka") as caught:
        on_a_store(settings(place.plain, login=ZooKeeperLogin("kafka", "guessed")), never)
    assert "guessed" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.java
def test_a_certificate_and_the_acls_of_what_it_makes(place: Place) -> None:
    async def test(store: ZooKeeperStore) -> None:
        await make(store)
        assert len((await store.get("/config/users/alice"))[0]) == 200_000
        found = await acls(store, "/by-certificate")
        assert found == protected("x509", "CN=broker")

    on_a_store(settings(place.secure, "/by-certificate", tls=lambda: context(place), protects=True), test)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize(("trusted", "shown"), [("other-ca.pem", "broker.pem"), ("ca.pem", None)])
def test_certificates_that_are_refused(place: Place, trusted: str, shown: str | None) -> None:
    async def never(store: ZooKeeperStore) -> None:
        raise AssertionError

    with pytest.raises(ConnectionLoss, match="ZooKeeper does not answer"):
        on_a_store(settings(place.secure, tls=lambda: context(place, trusted=trusted, shown=shown)), never)


@pytest.mark.slow
@pytest.mark.java
def test_without_protection_nodes_are_everybodys(place: Place) -> None:
    async def test(store: ZooKeeperStore) -> None:
        await make(store)
        found = await acls(store, "/open")
        assert set().union(*found.values()) == {("world", "anyone", ALL)}

    on_a_store(settings(place.plain, "/open"), test)


@pytest.mark.slow
@pytest.mark.java
def test_a_broker_by_its_settings(place: Place, tmp_path: Path) -> None:
    """By certificate and login at the same time; what it makes for passwords is nobody else's to see."""
    password = LOGIN.password.replace("\\", "\\\\").replace('"', '\\"')
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    settings = {
        "zookeeper.connect": f"{place.secure}/broker",
        "zookeeper.set.acl": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": f"{place.directory}/broker.pem",
        "zookeeper.ssl.truststore.location": f"{place.directory}/ca.pem",
        "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS",
        "kafkad.zookeeper.sasl.jaas.config": f'{module} required username="{LOGIN.username}" password="{password}";',
        "delegation.token.secret.key": "lab-master-key",
    }

    async def test(store: ZooKeeperStore) -> None:
        for path, is_open in (("/brokers/ids/1", True), ("/config/users", False), ("/delegation_token/tokens", False)):
            found = await asyncio.get_running_loop().run_in_executor(
                None, store._session.client.get_acls, f"/broker{path}"
            )
            whose = {(acl.id.scheme, acl.id.id, acl.perms) for acl in found[0]}
            mine = {("x509", "CN=broker", ALL), ("sasl", LOGIN.username, ALL)}
            assert whose == (mine | {("world", "anyone", READ)} if is_open else mine)

    with KafkadProcess(tmp_path, settings) as broker:
        assert LOGIN.password not in broker.log
        on_a_store(ZooKeeperSettings(place.plain, "/broker", 6_000, 10, login=LOGIN), test)
