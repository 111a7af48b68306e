"""A broker whose listeners are encrypted, as a process: real clients, stores that change, connections that stay."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker import API_VERSIONS_V0, KafkadProcess, RawClient
from tests.certificates import DAY, Authority, client_context
from tests.oracle.kafka import free_port

pytestmark = pytest.mark.slow

AUTHORITY = Authority()


class Broker:
    """PLAINTEXT for the test itself, SSL for its clients; stores in PEM unless the test replaces them."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.keys = AUTHORITY.issue().write(directory / "keys.pem")
        self.trusted = AUTHORITY.write(directory / "ca.pem")
        self.process = KafkadProcess(directory)
        self.process.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.process.port},SSL://localhost:{self.port}",
            "ssl.keystore.location": str(self.keys),
            "ssl.truststore.location": str(self.trusted),
            **settings,
        }

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def connect(self, context: ssl.SSLContext | None = None) -> RawClient:
        client = RawClient(self.port, host="localhost")
        context = context or client_context(AUTHORITY)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return client

    def shown(self) -> int:
        """The serial number of the certificate that a new client sees."""
        with self.connect() as client:
            found: Any = client.socket.getpeercert()  # type: ignore[attr-defined]
            return int(found["serialNumber"], 16)

    def reload(self) -> None:
        seen = self.process.log.count("configuration reloaded")
        self.process.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        wait_for(lambda: self.process.log.count("configuration reloaded") > seen)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    with broker.process:
        yield broker


def test_logins_over_tls(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient

    made = Broker(
        tmp_path,
        **{
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="secret";'
            ),
            "kafkad.connection.setup.timeout.ms": "3000",
        },
    )
    made.process.settings["listeners"] = made.process.settings["listeners"].replace("SSL://", "SASL_SSL://")
    common = {
        "bootstrap.servers": made.bootstrap,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(made.trusted),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "log_level": 0,
    }
    with running(made):
        admin = AdminClient({**common, "sasl.password": "secret"})
        assert len(admin.list_topics(timeout=20).brokers) == 1
        with made.connect() as silent:
            assert silent.socket.recv(1) == b""  # nobody has logged in
        assert len(admin.list_topics(timeout=20).brokers) == 1
        with pytest.raises(Exception, match=r"timed out|uthentication|ransport"):
            AdminClient({**common, "sasl.password": "wrong"}).list_topics(timeout=3)


# -- stores that change ------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running(Broker(tmp_path, **{"http.listener": f"https://127.0.0.1:{free_port()}"})) as made:
        yield made


def metrics(broker: Broker) -> str:
    url = broker.process.settings["http.listener"].replace("127.0.0.1", "localhost") + "/metrics"
    with urllib.request.urlopen(url, context=client_context(AUTHORITY)) as answer:
        return str(answer.read().decode())


def test_a_reload_changes_what_new_clients_see_and_drops_nobody(broker: Broker) -> None:
    with broker.connect() as old:
        old.exchange(API_VERSIONS_V0)
        before = broker.shown()
        renewed = AUTHORITY.issue(until=20 * DAY)
        renewed.write(broker.keys)
        broker.reload()
        assert broker.shown() == renewed.certificate.serial_number != before
        old.exchange(API_VERSIONS_V0)
    assert "its certificate expires in 20.0 days" in broker.process.log
    text = metrics(broker)  # over the new certificate too
    left = next(
        line for line in text.splitlines() if line.startswith('kafkad_tls_certificate_expiry_seconds{listener="SSL"')
    )
    assert 19.9 < float(left.split()[1]) / 86_400 < 20.1
    assert 'kafkad_tls_handshakes_total{listener="SSL"} 3' in text


@pytest.mark.parametrize(
    "spoil, why",
    [
        (lambda keys: keys.write_text(keys.read_text()[:150]), "private key"),
        (
            lambda keys: keys.write_text(AUTHORITY.issue().key_pem() + AUTHORITY.issue().chain_pem),
            "not that of the cert",
        ),
        (lambda keys: AUTHORITY.issue(since=-9 * DAY, until=-DAY).write(keys), "expired on"),
        (lambda keys: AUTHORITY.issue(since=DAY).write(keys), "is not valid before"),
        (lambda keys: AUTHORITY.issue("somebody.else").write(keys), "set ssl.allow.dn.changes"),
        (lambda keys: AUTHORITY.issue(names=["elsewhere"]).write(keys), "set ssl.allow.san.changes"),
        (lambda keys: keys.unlink(), "No such file"),
    ],
    ids=["cut off", "half replaced", "expired", "not yet valid", "another name", "another host", "gone"],
)
def test_a_bad_new_store_leaves_the_old_one_in_use(broker: Broker, spoil: Callable[[Path], Any], why: str) -> None:
    before = broker.shown()
    spoil(broker.keys)
    broker.reload()
    assert broker.shown() == before
    assert broker.process.log.count("listener SSL keeps the TLS settings and stores it has: ") == 1
    assert why in broker.process.log
    AUTHORITY.issue().write(broker.keys)
    broker.reload()
    assert broker.shown() != before
    assert (
        broker.process.log.count("listener SSL: its TLS stores were read again; it shows the certificate of CN=") == 1
    )


@pytest.mark.parametrize("may", ["true", "false"])
def test_one_listener_may_change_its_name_and_another_may_not(tmp_path: Path, may: str) -> None:
    others = "false" if may == "true" else "true"
    changes = ("ssl.allow.dn.changes", "ssl.allow.san.changes")
    made = Broker(tmp_path, **dict.fromkeys(changes, others), **{f"listener.name.ssl.{each}": may for each in changes})
    with running(made):
        before = made.shown()
        AUTHORITY.issue("somebody.else", names=["localhost", "elsewhere"]).write(made.keys)
        made.reload()
        assert (made.shown() != before) is (may == "true")


