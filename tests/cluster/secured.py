"""What a broker needs for a listener with TLS and logins beside those it has, and clients that use it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.broker import KafkadProcess
from tests.certificates import Authority
from tests.cluster.history import GROUP
from tests.oracle.kafka import free_port

LISTENER = "SECURE"
BROKER = "broker"
"""Who brokers are to one another."""
MECHANISM = "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECONDS = 30


def password_of(user: str) -> str:
    return f"pw of {user}"


class Stores:
    """An authority, its file, and a key and certificate for all brokers."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority()
        self.trusted = self.authority.write(directory / "ca.pem")
        self.keys = self.authority.issue().write(directory / "broker.pem")

    def client(self, brokers: Mapping[int, KafkadProcess], user: str, password: str | None = None) -> dict[str, str]:
        """Settings of librdkafka for a user."""
        return {
            "bootstrap.servers": ",".join(f"127.0.0.1:{port_of(broker)}" for broker in brokers.values()),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.trusted),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password or password_of(user),
        }

    def add_listener(self, broker: KafkadProcess) -> None:
        """At which users and brokers log in over TLS; it is in force when the broker starts again."""
        port, settings = free_port(), broker.settings
        own = f"listener.name.{LISTENER.lower()}"
        protocols = settings.get("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT")
        for name in ("listeners", "advertised.listeners"):
            if name in settings:
                settings[name] += f",{LISTENER}://127.0.0.1:{port}"
        settings |= {
            "listener.security.protocol.map": f"{protocols},{LISTENER}:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keys),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trusted),
            f"{own}.sasl.enabled.mechanisms": MECHANISM,
            f"{own}.{MECHANISM.lower()}.sasl.jaas.config": (
                f'{MODULE} required username="{BROKER}" password="{password_of(BROKER)}";'
            ),
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
        }


def use_between_brokers(broker: KafkadProcess) -> None:
    broker.settings["inter.broker.listener.name"] = LISTENER


def remove_open_listeners(broker: KafkadProcess) -> None:
    for name in {"listeners", "advertised.listeners"} & broker.settings.keys():
        broker.settings[name] = f"{LISTENER}://127.0.0.1:{port_of(broker)}"


def ask_for_rights(broker: KafkadProcess) -> None:
    """What no ACL is about stays open at first.

    A broker that has not heard of a topic yet refuses it to who may not create it, where topics are created on demand.
    """
    broker.settings |= {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{BROKER}",
        "allow.everyone.if.no.acl.found": "true",
        "auto.create.topics.enable": "false",
    }


def close_what_no_acl_is_about(broker: KafkadProcess) -> None:
    del broker.settings["allow.everyone.if.no.acl.found"]


def port_of(broker: KafkadProcess) -> int:
    """Of the listener with TLS and logins."""
    return next(
        int(listener.rpartition(":")[2])
        for listener in broker.settings["listeners"].split(",")
        if listener.startswith(LISTENER)
    )


def set_passwords(admin: AdminClient, *users: str) -> None:
    upsertions = [
        UserScramCredentialUpsertion(
            user, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password_of(user).encode()
        )
        for user in users
    ]
    for done in admin.alter_user_scram_credentials(upsertions).values():
        done.result(SECONDS)


def grant(admin: AdminClient, user: str, topic: str, *operations: AclOperation) -> None:
    """And on the group that consumers of a load name, though they are in none."""
    wanted = [(ResourceType.TOPIC, topic, operation) for operation in operations]
    wanted.append((ResourceType.GROUP, GROUP, AclOperation.READ))
    rights = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for kind, name, operation in wanted
    ]
    for done in admin.create_acls(rights).values():
        done.result(SECONDS)


def revoke(admin: AdminClient, user: str) -> int:
    """All that it has; returns how many ACLs that were."""
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )
    [removed] = admin.delete_acls([everything]).values()
    return len(removed.result(SECONDS))
