"""One session at the command line with Kafka's own tools for ACLs, quotas, passwords and delegation tokens; see tools.py.

Steps with a `--command-config` log in; all others are of a super user. What tools print in the order of a hash map is
sorted, and times are told as hours from now.
"""

# ruff: noqa: E501 - one command a line
from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tests.clients.conftest import SETTINGS
from tests.clients.tools import Outcome, Run, Step

_MODULES = "org.apache.kafka.common.security"
USERS = ("admin", "owner", "renewer", "stranger")
"""Those who log in by PLAIN; admin is a super user."""
_LOGIN = "listener.name.sasl_plaintext"


@dataclass(frozen=True, slots=True)
class Ports:
    """Of the listener at which everybody is a super user, and of the one at which users log in."""

    open: int
    login: int

    @property
    def settings(self) -> dict[str, str]:
        """Of a broker that listens there."""
        users = " ".join(f'user_{user}="pw"' for user in USERS)
        return {
            **SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.open},SASL_PLAINTEXT://127.0.0.1:{self.login}",
            f"{_LOGIN}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"{_LOGIN}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {users};",
            f"{_LOGIN}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            f"{_LOGIN}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
            "delegation.token.secret.key": "lab-master-key",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS;User:admin",
        }


def _acls(name: str, words: str) -> Step:
    return Step(name, "acls", words)


def _configs(name: str, words: str, user: str = "") -> Step:
    return Step(name, "configs", f"{words} {_as(user)}")


def _tokens(name: str, words: str, user: str = "owner") -> Step:
    """A token is named in later steps by the step that created it: `<create>` is its secret."""
    return Step(name, "delegation-tokens", f"{words} {_as(user)}")


def _login(name: str, user: str) -> Step:
    """Without a right to any topic it lists none."""
    return Step(name, "topics", f"--list {_as(user)}")


def _as(user: str) -> str:
    return f"--command-config {{dir}}/{user}.properties" if user else ""


