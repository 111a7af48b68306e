"""Settings of listeners at which peers log in: what ends the start, and what is said of it."""

from __future__ import annotations

import importlib.util

import pytest

from kafkad.config import Config, load
from kafkad.config.checks import contradictions, doubts
from kafkad.config.files import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OWN = "listener.name.sasl_plaintext"
BASE = ("listeners=SASL_PLAINTEXT://127.0.0.1:9092", "inter.broker.listener.name=SASL_PLAINTEXT")


def loaded(*settings: str) -> Config:
    return load(None, [*BASE, *settings], {})


def problem_in_a_cluster(*settings: str) -> str:
    return "\n".join(contradictions(loaded("zookeeper.connect=zk:2181", *settings)))


def problem(*settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        loaded(*settings)
    return str(refused.value)


def test_a_listener_has_to_name_mechanisms_that_there_are() -> None:
    assert f"{OWN}.gssapi.sasl.jaas.config: GSSAPI, which is meant where sasl.enabled.mechanisms is not" in problem()
    assert "kafkad does not have scram-sha-256" in problem("sasl.enabled.mechanisms=scram-sha-256")


def test_plain_needs_users_and_scram_does_not() -> None:
    text = problem("sasl.enabled.mechanisms=PLAIN")
    assert f"{OWN}.plain.sasl.jaas.config: PLAIN has no users: {PLAIN} user_NAME" in text
    assert loaded("sasl.enabled.mechanisms=SCRAM-SHA-256").jaas("SASL_PLAINTEXT", "SCRAM-SHA-256") is None


@pytest.mark.parametrize("size", [-1, 0, 255])
@pytest.mark.parametrize("setting", ["sasl.server.max.receive.size", f"{OWN}.sasl.server.max.receive.size"])
def test_a_login_has_to_have_room(setting: str, size: int) -> None:
    scram = "sasl.enabled.mechanisms=SCRAM-SHA-256"
    text = problem(scram, f"{setting}={size}")
    assert f"sasl.server.max.receive.size={size} of listener SASL_PLAINTEXT: nobody could log in; it has to be" in text
    assert loaded(scram, f"{setting}=256").int_for_listener("SASL_PLAINTEXT", "sasl.server.max.receive.size") == 256


def test_users_belong_to_one_listener_and_mechanism() -> None:
    config = loaded("sasl.enabled.mechanisms=PLAIN", f'{OWN}.plain.sasl.jaas.config={PLAIN} user_a="1";')
    found = config.jaas("SASL_PLAINTEXT", "PLAIN")
    assert found is not None
    assert found.users == {"a": "1"}
    ignored = loaded("sasl.enabled.mechanisms=SCRAM-SHA-256", f'sasl.jaas.config={PLAIN} user_a="1";')
    assert any("sasl.jaas.config: users belong to a listener" in warning for warning in ignored.warnings)
    text = problem("sasl.enabled.mechanisms=PLAIN", f'{OWN}.sasl.jaas.config={PLAIN} user_a="1";')
    assert f"{OWN}.sasl.jaas.config is not a setting" in text


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (f"{PLAIN} user_a=secret1", "not terminated by semi-colon"),
        (f'{SCRAM} user_a="secret1";', "ScramLoginModule does not belong to PLAIN"),
        (f'{PLAIN} user_a="a"secret1";', "quotes in a password need a backslash before them"),
    ],
)
def test_a_line_that_is_wrong_is_named_without_its_passwords(line: str, text: str) -> None:
    found = problem("sasl.enabled.mechanisms=PLAIN", f"{OWN}.plain.sasl.jaas.config={line}")
    assert text in found
    assert "secret1" not in found


KRB5 = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
TICKETS = f'{OWN}.gssapi.sasl.jaas.config={KRB5} keyTab="/keys" principal="kafka/host@REALM";'
RULES = "sasl.kerberos.principal.to.local.rules"


def test_kerberos_needs_a_keytab_a_principal_rules_that_can_be_read_and_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = importlib.util.find_spec

    def found(name: str) -> object:
        return object() if name == "gssapi" else there(name)

    monkeypatch.setattr("kafkad.config.checks.find_spec", found)
    config = loaded("sasl.enabled.mechanisms=GSSAPI,SCRAM-SHA-256", TICKETS, f"{OWN}.{RULES}=RULE:[1:$1]/L,DEFAULT")
    assert config.listeners_with("GSSAPI") == ("SASL_PLAINTEXT",)
    assert config.warnings == ()
    for options in ('keyTab="/keys"', 'principal="kafka/host@REALM"', 'keyTab="/keys" principal="kafka@REALM"'):
        line = f"{OWN}.gssapi.sasl.jaas.config={KRB5} {options};"
        assert 'keyTab="FILE" principal="kafka/HOST@REALM";' in problem("sasl.enabled.mechanisms=GSSAPI", line)
    assert f"{RULES}: Invalid rule: RULE:[1:$2]: $2 is none of $0 to $1" in problem(TICKETS, f"{RULES}=RULE:[1:$2]")
    assert loaded(
        "zookeeper.connect=zk:2181", "sasl.enabled.mechanisms=GSSAPI", TICKETS, "sasl.kerberos.service.name=k"
    )
    monkeypatch.setattr("kafkad.config.checks.find_spec", lambda name: None)
    assert "needs the Python package gssapi: pip install gssapi" in problem(TICKETS)


