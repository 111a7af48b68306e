"""Clients that log in by Kerberos, with tickets of a KDC that runs beside them."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kafkad.config.local_names import LocalNames
from kafkad.security.gssapi import Gssapi, SeenLogins, Service, TicketRefused
from kafkad.security.mechanism import Login, LoginFailed
from tests.broker import API_VERSIONS_V0, KafkadProcess, RawClient
from tests.kerberos import REALM, SERVICE, Kdc
from tests.kerberos import missing as missing_kerberos
from tests.oracle.kafka import VERSIONS, free_port, missing, tool

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SECONDS = 60
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
JAAS = "listener.name.sasl_plaintext.gssapi.sasl.jaas.config"
VALUE = "x" * 100_000


class Realm(NamedTuple):
    kdc: Kdc
    broker: KafkadProcess
    login: str
    """The address at which clients log in."""
    keytab: Path
    """The broker's."""
    alice: Path
    """A keytab of alice and, beside her, reports/batch."""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if reason := missing_kerberos():
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("kdc")
    with Kdc(directory) as kdc:
        keytab = kdc.keytab(SERVICE)
        login = f"localhost:{free_port()}"  # Java asks for tickets by the name of an address
        broker = KafkadProcess(tmp_path_factory.mktemp("kafkad"))
        broker.settings |= {
            "listeners": f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://{login}",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "listener.name.sasl_plaintext.sasl.kerberos.principal.to.local.rules": "RULE:[2:$1-$2],DEFAULT",
            JAAS: f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{SERVICE}";',
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:alice;User:reports-batch;User:ANONYMOUS",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        broker.wrapper = ["env", f"KRB5_CONFIG={kdc.config}"]
        with broker:
            yield Realm(kdc, broker, login, keytab, kdc.keytab("alice", "reports/batch", "mallory"))


@pytest.fixture
def as_user(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def become(user: str) -> None:
        monkeypatch.setenv("KRB5_CONFIG", str(realm.kdc.config))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.kdc.ticket(user, realm.alice)}")

    return become


def kcat(realm: Realm, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    settings = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.kinit.cmd": "true",
        "message.timeout.ms": "10000",
    }
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    command = ["kcat", "-q", "-b", realm.login, *options, *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS, env=os.environ)


@pytest.mark.parametrize("user", ["alice", "reports/batch"])
def test_kcat(realm: Realm, as_user: Callable[[str], None], user: str) -> None:
    as_user(user)
    topic = f"kcat-{user.replace('/', '-')}"
    produced = kcat(realm, "-P", "-t", topic, text=f"{VALUE}\n")
    assert produced.returncode == 0, produced.stderr
    assert kcat(realm, "-C", "-t", topic, "-e").stdout == f"{VALUE}\n"


def test_who_has_a_ticket_has_no_rights_by_it(realm: Realm, as_user: Callable[[str], None]) -> None:
    as_user("mallory")
    assert kcat(realm, "-P", "-t", "kcat-mallory", text="x\n").returncode != 0
    assert "Principal = User:mallory is Denied Operation = Describe" in realm.broker.log


def test_who_has_no_ticket(realm: Realm, as_user: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    as_user("alice")
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere")
    assert kcat(realm, "-L", "-m", "3").returncode != 0


def test_new_keys_in_the_keytab_hold_at_once(realm: Realm, as_user: Callable[[str], None]) -> None:
    realm.kdc.new_keys(realm.keytab, SERVICE)
    as_user("alice")  # the ticket for the old key is gone
    done = kcat(realm, "-P", "-t", "kcat-new-keys", text="x\n")
    assert done.returncode == 0, done.stderr


def test_a_keytab_that_cannot_be_used_is_named(realm: Realm, as_user: Callable[[str], None]) -> None:
    as_user("alice")
    checked = subprocess.run([*realm.broker.command(), "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    other = realm.keytab.with_suffix(".away")
    realm.keytab.rename(other)
    try:
        checked = subprocess.run([*realm.broker.command(), "--check"], capture_output=True, text=True)
        assert checked.returncode == 2
        assert f"listener SASL_PLAINTEXT: keytab {realm.keytab}: Key table file" in checked.stderr
        assert kcat(realm, "-L", "-m", "3").returncode != 0
        assert f"cannot log in at SASL_PLAINTEXT: keytab {realm.keytab}: Key table file" in realm.broker.log
        again = KafkadProcess(realm.keytab.parent / "again")
        again.settings = realm.broker.settings | {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "log.dirs": str(realm.keytab.parent / "again" / "data"),
        }
        refused = subprocess.run(again.command(), capture_output=True, text=True, timeout=SECONDS)
        assert refused.returncode == 1
        assert f"cannot start: listener SASL_PLAINTEXT: keytab {realm.keytab}" in refused.stderr
    finally:
        other.rename(realm.keytab)


def test_a_client_without_a_handshake(realm: Realm, as_user: Callable[[str], None]) -> None:
    """As those of Kafka 0.9, and franz-go until 1.21."""
    as_user("alice")
    import gssapi

    name = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
    context = gssapi.SecurityContext(name=name, usage="initiate", mech=gssapi.MechType.kerberos)
    with RawClient(int(realm.login.rpartition(":")[2])) as client:
        answer = client.exchange(context.step() or b"")
        offer = client.exchange(context.step(answer) or b"")
        assert context.complete
        assert context.unwrap(offer).message == b"\x01\0\0\0"
        client.send_frame(context.wrap(b"\x01\0\0\0", encrypt=False).message)  # Kafka answers nothing to it, either
        assert client.exchange(API_VERSIONS_V0)[:6] == b"\0\0\0\x07\0\0"


def test_another_s_ticket_again_is_no_login(realm: Realm, as_user: Callable[[str], None]) -> None:
    """Who has seen it on the way does not have the key inside it."""
    as_user("alice")
    import gssapi

    from kafkad.security.kerberos import KerberosAcceptance

    name = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
    ticket = gssapi.SecurityContext(name=name, usage="initiate", mech=gssapi.MechType.kerberos).step()
    assert ticket is not None
    names = LocalNames.of(["DEFAULT"], REALM)
    seen = SeenLogins(lambda: 0.0)
    for _ in range(2):
        talk = Gssapi(lambda: KerberosAcceptance(Service(SERVICE, str(realm.keytab), names)), names, seen)
        assert talk.respond(ticket)
        assert talk.respond(b"")
        with pytest.raises(LoginFailed) as refused:
            talk.respond(b"\x01\0\0\0")
        assert "its last message" in refused.value.reason


@pytest.mark.parametrize("mutual", [False, True])
def test_another_s_whole_login_again_is_none(realm: Realm, as_user: Callable[[str], None], mutual: bool) -> None:
    """Java's clients want no proof of the broker, so that nothing of the broker's is in what they answer."""
    as_user("alice")
    reasons = refused_again(realm.keytab, mutual=mutual)
    assert all(("its last message" if mutual else "a login before") in reason for reason in reasons)


@pytest.mark.parametrize("mutual", [False, True])
def test_nor_is_it_where_keys_are_of_rc4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mutual: bool) -> None:
    """The broker's proof adds nothing to these."""
    if reason := missing_kerberos():
        pytest.skip(reason)
    with Kdc(tmp_path, "arcfour-hmac") as kdc:
        keytab, alice = kdc.keytab(SERVICE), kdc.keytab("alice")
        monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.ticket('alice', alice)}")
        reasons = refused_again(keytab, mutual=mutual)
    assert all("a login before" in reason for reason in reasons)


def refused_again(keytab: Path, *, mutual: bool) -> list[str]:
    """Why the messages of two logins of alice are none again."""
    import gssapi
    from gssapi import RequirementFlag as Flag

    from kafkad.security.kerberos import KerberosAcceptance

    name = gssapi.Name(SERVICE, gssapi.NameType.kerberos_principal)
    names = LocalNames.of(["DEFAULT"], REALM)
    flags = {Flag.integrity, Flag.mutual_authentication} if mutual else {Flag.integrity}
    seen = SeenLogins(lambda: 0.0)
    reasons = []

    def begin() -> Gssapi:
        return Gssapi(lambda: KerberosAcceptance(Service(SERVICE, str(keytab), names)), names, seen)

    for _ in range(2):
        client = gssapi.SecurityContext(name=name, usage="initiate", mech=gssapi.MechType.kerberos, flags=sum(flags))
        ticket = client.step()
        assert ticket is not None
        talk = begin()
        messages = [ticket]
        offer = talk.respond(ticket)
        if mutual:
            assert client.step(offer) is None
            messages.append(b"")
            offer = talk.respond(b"")
        assert isinstance(offer, bytes)
        assert client.unwrap(offer).message == b"\x01\0\0\0"
        messages.append(client.wrap(b"\x01\0\0\0", False).message)
        recorded = [bytes(bytearray(message)) for message in messages]  # the library writes into what it unwraps
        assert talk.respond(messages[-1]) == Login("alice", last=None), "each of her own"
        again = begin()
        for message in recorded[:-1]:
            again.respond(message)
        with pytest.raises(LoginFailed) as refused:
            again.respond(recorded[-1])
        reasons.append(refused.value.reason)
    return reasons


def kctl(realm: Realm, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", **settings}
    flags = [word for name, value in names.items() for word in ("-X", f"{name.replace('_', '.')}={value}")]
    command = [sys.executable, "-m", "kctl", "-b", realm.login, *flags, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def test_kctl(realm: Realm, as_user: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ticket of kinit's, and without one by a keytab."""
    as_user("alice")
    made = kctl(realm, "topics", "create", "kctl")
    assert made.returncode == 0, made.stderr
    assert "topic kctl created with" in realm.broker.log
    assert "by User:alice from" in realm.broker.log
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere")
    line = f'{MODULE} required useKeyTab=true keyTab="{realm.alice}" principal="reports/batch@{REALM}";'
    delete = ("topics", "delete", "kctl", "-y", "--undo-dir", str(tmp_path))
    deleted = kctl(realm, *delete, sasl_jaas_config=line)
    assert deleted.returncode == 0, deleted.stderr
    assert "by User:reports-batch from" in realm.broker.log


def test_kctl_is_told_where_its_ticket_is_missing(
    realm: Realm, as_user: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_user("alice")
    other = kctl(realm, "topics", "list", sasl_kerberos_service_name="queue")
    assert other.returncode != 0
    assert "no ticket of anybody for queue on localhost: Server queue/localhost@" in other.stderr
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere")
    none = kctl(realm, "topics", "list")
    assert none.returncode != 0
    assert "no ticket of anybody for kafka on localhost: No" in none.stderr
    assert "klist shows tickets" in none.stderr
    keytab = {"sasl_kerberos_keytab": str(realm.alice), "sasl_kerberos_principal": f"nobody@{REALM}"}
    nobody = kctl(realm, "topics", "list", **keytab)
    assert nobody.returncode != 0
    assert f"is the keytab {realm.alice} that of nobody@{REALM}?" in nobody.stderr


def python(realm: Realm) -> dict[str, Any]:
    return {
        "bootstrap_servers": realm.login,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
    }


def test_kafka_python(realm: Realm, as_user: Callable[[str], None]) -> None:
    as_user("alice")
    producer = kafka.KafkaProducer(**python(realm))
    producer.send("kafka-python", VALUE.encode()).get(SECONDS)
    producer.close()
    partition = kafka.TopicPartition("kafka-python", 0)
    consumer = kafka.KafkaConsumer(**python(realm), auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([partition])
    [record] = consumer.poll(SECONDS * 1000)[partition]
    assert record.value == VALUE.encode()
    consumer.close()


def test_aiokafka(realm: Realm, as_user: Callable[[str], None]) -> None:
    as_user("alice")

    async def main() -> None:
        async with AIOKafkaProducer(**python(realm)) as producer:
            await producer.send_and_wait("aiokafka", VALUE.encode(), partition=0)
        settings = python(realm) | {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with AIOKafkaConsumer(**settings) as consumer:
            consumer.assign([TopicPartition("aiokafka", 0)])
            record = await asyncio.wait_for(consumer.getone(), SECONDS)
            assert record.value == VALUE.encode()

    asyncio.run(main())


@pytest.mark.java
@pytest.mark.parametrize("release", VERSIONS)
def test_java(realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    if reason := missing(release):
        pytest.skip(reason)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={realm.kdc.config}")
    properties = tmp_path / "client.properties"
    lines = [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanism=GSSAPI",
        "sasl.kerberos.service.name=kafka",
        f'sasl.jaas.config={MODULE} required useKeyTab=true keyTab="{realm.alice}" principal="alice@{REALM}";',
    ]
    properties.write_text("\n".join(lines))
    topic, at = f"java-{release}", ("--bootstrap-server", realm.login)
    send = tool(release, "console-producer", *at, "--topic", topic, "--producer.config", str(properties))
    sent = subprocess.run(send, input="one\ntwo\n", capture_output=True, text=True, timeout=SECONDS * 2)
    assert sent.returncode == 0, sent.stderr
    read = tool(
        *(release, "console-consumer", *at, "--topic", topic, "--consumer.config", str(properties)),
        *("--from-beginning", "--max-messages", "2", "--timeout-ms", str(SECONDS * 1000)),
    )
    received = subprocess.run(read, capture_output=True, text=True, timeout=SECONDS * 2)
    assert received.stdout.endswith("one\ntwo\n"), received.stderr


@pytest.mark.parametrize("kind", ["", "FILE:"])
def test_a_keytab_that_is_a_pipe_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    if reason := missing_kerberos():
        pytest.skip(reason)
    from kafkad.security.kerberos import KerberosAcceptance, KerberosInitiation

    os.mkfifo(tmp_path / "pipe")
    service = Service("kafka/host@EXAMPLE.ORG", f"{kind}{tmp_path}/pipe", LocalNames.of(["DEFAULT"], "EXAMPLE.ORG"))
    for begin in (lambda: KerberosAcceptance(service), lambda: KerberosInitiation(service, "kafka", "host")):
        with pytest.raises(TicketRefused, match="is no regular file"):
            begin()