ACLS = [
    _acls("list no ACLs", "--list"),
    _acls("add for a producer", "--add --allow-principal User:alice --producer --topic orders --idempotent"),
    _acls("add for a consumer", "--add --allow-principal User:CN=bob,OU=x --consumer --topic ord --group g --resource-pattern-type prefixed"),
    _acls("deny at an address", "--add --deny-principal User:eve --deny-host 10.0.0.9 --operation All --topic * --transactional-id x1"),
    _acls("list one", "--list --topic orders"),
    _acls("list what matches a topic", "--list --topic orders --resource-pattern-type match"),
    _acls("list of a principal", "--list --principal User:alice"),
    _acls("remove some", "--remove --force --allow-principal User:alice --producer --topic orders"),
    _acls("remove what is not there", "--remove --force --topic nowhere"),
    _acls("add with a bad name", "--add --allow-principal User:a --operation Read --group a/b"),
    _acls("list some ACLs", "--list"),
    _acls("prefixed beside literal", "--add --allow-principal User:alice --operation Read --operation Describe --topic or --resource-pattern-type prefixed"),
    _acls("literal", "--add --allow-principal User:alice --operation Read --topic or"),
    _acls("producer with a transactional id", "--add --allow-principal User:alice --producer --topic orders --transactional-id tx-1"),
    _acls("producer, idempotent, prefixed", "--add --allow-principal User:bob --producer --topic b- --transactional-id b- --idempotent --resource-pattern-type prefixed"),
    _acls("consumer of two topics in two groups", "--add --allow-principal User:bob --consumer --topic t1 --topic t2 --group g1 --group g2"),
    _acls("producer and consumer", "--add --allow-principal User:carol --producer --consumer --topic t3 --group g3"),
    _acls("the cluster", "--add --allow-principal User:dave --cluster --operation Create --operation ClusterAction"),
    _acls("cluster with what it has not", "--add --allow-principal User:dave --cluster --operation Read"),
    _acls("group with what it has not", "--add --allow-principal User:dave --group g --operation Write"),
    _acls("transactional id", "--add --allow-principal User:dave --transactional-id tx --operation Write --operation Describe"),
    _acls("every transactional id", "--add --deny-principal User:eve --transactional-id * --operation All"),
    _acls("delegation token", "--add --allow-principal User:dave --delegation-token abc --operation Describe"),
    _acls("user", "--add --allow-principal User:alice --user-principal User:bob --operation CreateTokens --operation DescribeTokens"),
    _acls("two principals at two hosts", "--add --allow-principal User:x --allow-principal User:y --allow-host 10.0.0.1 --allow-host 10.0.0.2 --operation Read --topic t9"),
    _acls("allow and deny at once", "--add --allow-principal User:* --deny-principal User:eve --deny-host 10.0.0.3 --operation Read --topic t8"),
    _acls("IPv6", "--add --allow-principal User:x --allow-host ::1 --operation Read --topic t7"),
    _acls("another type of principal", "--add --allow-principal Group:x --operation Read --topic t6"),
    _acls("the same again", "--add --allow-principal User:alice --operation Read --topic or"),
    _acls("no operation", "--add --allow-principal User:alice --topic or"),
    _acls("an unknown operation", "--add --allow-principal User:alice --operation Fly --topic or"),
    _acls("producer and an operation", "--add --allow-principal User:alice --producer --operation Read --topic or"),
    _acls("consumer without a group", "--add --allow-principal User:alice --consumer --topic or"),
    _acls("producer of a group", "--add --allow-principal User:alice --producer --topic or --group g"),
    _acls("idempotent alone", "--add --allow-principal User:alice --idempotent --operation Read --topic or"),
    _acls("no principal", "--add --operation Read --topic or"),
    _acls("a principal without a type", "--add --allow-principal alice --operation Read --topic or"),
    _acls("a pattern to match", "--add --allow-principal User:alice --operation Read --topic or --resource-pattern-type match"),
    _acls("no resource", "--add --allow-principal User:alice --operation Read"),
    _acls("list a prefix", "--list --topic or --resource-pattern-type prefixed"),
    _acls("list any", "--list --topic or --resource-pattern-type any"),
    _acls("list what matches", "--list --topic orders --resource-pattern-type match"),
    _acls("list all that match, of a group", "--list --group g1 --resource-pattern-type match"),
    _acls("list the cluster", "--list --cluster"),
    _acls("list transactional ids", "--list --transactional-id * --resource-pattern-type match"),
    _acls("list users", "--list --user-principal User:bob"),
    _acls("list tokens", "--list --delegation-token abc"),
    _acls("list of two principals", "--list --principal User:bob --principal User:dave"),
    _acls("list of a principal at a topic", "--list --principal User:x --topic t9"),
    _acls("list of nobody", "--list --principal User:nobody"),
    _acls("list and add", "--list --add --topic t"),
    _acls("remove at a host", "--remove --force --allow-principal User:x --allow-host 10.0.0.1 --operation Read --topic t9"),
    _acls("remove a prefix", "--remove --force --topic or --resource-pattern-type prefixed"),
    _acls("remove what a consumer has", "--remove --force --allow-principal User:bob --consumer --topic t1 --group g1"),
    _acls("remove a denial", "--remove --force --deny-principal User:eve --deny-host 10.0.0.3 --operation Read --topic t8"),
    _acls("remove of the cluster", "--remove --force --cluster"),
    _acls("remove any pattern", "--remove --force --topic b- --resource-pattern-type any"),
    _acls("remove what matches", "--remove --force --transactional-id b-77 --resource-pattern-type match"),
    _acls("list all ACLs", "--list"),
    Step("list without the right", "acls", f"--list {_as('stranger')}"),
    Step("add without the right", "acls", f"--add --allow-principal User:stranger --operation Read --topic or {_as('stranger')}"),
    Step("remove without the right", "acls", f"--remove --force --topic or {_as('stranger')}"),
]  # fmt: skip
"""Every kind of resource and of pattern, the shorthands, and what the tool or the broker refuses."""

