"""The definition of a setting: Kafka's name, type, default, importance, scope of changes, and checks of values."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

HIGH, MEDIUM, LOW = "high", "medium", "low"
READ_ONLY, PER_BROKER, CLUSTER_WIDE = "read-only", "per-broker", "cluster-wide"

Value = bool | int | float | str | tuple[str, ...] | None
Validator = Callable[[Any], str | None]
"""The objection to a value, in Kafka's words, or None."""


class ConfigType(IntEnum):
    """As DescribeConfigs numbers them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Setting(NamedTuple):
    """`refused` and `unused` say why a value other than the default is turned down, or taken without effect;
    a `hidden` one is in DescribeConfigs only where it is set; one that is `only_dynamic` counts in no file."""

    name: str
    type: ConfigType
    default: Value
    importance: str
    help: str
    dynamic: str = READ_ONLY
    valid: Validator | None = None
    unused: str | None = None
    refused: str | None = None
    hidden: bool = False
    only_dynamic: bool = False

    @property
    def documentation(self) -> str:
        """For DescribeConfigs: a value that cannot be set, or does nothing, must not look like any other."""
        if self.refused:
            return f"{self.help} Only the default is possible: {self.refused}."
        return f"{self.help} It has no effect: {self.unused}." if self.unused else self.help

    @property
    def has_described_default(self) -> bool:
        """False for what Kafka's own table of settings lacks: its default is no synonym."""
        return not (self.only_dynamic or (self.hidden and self.sensitive))

    @property
    def sensitive(self) -> bool:
        """True for what is described to nobody."""
        return self.type is ConfigType.PASSWORD

    @property
    def secret(self) -> bool:
        """True for what stands in no log and no error either. Others are sensitive because Kafka describes them so."""
        return self.sensitive and not self.hidden


def _setting(
    kind: ConfigType,
    name: str,
    default: Value,
    importance: str,
    help: str,  # noqa: A002 - read as `help` in every table
    *,
    dynamic: str = READ_ONLY,
    valid: Validator | None = None,
    unused: str | None = None,
    refused: str | None = None,
    hidden: bool = False,
    only_dynamic: bool = False,
) -> Setting:
    return Setting(name, kind, default, importance, help, dynamic, valid, unused, refused, hidden, only_dynamic)


boolean = partial(_setting, ConfigType.BOOLEAN)
string = partial(_setting, ConfigType.STRING)
integer = partial(_setting, ConfigType.INT)
short = partial(_setting, ConfigType.SHORT)
long = partial(_setting, ConfigType.LONG)
double = partial(_setting, ConfigType.DOUBLE)
names = partial(_setting, ConfigType.LIST)
java_class = partial(_setting, ConfigType.CLASS)
password = partial(_setting, ConfigType.PASSWORD)


def at_least(low: float) -> Validator:
    return lambda value: None if value >= low else f"Value must be at least {low}"


def between(low: float, high: float) -> Validator:
    def check(value: float) -> str | None:
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if value > high else None

    return check


def one_of(*allowed: str) -> Validator:
    return lambda value: None if value in allowed else f"String must be one of: {', '.join(allowed)}"


def one_of_any_case(*allowed: str) -> Validator:
    return lambda value: (
        None if value.upper() in allowed else f"String must be one of (case insensitive): {', '.join(allowed)}"
    )


def host_check(value: str) -> str | None:
    """What is wrong with an ssl.endpoint.identification.algorithm; None if nothing is. Java, too, would refuse every
    peer by an algorithm that it does not know."""
    if value.lower() in ("", "https"):
        return None
    return "kafkad has https, by which the host has to be in the peer's certificate, and nothing at all, for no check"


def authorizer_class(value: str) -> str | None:
    if value in ("", *AUTHORIZERS):
        return None
    return (
        f"kafkad runs no Java: it decides by ACLs itself, as {AUTHORIZERS[0]} does; give that name, or leave it out so "
        "that everybody may do everything"
    )


def some_of(*allowed: str) -> Validator:
    """For lists. The complaint is about the first member that is not allowed (see `values.complaint`)."""
    return lambda value: None if set(value) <= set(allowed) else f"String must be one of: {', '.join(allowed)}"


