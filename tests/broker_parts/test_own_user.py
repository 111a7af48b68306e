"""Who a broker is to others, by its own settings."""

from __future__ import annotations

from typing import Any

import pytest

from kafkad.broker.own_user import own_users, without_rights
from kafkad.broker.rights import Rights
from kafkad.config import load
from kafkad.config.config import Source
from kafkad.security.access_log import AccessLog
from kafkad.security.acl import AclAuthorizer

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
OWN = "listener.name.sasl_plaintext"


@pytest.mark.parametrize(
    ("mechanism", "line", "user"),
    [
        ("SCRAM-SHA-512", f'{SCRAM} username="broker" password="p";', "User:broker"),
        ("PLAIN", f'{PLAIN} username="broker" password="p" user_broker="p";', "User:broker"),
        ("GSSAPI", f'{KERBEROS} keyTab="/k" principal="kafka/host@REALM";', "User:kafka"),
        ("GSSAPI", f"{KERBEROS} useKeyTab=true;", None),
        ("OAUTHBEARER", "", None),
    ],
)
def test_at_a_listener_with_logins_it_is_whom_it_logs_in_as(mechanism: str, line: str, user: str | None) -> None:
    by = "sasl.mechanism.inter.broker.protocol"
    own = {by: mechanism, f"{OWN}.{mechanism.lower()}.sasl.jaas.config": line}
    listener = {"listeners": "SASL_PLAINTEXT://:9092", "inter.broker.listener.name": "SASL_PLAINTEXT"}
    config = load(None, [], {}).with_layer(Source.STATIC_BROKER_CONFIG, listener | own)
    assert {name: str(each) for name, each in own_users(config).items()} == ({"SASL_PLAINTEXT": user} if user else {})


def test_each_of_two_listeners_of_brokers_has_a_user_of_its_own() -> None:
    config = load(
        None,
        [
            "listeners=CONTROL://localhost:9090,SASL_PLAINTEXT://localhost:9092",
            "listener.security.protocol.map=CONTROL:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "control.plane.listener.name=CONTROL",
            "inter.broker.listener.name=SASL_PLAINTEXT",
            "sasl.enabled.mechanisms=SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512",
            f'{OWN}.scram-sha-512.sasl.jaas.config={SCRAM} username="broker" password="p";',
        ],
        {},
    )
    users = {name: str(user) for name, user in own_users(config).items()}
    assert users == {"SASL_PLAINTEXT": "User:broker", "CONTROL": "User:ANONYMOUS"}


@pytest.mark.parametrize(
    ("super_users", "alone", "is_told"), [("admin", False, True), ("broker", False, False), ("admin", True, False)]
)
def test_a_broker_to_which_others_are_nobody_is_told_at_its_start(
    caplog: pytest.LogCaptureFixture, super_users: str, alone: bool, is_told: bool
) -> None:
    listener = {"listeners": "SASL_PLAINTEXT://:9092", "inter.broker.listener.name": "SASL_PLAINTEXT"}
    own = {
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        f"{OWN}.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="broker" password="p";',
    }
    config = load(None, [], {}).with_layer(Source.STATIC_BROKER_CONFIG, listener | own)
    no_acls: Any = ()
    authorizer = AclAuthorizer([f"User:{super_users}"], False, AccessLog(lambda: 0.0, lambda at, action: None))
    Rights(authorizer, no_acls).tell_of_doubtful(config, alone=alone)
    text = "over the listener SASL_PLAINTEXT as User:broker, who has no right to ClusterAction"
    assert (text in caplog.text) is is_told
    assert ("put User:broker into super.users" in caplog.text) is is_told


def test_a_check_tells_nobody_to_give_all_rights_to_everybody() -> None:
    settings = ["zookeeper.connect=zk:2181", "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"]
    (warning,) = without_rights(load(None, settings, {}))
    assert warning.endswith(
        "none gets ready; let inter.broker.listener.name be one with certificates (ssl.client.auth) or a login, or put "
        "User:ANONYMOUS into super.users if none but brokers come without a login"
    )
    assert not list(without_rights(load(None, [*settings, "allow.everyone.if.no.acl.found=TRUE"], {})))