ALICE, EVERYBODY = "--entity-type users --entity-name alice", "--entity-type users --entity-default"
CLIENT, EVERY_CLIENT = "--entity-type clients --entity-name c/1", "--entity-type clients --entity-default"
ADDRESS, EVERY_ADDRESS = "--entity-type ips --entity-name 10.1.2.3", "--entity-type ips --entity-default"
QUOTAS = [
    _configs("a user", f"--alter {ALICE} --add-config producer_byte_rate=1000000,request_percentage=12.5"),
    _configs("a client of a user", f"--alter {ALICE} {CLIENT} --add-config consumer_byte_rate=2000"),
    _configs("every client of a user", f"--alter {ALICE} {EVERY_CLIENT} --add-config controller_mutation_rate=0.5"),
    _configs("every user", f"--alter {EVERYBODY} --add-config producer_byte_rate=5000"),
    _configs("a client of every user", f"--alter {EVERYBODY} {CLIENT} --add-config producer_byte_rate=6000"),
    _configs("every client of every user", f"--alter {EVERYBODY} {EVERY_CLIENT} --add-config consumer_byte_rate=3000,request_percentage=200"),
    _configs("a client", f"--alter {CLIENT} --add-config producer_byte_rate=7000"),
    _configs("every client", f"--alter {EVERY_CLIENT} --add-config producer_byte_rate=1e6,consumer_byte_rate=1E7"),
    _configs("an address", f"--alter {ADDRESS} --add-config connection_creation_rate=7"),
    _configs("every address", f"--alter {EVERY_ADDRESS} --add-config connection_creation_rate=70"),
    _configs("a user by his name alone", "--alter --user CN=bob,OU=x --add-config producer_byte_rate=4000"),
    _configs("a client by its name alone", "--alter --client c%20* --add-config producer_byte_rate=4000"),
    _configs("an address by its name alone", "--alter --ip 10.1.2.4 --add-config connection_creation_rate=4"),
    _configs("every user and client in short", "--alter --user-defaults --client-defaults --add-config controller_mutation_rate=5"),
    _configs("one who is called default", "--alter --entity-type users --entity-name <default> --add-config producer_byte_rate=9"),
    _configs("quotas from a file", f"--alter {ALICE} --add-config-file {{dir}}/quotas.properties"),
    _configs("one added and another taken away", f"--alter {ALICE} --add-config controller_mutation_rate=3 --delete-config consumer_byte_rate"),
    _configs("one added and taken away at once", f"--alter {ALICE} --add-config controller_mutation_rate=4 --delete-config controller_mutation_rate"),
    _configs("the most that there is", "--alter --user most --add-config producer_byte_rate=9223372036854775807"),
    _configs("describe the most that there is", "--describe --user most"),
    _configs("describe a user", f"--describe {ALICE}"),
    _configs("describe a client of a user", f"--describe {ALICE} {CLIENT}"),
    _configs("describe every client of a user", f"--describe {ALICE} {EVERY_CLIENT}"),
    _configs("describe all clients of a user", f"--describe {ALICE} --entity-type clients"),
    _configs("describe a client of all users", f"--describe --entity-type users {CLIENT}"),
    _configs("describe the default of users", f"--describe {EVERYBODY}"),
    _configs("describe the default of users and clients", f"--describe {EVERYBODY} {EVERY_CLIENT}"),
    _configs("describe the default of clients", f"--describe {EVERY_CLIENT}"),
    _configs("describe the default of addresses", f"--describe {EVERY_ADDRESS}"),
    _configs("describe all users", "--describe --entity-type users"),
    _configs("describe all clients of all users", "--describe --entity-type users --entity-type clients"),
    _configs("describe all clients", "--describe --entity-type clients"),
    _configs("describe all addresses", "--describe --entity-type ips"),
    _configs("describe an address", f"--describe {ADDRESS}"),
    _configs("describe an address without a quota", "--describe --ip 10.9.9.9"),
    _configs("describe a host that nobody knows", "--describe --ip nowhere.invalid"),
    _configs("describe a user and an address", f"--describe {ALICE} {ADDRESS}"),
    _configs("an unknown quota", f"--alter {ALICE} --add-config producer_bit_rate=5"),
    _configs("a known quota and an unknown one", f"--alter {ALICE} --add-config producer_byte_rate=77,producer_bit_rate=5"),
    _configs("a fraction of a byte", f"--alter {ALICE} --add-config producer_byte_rate=1.5"),
    _configs("a negative quota", f"--alter {ALICE} --add-config producer_byte_rate=-1"),
    _configs("no percentage", f"--alter {ALICE} --add-config request_percentage=0"),
    _configs("more than there is", f"--alter {ALICE} --add-config producer_byte_rate=1e30"),
    _configs("words for a number", f"--alter {ALICE} --add-config producer_byte_rate=fast"),
    _configs("a quota without a number", f"--alter {ALICE} --add-config producer_byte_rate="),
    _configs("a quota of addresses for a user", f"--alter {ALICE} --add-config connection_creation_rate=5"),
    _configs("a quota of users for an address", f"--alter {ADDRESS} --add-config producer_byte_rate=5"),
    _configs("a fraction of a connection", f"--alter {ADDRESS} --add-config connection_creation_rate=0.5"),
    _configs("no connections", "--alter --ip 10.1.2.4 --add-config connection_creation_rate=0"),
    _configs("more connections than there are", "--alter --ip 10.1.2.4 --add-config connection_creation_rate=2147483648"),
    _configs("a host that nobody knows", "--alter --entity-type ips --entity-name nowhere.invalid --add-config connection_creation_rate=5"),
    _configs("a user and an address", f"--alter {ALICE} {ADDRESS} --add-config connection_creation_rate=5"),
    _configs("an unknown type", "--alter --entity-type groups-of-users --entity-name a --add-config producer_byte_rate=5"),
    _configs("users without a name", "--alter --entity-type users --add-config producer_byte_rate=5"),
    _configs("a user with nothing to change", f"--alter {ALICE}"),
    _configs("remove one of two", f"--alter {ALICE} --delete-config request_percentage"),
    _configs("remove a quota that is not there", f"--alter {ALICE} --delete-config consumer_byte_rate"),
    _configs("remove an unknown quota", f"--alter {ALICE} --delete-config producer_bit_rate"),
    _configs("remove of a user who has none", "--alter --user nobody --delete-config producer_byte_rate"),
    _configs("describe what is left of a user", f"--describe {ALICE}"),
    _configs("remove the last", f"--alter {ALICE} {CLIENT} --delete-config consumer_byte_rate"),
    _configs("describe what is gone", f"--describe {ALICE} {CLIENT}"),
    _configs("remove several of every client", f"--alter {EVERY_CLIENT} --delete-config producer_byte_rate,consumer_byte_rate"),
    _configs("remove of every address", "--alter --ip-defaults --delete-config connection_creation_rate"),
    _configs("describe all clients at the end", "--describe --entity-type clients"),
    _configs("describe all addresses at the end", "--describe --entity-type ips"),
    _configs("change quotas without the right", f"--alter {ALICE} --add-config producer_byte_rate=1", "stranger"),
    _configs("describe quotas without the right", f"--describe {ALICE}", "stranger"),
    _configs("describe addresses without the right", "--describe --entity-type ips", "stranger"),
]  # fmt: skip