def test_check_names_what_is_wrong_with_stores(tmp_path: Path) -> None:
    made = Broker(tmp_path)

    def check() -> tuple[int, str]:
        done = subprocess.run([*made.process.command(), "--check"], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    assert check()[0] == 0
    AUTHORITY.issue(since=-9 * DAY, until=-DAY).write(made.keys)
    code, text = check()
    assert (code, "listener SSL: " in text, "expired" in text) == (2, True, True)
    made.keys.unlink()
    code, text = check()
    assert (code, "No such file" in text) == (2, True)
    made.process.settings["ssl.principal.mapping.rules"] = "RULE:broken"
    AUTHORITY.issue().write(made.keys)
    code, text = check()
    assert (code, "Invalid rule" in text) == (2, True)


def test_a_store_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    made = Broker(tmp_path)
    made.keys.write_text("nothing")
    done = subprocess.run(made.process.command(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "neither PEM nor PKCS12 nor JKS" in done.stderr


@pytest.mark.parametrize("listener", ["Kafka", "HTTP"])
def test_a_reload_lets_nobody_in_by_a_session_of_before(broker: Broker, listener: str) -> None:
    """A session that is resumed, as TLS 1.2 can, is one whose certificate nobody looks at again."""
    http_port = int(broker.process.settings["http.listener"].rpartition(":")[2])
    port = broker.port if listener == "Kafka" else http_port
    context = client_context(AUTHORITY, maximum_version=ssl.TLSVersion.TLSv1_2)

    def resumed(session: ssl.SSLSession | None) -> tuple[bool | None, ssl.SSLSession | None]:
        plain = socket.create_connection(("localhost", port))
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as client:
            return client.session_reused, client.session

    _, session = resumed(None)
    assert resumed(session)[0]
    broker.reload()
    assert not resumed(session)[0]


def test_stores_change_by_kafkas_dynamic_settings(broker: Broker) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    admin = AdminClient({"bootstrap.servers": broker.process.bootstrap})

    def alter(path: Path) -> None:
        entry = ConfigEntry(
            "listener.name.ssl.ssl.keystore.location", str(path), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        [future] = admin.incremental_alter_configs([resource]).values()
        future.result(20)

    before = broker.shown()
    renewed = AUTHORITY.issue()
    alter(renewed.write(broker.directory / "renewed.pem"))
    wait_for(lambda: broker.shown() == renewed.certificate.serial_number != before)
    with pytest.raises(Exception, match="No such file"):
        alter(broker.directory / "none.pem")
    with pytest.raises(Exception, match=r"ssl\.allow\.dn\.changes"):
        alter(AUTHORITY.issue("another").write(broker.directory / "another.pem"))
    assert broker.shown() == renewed.certificate.serial_number
    broker.process.stop()
    broker.keys.unlink()
    broker.process.settings["listener.name.http.ssl.keystore.location"] = str(broker.directory / "renewed.pem")
    broker.process.start()
    assert broker.shown() == renewed.certificate.serial_number, "after a restart, too"


def test_passwords_that_only_the_store_has_are_enough_for_a_start(tmp_path: Path) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    users = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    passwords = {
        users: 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="secret";',
        "listener.name.sasl_ssl.ssl.keystore.password": "hush",
    }
    made = Broker(tmp_path, **{"listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN"})
    settings = made.process.settings
    settings["listeners"] = settings["listeners"].replace("SSL://", "SASL_SSL://")
    settings["password.encoder.secret"] = "of the broker"
    made.keys.write_bytes(AUTHORITY.issue().pkcs12("hush"))

    def started() -> tuple[int, str]:
        done = subprocess.run(made.process.command(), capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr

    def check() -> tuple[int, str]:
        done = subprocess.run([*made.process.command(), "--check"], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    code, text = started()
    assert (code, "PLAIN has no users" in text, made.process.log_directory().exists()) == (2, True, False)
    settings |= passwords
    with made.process as kafkad:
        entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in passwords.items()]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": kafkad.bootstrap})
        [future] = admin.incremental_alter_configs([resource]).values()
        future.result(20)
        kafkad.stop()
        for name in passwords:
            del settings[name]
        code, text = check()
        assert (code, "warning: " in text, "PLAIN has no users" in text) == (0, True, True)
        kafkad.start()
        login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": str(made.trusted)}
        bob = {"sasl.username": "bob", "sasl.password": "secret"}
        assert AdminClient({"bootstrap.servers": made.bootstrap, **login, **bob}).list_topics(timeout=20).brokers
        made.reload()
    settings["password.encoder.secret"] = "another"
    code, text = started()
    assert (code, "cannot start: " in text, "PLAIN has no users" in text) == (2, True, True)
    del settings["password.encoder.secret"]
    code, text = check()
    assert (code, "kafkad: " in text, "PLAIN has no users" in text) == (2, True, True)


def test_metrics_may_need_a_token(tmp_path: Path) -> None:
    port = free_port()
    settings = {"http.listener": f"127.0.0.1:{port}", "kafkad.http.token": "secret"}
    with KafkadProcess(tmp_path, settings):
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{url}/metrics")
        with urllib.request.urlopen(f"{url}/health") as answer:
            assert answer.status == 200
        shown = urllib.request.Request(f"{url}/metrics", headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(shown) as answer:
            assert b"kafka_server" in answer.read()