def gzip_level(value: int) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "Value must be between 1 and 9 or equal to -1"


def throttled_replicas(value: tuple[str, ...]) -> str | None:
    """As in Kafka, commas may stand for nothing."""

    def is_pair(text: str) -> bool:
        partition, colon, broker = text.partition(":")
        return bool(colon) and partition.isdecimal() and broker.isdecimal()

    if value == ("*",) or all(map(is_pair, filter(None, value))):
        return None
    return (
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


_RELEASES = (
    "0.8.0 0.8.1 0.8.2 0.9.0",
    "0.10.2 1.0 1.1 2.5 2.6 3.1 3.2 3.4 3.8 3.9",
    "0.10.0 2.0 2.2 2.3 2.4 2.8 3.0",
    "0.10.1 0.11.0 2.1 2.7 3.5 3.6",
    "3.3",
    "3.7",
)
_PROTOCOLS = {release: count for count, releases in enumerate(_RELEASES) for release in releases.split()}
"""How many versions of the protocol between brokers each release has: 2.0 has 2.0-IV0 and 2.0-IV1."""
_VERSION = re.compile(r"([0-9]+\.)+[0-9]+(-IV[0-9]+)?")


def kafka_version(value: str) -> str | None:
    """Any release up to 3.9, with or without a patch number, or an -IV suffix that there is."""
    release = ".".join(value.split(".")[: 3 if value.startswith("0.") else 2])
    number, _, protocol = release.partition("-IV")
    protocols = _PROTOCOLS.get(number)
    is_one = protocols is not None and ("-IV" not in release or protocol in map(str, range(protocols)))
    return None if is_one and _VERSION.fullmatch(value) else f"Version {value} is not a valid version"


# Why a setting has no effect here, or is turned down: the end of a sentence that a person reads at the start, and in
# the documentation of DescribeConfigs. Of what is turned down it says what to do instead.
THREADS = "kafkad has one event loop instead of Kafka's thread pools and their queues"
TO_BROKERS = "kafkad gives a connection to another broker 10 seconds, and leaves its buffers to the kernel"
LOADING = "kafkad reads what it loads in pieces of a size of its own"
GROUPS = "kafkad has no groups of the consumer protocol (KIP-848) yet"
ALL_REPLICAS = "kafkad answers a commit when all in-sync replicas have it"
SHARE = "kafkad has no share groups"
QUOTAS = "kafkad holds replication to its quotas without windows"
TELEMETRY = "kafkad does not collect client metrics"
JAVA_METRICS = "kafkad has no JMX and no Java reporters; set http.listener for Prometheus"
FORMAT = "kafkad always writes message format 2, as Kafka 3.9 does"
OLD_CLIENTS = "kafkad serves no clients that are too old for message format 2"
LOGINS = "kafkad has no Java classes that log in, and logs in again by itself in time; leave it out"
NO_KINIT = "kafkad has its tickets of Kerberos by the keytab in the JAAS line, and the system's library renews them"
AUTHORIZERS = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Kafka's, which decide by the same rules. Here they are one."""
UNPREFIXED_JAAS = (
    "users belong to a listener and a mechanism, both in small letters, as in "
    "listener.name.LISTENER.plain.sasl.jaas.config"
)
TLS_VERSIONS = "kafkad goes by ssl.enabled.protocols"
SCOPES = "kafkad, as Kafka, decides by the user that a token names, whatever its scope is"
BY_CONTENT = "kafkad tells the formats of stores apart by their content"
ONE_WAY = "kafkad has one way to reach ZooKeeper, with TLS and without"
REVOCATIONS = "kafkad looks up no revocations; leave it out, and keep certificates short-lived instead"
JAVA = "it names a Java class, and kafkad runs no Java; leave it out"
KRAFT = "it belongs to KRaft, and kafkad keeps its metadata as a ZooKeeper-based Kafka 3.9 does; leave it out"
TIERED = "kafkad has no tiered storage; limit topics by retention.ms and retention.bytes, or add a disk to log.dirs"
ELR = "kafkad always holds the high watermark back below min.insync.replicas instead; leave it out"