SAM = "--entity-type users --entity-name sam"
PASSWORDS = [
    _configs("two mechanisms", f"--alter {SAM} --add-config SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"),
    _login("log in", "sam"),
    _configs("another user beside a quota", "--alter --entity-type users --entity-name bob --add-config producer_byte_rate=1000"),
    _configs("his password", "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-512=[iterations=4096,password=x]"),
    _configs("a password and a quota at once", "--alter --user both --add-config SCRAM-SHA-512=[password=x],consumer_byte_rate=2000"),
    _configs("describe a password and a quota", "--describe --user both"),
    _configs("describe a user with a password", f"--describe {SAM}"),
    _configs("describe a user with a quota", "--describe --entity-type users --entity-name bob"),
    _configs("describe all users and their passwords", "--describe --entity-type users"),
    _configs("describe a user who is not there", "--describe --entity-type users --entity-name nobody"),
    _configs("too few iterations", f"--alter {SAM} --add-config SCRAM-SHA-256=[iterations=4095,password=secret]"),
    _configs("too many iterations", f"--alter {SAM} --add-config SCRAM-SHA-256=[iterations=16385,password=secret]"),
    _configs("as many iterations as may be", "--alter --user slow --add-config SCRAM-SHA-256=[iterations=16384,password=secret]"),
    _configs("iterations in words", f"--alter {SAM} --add-config SCRAM-SHA-256=[iterations=many,password=secret]"),
    _configs("an unknown mechanism", f"--alter {SAM} --add-config SCRAM-SHA-1=[password=secret]"),
    _configs("no password", f"--alter {SAM} --add-config SCRAM-SHA-256=[iterations=8192]"),
    _configs("an empty password", f"--alter {SAM} --add-config SCRAM-SHA-256=[password=]"),
    _configs("every user's password", "--alter --entity-type users --entity-default --add-config SCRAM-SHA-256=[password=secret]"),
    _configs("a password of a client", f"--alter {CLIENT} --add-config SCRAM-SHA-256=[password=secret]"),
    _configs("a password of a client of a user", f"--alter {SAM} {CLIENT} --add-config SCRAM-SHA-256=[password=secret]"),
    _configs("one mechanism added and another taken away", "--alter --user slow --add-config SCRAM-SHA-512=[password=secret] --delete-config SCRAM-SHA-256"),
    _configs("describe the other mechanism", "--describe --user slow"),
    _configs("another password", f"--alter {SAM} --add-config SCRAM-SHA-256=[password=another],SCRAM-SHA-512=[password=another]"),
    _login("log in by the password of before", "sam"),
    _configs("the password of before again", f"--alter {SAM} --add-config SCRAM-SHA-256=[iterations=8192,password=secret]"),
    _login("log in again", "sam"),
    _configs("delete one", f"--alter {SAM} --delete-config SCRAM-SHA-256"),
    _configs("delete what is not there", f"--alter {SAM} --delete-config SCRAM-SHA-256"),
    _configs("delete of a user who is not there", "--alter --user nobody --delete-config SCRAM-SHA-256"),
    _configs("describe what is left of the passwords", f"--describe {SAM}"),
    _configs("delete the last", f"--alter {SAM} --delete-config SCRAM-SHA-512"),
    _login("log in without a password", "sam"),
    _configs("describe who is gone", f"--describe {SAM}"),
    _configs("delete a password and a quota at once", "--alter --user both --delete-config SCRAM-SHA-512,consumer_byte_rate"),
    _configs("change a password without the right", "--alter --user stranger --add-config SCRAM-SHA-256=[password=secret]", "stranger"),
    _configs("describe passwords without the right", "--describe --user bob", "stranger"),
]  # fmt: skip