def test_brokers_of_a_cluster_have_to_log_in_at_each_other() -> None:
    enabled, mechanism = "sasl.enabled.mechanisms=SCRAM-SHA-256", "sasl.mechanism.inter.broker.protocol"
    assert f"{mechanism}=GSSAPI is not enabled" in problem_in_a_cluster(enabled)
    chosen = (enabled, f"{mechanism}=SCRAM-SHA-256")
    name = f"{OWN}.scram-sha-256.sasl.jaas.config"
    assert f"{name} needs username and password" in problem_in_a_cluster(*chosen)
    assert f"{name} needs username and password" in problem_in_a_cluster(*chosen, f"{name}={SCRAM};")
    assert problem_in_a_cluster(*chosen, f'{name}={SCRAM} username="u" password="p";') == ""
    assert "kafkad does not have FOO" in problem_in_a_cluster("sasl.enabled.mechanisms=FOO", f"{mechanism}=FOO")


def test_lifetimes_are_those_of_the_mechanism_then_of_the_listener_then_of_all() -> None:
    config = loaded(
        "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms=1",
        f"{OWN}.connections.max.reauth.ms=2",
        f"{OWN}.scram-sha-256.connections.max.reauth.ms=3",
    )
    name = "connections.max.reauth.ms"
    assert config.for_mechanism("SASL_PLAINTEXT", "SCRAM-SHA-256", name) == 3
    assert config.for_mechanism("SASL_PLAINTEXT", "SCRAM-SHA-512", name) == 2
    assert config.for_mechanism("OTHER", "SCRAM-SHA-512", name) == 1


def test_where_keys_and_tokens_are_may_have_the_mechanism_before_it() -> None:
    """As Kafka's documentation writes it."""
    own = f"{OWN}.oauthbearer.sasl.oauthbearer"
    expected = f"{own}.expected.audience=kafka"
    keys = ("sasl.enabled.mechanisms=OAUTHBEARER", f"{own}.jwks.endpoint.url=file:///keys", expected)
    assert loaded(*keys).warnings == ()
    assert "expected https://… or file:///…" in problem(*keys, f"{own}.jwks.endpoint.url=http://issuer/keys")
    assert "whatever its scope is" in loaded(*keys, f"{own}.scope.claim.name=scp").warnings[0]
    brokers = ("zookeeper.connect=zk:2181", "sasl.mechanism.inter.broker.protocol=OAUTHBEARER")
    assert loaded(*keys, *brokers, f"{own}.token.endpoint.url=file:///token").warnings == ()


@pytest.mark.parametrize(
    ("expected", "is_told"), [((), True), (("audience=kafka",), False), (("issuer=https://issuer",), False)]
)
def test_tokens_of_an_issuer_for_any_service_are_told_of(expected: tuple[str, ...], is_told: bool) -> None:
    own = "sasl.oauthbearer"
    more = (f"{own}.jwks.endpoint.url=file:///keys", *(f"{OWN}.{own}.expected.{each}" for each in expected))
    warnings = loaded("sasl.enabled.mechanisms=OAUTHBEARER", *more).warnings
    text = "listener SASL_PLAINTEXT takes every token that is signed by a key of file:///keys, also those for other"
    assert [each.startswith(text) for each in warnings] == [True] * is_told


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("other.connections.max.reauth.ms", "listeners has no OTHER"),
        ("SASL_PLAINTEXT.connections.max.reauth.ms", "listeners and mechanisms are written in lower case there"),
        ("sasl_plaintext.Plain.connections.max.reauth.ms", "listeners and mechanisms are written in lower case there"),
        ("sasl_plaintext.scram.connections.max.reauth.ms", "listener SASL_PLAINTEXT does not have SCRAM"),
        ("sasl_plaintext.plain.connections.max.reauth.ms", "listener SASL_PLAINTEXT does not have PLAIN"),
        (
            "sasl_plaintext.scram-sha-256.max.connections",
            "it is of a listener and not of a mechanism: leave scram-sha-256 out",
        ),
    ],
)
def test_a_setting_that_belongs_to_no_listener_and_no_mechanism_is_told_of(name: str, reason: str) -> None:
    config = loaded("sasl.enabled.mechanisms=SCRAM-SHA-256", f"listener.name.{name}=5")
    assert config.warnings == (f"no effect: listener.name.{name}: {reason}",)


def test_the_listener_of_metrics_is_one_only_over_tls() -> None:
    name = "listener.name.http.ssl.keystore.location"
    served = ("sasl.enabled.mechanisms=SCRAM-SHA-256", f"{name}=/key")
    assert loaded(*served, "http.listener=https://127.0.0.1:9404").warnings == ()
    assert loaded(*served, "http.listener=127.0.0.1:9404").warnings == (f"no effect: {name}: listeners has no HTTP",)


def test_a_broker_that_its_own_line_does_not_know_is_refused_by_those_who_have_the_same() -> None:
    by_plain = ("sasl.enabled.mechanisms=PLAIN", "sasl.mechanism.inter.broker.protocol=PLAIN")
    for users in ('user_c="secret1"', 'user_b="secret2"'):
        line = f'{OWN}.plain.sasl.jaas.config={PLAIN} username="b" password="secret1" {users};'
        found = problem(*by_plain, line, "kafkad.brokers=2")
        assert f"{OWN}.plain.sasl.jaas.config: its username is none of its users" in found
        assert "secret" not in found
        assert doubts(loaded(*by_plain, line)) == []
        assert doubts(loaded(*by_plain, line, "zookeeper.connect=zk:2181")) == [
            f"{found}, unless the lines of other brokers have it"
        ]
    known = f'{OWN}.plain.sasl.jaas.config={PLAIN} username="b" password="secret1" user_b="secret1";'
    loaded(*by_plain, known, "kafkad.brokers=2")
    assert doubts(loaded(*by_plain, known, "zookeeper.connect=zk:2181")) == []
