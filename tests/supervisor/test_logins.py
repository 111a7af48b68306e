"""Three brokers that log in at each other."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import pbkdf2_hmac
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.certificates import Authority
from tests.kerberos import SERVICE, Kdc
from tests.kerberos import missing as missing_kerberos
from tests.security.issuers import CLIENT, SECRET, Issuer
from tests.supervisor.host import Host, eventually, free_ports

pytestmark = pytest.mark.slow

SECONDS = 30
KAFKAS = "org.apache.kafka.common.security"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"


class SaslHost(Host):
    def __init__(
        self, directory: Path, mechanism: str, jaas: str, settings: Mapping[str, str], protocol: str = "SASL_PLAINTEXT"
    ) -> None:
        name = f"listener.name.brokers.{mechanism.lower()}.sasl.jaas.config"
        super().__init__(
            directory,
            3,
            {
                "listener.security.protocol.map": f"CLIENTS:PLAINTEXT,BROKERS:{protocol}",
                "inter.broker.listener.name": "BROKERS",
                "sasl.enabled.mechanisms": mechanism,
                "sasl.mechanism.inter.broker.protocol": mechanism,
                name: jaas,
                **settings,
            },
        )
        between = free_ports(3)
        self.settings["listeners"] = f"CLIENTS://127.0.0.1:{self.port},BROKERS://127.0.0.1:{between}"


def produce_and_consume(host: Host, topic: str) -> None:
    """All three have what is acknowledged."""
    admin = AdminClient({"bootstrap.servers": host.bootstrap})
    made = admin.create_topics([NewTopic(topic, 6, 3, config={"min.insync.replicas": "3"})])
    made[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": host.bootstrap, "acks": "all"})
    for number in range(60):
        producer.produce(topic, str(number), partition=number % 6)
    assert producer.flush(SECONDS) == 0
    settings = {"bootstrap.servers": host.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    seen: set[bytes] = set()
    end = time.monotonic() + SECONDS
    while len(seen) < 60 and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.add(message.value() or b"")
    consumer.close()
    assert len(seen) == 60


def test_by_plain(tmp_path: Path) -> None:
    """Sessions between them end every 2 s, and new connections take their place."""
    jaas = f'{KAFKAS}.plain.PlainLoginModule required username="broker" password="pw" user_broker="pw";'
    with SaslHost(tmp_path, "PLAIN", jaas, {"connections.max.reauth.ms": "2000"}) as host:
        produce_and_consume(host, "before")
        time.sleep(2.5)
        produce_and_consume(host, "after")
        assert "cannot log in" not in host.log
        metrics = host.http("/metrics")[1]
        assert "successful_authentication_total" in metrics
        assert "ended, and it did not authenticate again" not in host.log


def test_by_scram_with_a_password_that_is_set_when_they_are_there(tmp_path: Path) -> None:
    """Until it is, each refuses the others; none has to be started again."""
    jaas = f'{KAFKAS}.scram.ScramLoginModule required username="broker" password="pw";'
    host = SaslHost(tmp_path, "SCRAM-SHA-512", jaas, {})
    try:
        host.start(wait=False)
        set_password(host)
        host.wait_ready()
        produce_and_consume(host, "scram")
    finally:
        if host.alive():
            host.stop()


def test_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    jaas = f'{KAFKAS}.plain.PlainLoginModule required username="broker" password="pw" user_broker="pw";'
    stores = {
        "ssl.keystore.location": str(authority.issue().write(tmp_path / "broker.pem")),
        "ssl.truststore.location": str(authority.write(tmp_path / "ca.pem")),
    }
    with SaslHost(tmp_path, "PLAIN", jaas, stores, "SASL_SSL") as host:
        produce_and_consume(host, "encrypted")
        assert "cannot log in" not in host.log


def tokens_of(issuer: Issuer, listener: str) -> dict[str, str]:
    """Those of this issuer log in at a listener."""
    own = f"listener.name.{listener}"
    return {
        f"{own}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{own}.oauthbearer.sasl.jaas.config": (
            f'{KAFKAS}.oauthbearer.OAuthBearerLoginModule required ssl.truststore.location="{issuer.ca}" '
            f'clientId="{CLIENT}" clientSecret="{SECRET}";'
        ),
        f"{own}.sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        f"{own}.sasl.oauthbearer.expected.issuer": issuer.name,
    }


def names_of_brokers(port: int, token: str, seconds: float = 10) -> list[int]:
    """What a client with this token is told at a listener."""
    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 600),
            "log_level": 0,
        }
    )
    return sorted(admin.list_topics(timeout=seconds).brokers)


def test_by_tokens_of_an_issuer_while_clients_have_another(tmp_path: Path) -> None:
    """Tokens of brokers live for 3 s, and each is replaced in time."""
    with (
        Issuer(tmp_path, key=1, name="of-brokers", lifetime_s=3) as of_brokers,
        Issuer(tmp_path, key=2, name="of-people") as of_people,
    ):
        settings = {
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,PEOPLE:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
            "sasl.oauthbearer.token.endpoint.url": of_brokers.url,
            "connection.failed.authentication.delay.ms": "0",
            **tokens_of(of_people, "people"),
        }
        host = SaslHost(tmp_path, "OAUTHBEARER", "", settings)
        host.settings |= tokens_of(of_brokers, "brokers")
        people = free_ports(3)
        host.settings["listeners"] += f",PEOPLE://127.0.0.1:{people}"
        between = int(host.settings["listeners"].partition("BROKERS://127.0.0.1:")[2].partition(",")[0])
        with host:
            produce_and_consume(host, "before")
            given = of_brokers.given
            time.sleep(3.5)
            produce_and_consume(host, "after")
            assert of_brokers.given > given
            assert "ended, and it did not authenticate again" not in host.log
            for broker in range(3):
                assert names_of_brokers(people + broker, of_people.token("alice")) == [0, 1, 2]
                assert names_of_brokers(between + broker, of_brokers.token("alice")) == [0, 1, 2]
            with pytest.raises(KafkaException):
                names_of_brokers(people, of_brokers.token("alice"), 1)
            with pytest.raises(KafkaException):
                names_of_brokers(between, of_people.token("alice"), 1)


def test_by_tokens_of_a_file(tmp_path: Path) -> None:
    """That is there a while after they are: none has to be started again."""
    with Issuer(tmp_path) as issuer:
        file = tmp_path / "token"
        host = SaslHost(tmp_path, "OAUTHBEARER", "", {"sasl.oauthbearer.token.endpoint.url": file.as_uri()})
        host.settings |= tokens_of(issuer, "brokers")
        try:
            host.start(wait=False)
            eventually(lambda: "without a token" in host.log, "that there is none")
            file.write_text(issuer.token("broker", 600))
            host.wait_ready()
            produce_and_consume(host, "tokens")
        finally:
            if host.alive():
                host.stop()


def set_password(host: Host) -> None:
    """Over the listener of clients, at a broker that may not have heard of the others yet."""
    salted = pbkdf2_hmac("sha512", b"pw", b"salt", 8192)
    upsertion = {"name": "broker", "mechanism": 2, "iterations": 8192, "salt": b"salt", "salted_password": salted}
    end = time.monotonic() + SECONDS
    while True:
        try:
            asker = host.asker(0)
            answer = asker.ask("AlterUserScramCredentials", 0, {"deletions": [], "upsertions": [upsertion]})
            asker.client.close()
        except OSError:
            assert time.monotonic() < end, host.log
            time.sleep(0.1)
        else:
            assert [result.error_code for result in answer.results] == [0]
            return


def host_with_keytab(kdc: Kdc, directory: Path, settings: Mapping[str, str]) -> SaslHost:
    """Brokers that log in at each other by Kerberos, under the name that the keytab has."""
    keytab = kdc.keytab(SERVICE)
    jaas = f'{KRB5} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{SERVICE}";'
    host = SaslHost(directory, "GSSAPI", jaas, settings)
    host.settings["listeners"] = host.settings["listeners"].replace("BROKERS://127.0.0.1", "BROKERS://localhost")
    host.wrapper = ["env", f"KRB5_CONFIG={kdc.config}"]
    return host


@pytest.mark.long
def test_by_tickets_of_kerberos(tmp_path: Path) -> None:
    """Sessions between them end every 4 s. Without the KDC they go on with the tickets that they have."""
    if reason := missing_kerberos():
        pytest.skip(reason)
    (tmp_path / "kdc").mkdir()
    with Kdc(tmp_path / "kdc") as kdc:
        rights = {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:kafka;User:ANONYMOUS",
            "connections.max.reauth.ms": "4000",
        }
        with host_with_keytab(kdc, tmp_path / "host", rights) as host:
            produce_and_consume(host, "before")
            kdc.stop()
            time.sleep(4.5)
            produce_and_consume(host, "after")
            assert "cannot log in" not in host.log
            assert "ended, and it did not authenticate again" not in host.log


@pytest.mark.long
def test_without_a_ticket_it_is_said_why(tmp_path: Path) -> None:
    if reason := missing_kerberos():
        pytest.skip(reason)
    (tmp_path / "kdc").mkdir()
    with Kdc(tmp_path / "kdc") as kdc:
        host = host_with_keytab(kdc, tmp_path / "host", {"sasl.kerberos.service.name": "other"})
        try:
            host.start(wait=False)
            said = "cannot be logged in at without a ticket: no ticket for other@localhost: Server other/localhost@"
            eventually(lambda: said in host.log, said)
        finally:
            host.stop()