TOKENS = [
    _tokens("describe no tokens", "--describe"),
    _tokens("create", "--create --max-life-time-period -1 --renewer-principal User:renewer"),
    _tokens("create for long", "--create --max-life-time-period 99999999999"),
    _tokens("create for an hour", "--create --max-life-time-period 3600000 --renewer-principal User:renewer --renewer-principal User:CN=x,OU=y"),
    _tokens("create for no time", "--create --max-life-time-period 0"),
    _tokens("create with renewers who are no users", "--create --max-life-time-period -1 --renewer-principal Group:x"),
    _tokens("create with a renewer without a type", "--create --max-life-time-period -1 --renewer-principal renewer"),
    _tokens("create for another without the right", "--create --max-life-time-period -1 --owner-principal User:alice", "renewer"),
    _acls("the right to create and describe tokens of another", "--add --allow-principal User:renewer --user-principal User:alice --operation CreateTokens --operation DescribeTokens"),
    _tokens("create for another", "--create --max-life-time-period -1 --owner-principal User:alice --renewer-principal User:stranger", "renewer"),
    _tokens("describe those of another with the right", "--describe --owner-principal User:alice", "renewer"),
    _tokens("create as a super user for another", "--create --max-life-time-period -1 --owner-principal User:stranger", "admin"),
    Step("create without a login", "delegation-tokens", "--create --max-life-time-period -1 --command-config {dir}/open.properties"),
    Step("describe without a login", "delegation-tokens", "--describe --command-config {dir}/open.properties"),
    _login("log in by a token", "create"),
    _tokens("create by a token", "--create --max-life-time-period -1", "create"),
    _tokens("describe by a token", "--describe", "create"),
    _tokens("renew by a token", "--renew --renew-time-period -1 --hmac <create>", "create"),
    _tokens("describe all", "--describe"),
    _tokens("describe one's own", "--describe --owner-principal User:owner"),
    _tokens("describe another's", "--describe --owner-principal User:renewer"),
    _tokens("describe as a renewer", "--describe", "renewer"),
    _tokens("describe as a renewer those of the owner", "--describe --owner-principal User:owner", "renewer"),
    _tokens("describe as a stranger", "--describe", "stranger"),
    _tokens("describe those of the owner as a stranger", "--describe --owner-principal User:owner", "stranger"),
    _tokens("describe those of two as a super user", "--describe --owner-principal User:alice --owner-principal User:stranger", "admin"),
    _tokens("renew", "--renew --renew-time-period -1 --hmac <create>"),
    _tokens("renew as a renewer", "--renew --renew-time-period 7200000 --hmac <create>", "renewer"),
    _tokens("renew beyond the token's last time", "--renew --renew-time-period 7200000 --hmac <create for an hour>"),
    _tokens("renew as a stranger", "--renew --renew-time-period -1 --hmac <create>", "stranger"),
    _tokens("renew as who asked for it", "--renew --renew-time-period -1 --hmac <create for another>", "renewer"),
    _tokens("renew as a super user", "--renew --renew-time-period -1 --hmac <create for long>", "admin"),
    _tokens("renew what is not there", "--renew --renew-time-period -1 --hmac AAAA"),
    _tokens("renew by a secret that is no base64", "--renew --renew-time-period -1 --hmac A*A"),
    _tokens("let expire later", "--expire --expiry-time-period 3600000 --hmac <create for long>"),
    _tokens("let expire later than the token's last time", "--expire --expiry-time-period 7200000 --hmac <create for an hour>"),
    _tokens("let expire as a stranger", "--expire --expiry-time-period -1 --hmac <create for long>", "stranger"),
    _tokens("end what is not there", "--expire --expiry-time-period -1 --hmac AAAA"),
    _tokens("let expire soon", "--expire --expiry-time-period 1 --hmac <create for long>"),
    _tokens("renew what has expired", "--renew --renew-time-period -1 --hmac <create for long>"),
    _tokens("let expire what has expired", "--expire --expiry-time-period 3600000 --hmac <create for long>"),
    _tokens("describe what has expired", "--describe"),
    _tokens("end what has expired", "--expire --expiry-time-period -1 --hmac <create for long>"),
    _tokens("end as a renewer", "--expire --expiry-time-period -1 --hmac <create for an hour>", "renewer"),
    _tokens("end", "--expire --expiry-time-period -1 --hmac <create>"),
    _login("log in by a token that is no more", "create"),
    _tokens("end again", "--expire --expiry-time-period -1 --hmac <create>"),
    _tokens("describe what is left of the tokens", "--describe"),
    _tokens("describe all as a super user", "--describe", "admin"),
]  # fmt: skip

AT_THE_END = [
    _configs("a negative percentage", f"--alter {ALICE} --add-config request_percentage=-1"),
    _configs("no bytes", f"--alter {ALICE} --add-config producer_byte_rate=0"),
    _configs("an address of IPv6", "--alter --ip ::1 --add-config connection_creation_rate=5"),
    _tokens("create what expires soon", "--create --max-life-time-period 1"),
    _login("log in by a token that has expired", "create-what-expires-soon"),
]
KAFKAD_SAYS = {
    "a negative percentage": "Configuration request_percentage must be 0 or more",
    "no bytes": "Configuration producer_byte_rate must be 1 or more",
    "an address of IPv6": "Completed updating config for ip ::1.",
    "log in by a token that has expired": "Authentication failed during authentication due to invalid credentials",
}
"""Where kafkad differs on purpose. Kafka takes a quota of -1 % or of no bytes; it knows IPv6
addresses by another name than its own; and it closes the connections of expired tokens without a word, so that clients try
again until they give up."""

SECURITY_SESSION = [*ACLS, *QUOTAS, *PASSWORDS, *TOKENS, *AT_THE_END]

_CREATED = re.compile(r"(?<=tokenId : )[\w-]{22}")
_SECRET = re.compile(r"[A-Za-z0-9+/]{86}==")
_TOKEN_ID = re.compile(r"(?<=tokenId : )[\w-]{22}|^[\w-]{22}(?= )", re.M)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")
_REQUEST = re.compile(r"Request Request\(.*\) is not authorized\.")
"""The request as a Java object, which Kafka shows to who may not ask for ACLs."""
_LISTED = re.compile(r"(.* are |.* only supports operations \[)(.*?)(\]?)")
_SPREADS_S = 0.5
"""After so long a broker of Kafka goes by a password that it has taken."""


def run_security_session(run: Run, ports: Ports, directory: Path) -> dict[str, Outcome]:
    """At a broker with these ports and their settings."""
    _write_files(directory)
    found: dict[str, Outcome] = {}
    secrets: dict[str, str] = {}
    for step in SECURITY_SESSION:
        words = re.sub(r"<([\w ]+)>", lambda named: secrets.get(named[1], named[0]), step.words)
        port = ports.login if "--command-config" in words and "open.properties" not in words else ports.open
        if step.tool == "topics":
            time.sleep(_SPREADS_S)
        outcome = run(replace(step, words=words), f"127.0.0.1:{port}", directory)
        if created := _CREATED.search(outcome.stdout):
            [secret] = _SECRET.findall(outcome.stdout)
            secrets[step.name] = secret
            _write_scram_login(directory / f"{step.name.replace(' ', '-')}.properties", created[0], secret, token=True)
        printed = (text.replace(str(directory), "DIRECTORY") for text in (outcome.stdout, outcome.stderr))
        found[step.name] = Outcome(outcome.status, *map(_alike, printed))
    return found


def _write_files(directory: Path) -> None:
    (directory / "quotas.properties").write_text("producer_byte_rate=1000001\nconsumer_byte_rate=2000002\n")
    (directory / "open.properties").write_text("")
    for user in USERS:
        line = f'{_MODULES}.plain.PlainLoginModule required username="{user}" password="pw";'
        _write_login(directory / f"{user}.properties", "PLAIN", line)
    _write_scram_login(directory / "sam.properties", "sam", "secret")


def _write_scram_login(file: Path, user: str, password: str, *, token: bool = False) -> None:
    flag = ' tokenauth="true"' if token else ""
    line = f'{_MODULES}.scram.ScramLoginModule required username="{user}" password="{password}"{flag};'
    _write_login(file, "SCRAM-SHA-256", line)


def _write_login(file: Path, mechanism: str, line: str) -> None:
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={line}"]
    file.write_text("\n".join(lines))


def _alike(text: str) -> str:
    """Without what is another each time and the table of options, and in one order: lines, and what they list."""
    text = text.partition("\nOption ")[0]
    for pattern, instead in (
        (_SECRET, "SECRET"),
        (_TOKEN_ID, "ID"),
        (_TIME, _hours_from_now),
        (_REQUEST, "Cluster authorization failed."),
    ):
        text = pattern.sub(instead, text)
    return "\n".join(sorted(filter(None, map(_in_order, text.splitlines()))))


def _hours_from_now(printed: re.Match[str]) -> str:
    seconds = (datetime.fromisoformat(printed[0]) - datetime.now()).total_seconds()
    return f"IN {round(seconds / 3600)} H"


def _in_order(line: str) -> str:
    """Only the first line of a list of ACLs has no space in front."""
    listed = _LISTED.fullmatch(line.strip())
    if listed is None:
        return line.strip()
    before, things, after = listed.groups()
    return f"{before}{', '.join(sorted(things.split(', ')))}{after}"
