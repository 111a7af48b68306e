"""`kafka-configs` for users who log in by SCRAM, and `kafka-delegation-tokens`, do with kafkad what they do with real
Kafka, one beside the other."""

# ruff: noqa: E501 - one command a line
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker import KafkadProcess
from tests.clients.conftest import SETTINGS
from tests.clients.tools import Outcome, Step, run
from tests.oracle.kafka import VERSIONS, Kafka, free_port, missing

pytestmark = [pytest.mark.long, pytest.mark.java, pytest.mark.timeout(3600)]

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = {
    "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} required user_alice="pw" user_bob="pw";',
    "delegation.token.secret.key": "lab-master-key",
}
ALICE = "--entity-type users --entity-name alice"
PASSWORDS = [
    Step("two mechanisms", "configs", f"--alter {ALICE} --add-config SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"),
    Step("another user beside a quota", "configs", "--alter --entity-type users --entity-name bob --add-config producer_byte_rate=1000"),
    Step("his password", "configs", "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-512=[iterations=4096,password=x]"),
    Step("describe a user", "configs", f"--describe {ALICE}"),
    Step("describe a user with a quota", "configs", "--describe --entity-type users --entity-name bob"),
    Step("describe all users", "configs", "--describe --entity-type users"),
    Step("describe a user who is not there", "configs", "--describe --entity-type users --entity-name nobody"),
    Step("too few iterations", "configs", f"--alter {ALICE} --add-config SCRAM-SHA-256=[iterations=100,password=secret]"),
    Step("too many iterations", "configs", f"--alter {ALICE} --add-config SCRAM-SHA-256=[iterations=99999,password=secret]"),
    Step("an unknown mechanism", "configs", f"--alter {ALICE} --add-config SCRAM-SHA-1=[password=secret]"),
    Step("no password", "configs", f"--alter {ALICE} --add-config SCRAM-SHA-256=[iterations=8192]"),
    Step("every user", "configs", "--alter --entity-type users --entity-default --add-config SCRAM-SHA-256=[password=secret]"),
    Step("delete one", "configs", f"--alter {ALICE} --delete-config SCRAM-SHA-256"),
    Step("delete what is not there", "configs", f"--alter {ALICE} --delete-config SCRAM-SHA-256"),
    Step("describe what is left", "configs", f"--describe {ALICE}"),
    Step("delete the last", "configs", f"--alter {ALICE} --delete-config SCRAM-SHA-512"),
    Step("describe who is gone", "configs", f"--describe {ALICE}"),
]  # fmt: skip
AS = "--command-config {dir}/%s.properties"
CREATED = re.compile(r"tokenId : (\S+)")
SECRET = re.compile(r"[A-Za-z0-9+/]{86}==")


class Tokens:
    """A session of alice, who makes tokens, and bob, who may renew one: each step knows what those before have made."""

    def __init__(self, release: str, login: str, directory: Path) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._run: Callable[[Step], Outcome] = lambda step: run(step, release, login, directory)
        for user in ("alice", "bob"):
            line = f'{MODULE} required username="{user}" password="pw";'
            lines = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", f"sasl.jaas.config={line}"]
            (directory / f"{user}.properties").write_text("\n".join(lines))
        first = self._step("create", "alice", "--create --max-life-time-period -1 --renewer-principal User:bob")
        secret = _secret(first)
        other = _secret(self._step("create for long", "alice", "--create --max-life-time-period 99999999999"))
        self._step("describe all", "alice", "--describe")
        self._step("describe one's own", "alice", "--describe --owner-principal User:alice")
        self._step("describe another's", "alice", "--describe --owner-principal User:bob")
        self._step("describe as a renewer", "bob", "--describe")
        self._step("renew", "alice", f"--renew --renew-time-period -1 --hmac {secret}")
        self._step("renew as a renewer", "bob", f"--renew --renew-time-period 3600000 --hmac {secret}")
        self._step("renew as nobody", "bob", f"--renew --renew-time-period -1 --hmac {other}")
        self._step("renew what is not there", "alice", "--renew --renew-time-period -1 --hmac AAAA")
        self._step("let expire later", "alice", f"--expire --expiry-time-period 3600000 --hmac {other}")
        self._step("let expire as nobody", "bob", f"--expire --expiry-time-period -1 --hmac {other}")
        self._step("end", "alice", f"--expire --expiry-time-period -1 --hmac {secret}")
        self._step("end again", "alice", f"--expire --expiry-time-period -1 --hmac {secret}")
        self._step("describe what is left", "alice", "--describe")

    def _step(self, name: str, user: str, words: str) -> str:
        outcome = self._run(Step(name, "delegation-tokens", f"{words} {AS % user}"))
        self.outcomes[name] = Outcome(outcome.status, _alike(outcome.stdout), _alike(outcome.stderr))
        return outcome.stdout


def _secret(printed: str) -> str:
    found = SECRET.search(printed)
    assert found is not None, printed
    return found[0]


def _alike(text: str) -> str:
    """Without what is another each time; tokens are listed in the order of a hash map."""
    for pattern, instead in (
        (SECRET, "SECRET"),
        (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d"), "DATE"),
        (re.compile(r"(?<=tokenId : )[\w-]{22}|^[\w-]{22}(?= )", re.M), "ID"),
        (re.compile(r"(?<=date : ).*", re.M), "DATE"),
    ):
        text = pattern.sub(instead, text)
    return "\n".join(sorted(text.splitlines()))


def in_order(outcome: Outcome) -> tuple[int, list[str], list[str]]:
    """Kafka's order of users and of their configs is that of its hash maps."""
    lines = (
        sorted(", ".join(sorted(line.split(", "))) for line in text.splitlines())
        for text in (outcome.stdout, outcome.stderr)
    )
    out, errors = lines
    return outcome.status, out, errors


@pytest.mark.parametrize("release", VERSIONS)
def test_the_tools_print_the_same(release: str, tmp_path: Path) -> None:
    for needed in {"3.9", release}:
        if reason := missing(needed):
            pytest.skip(reason)
    port, login = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{login}"

    def session() -> tuple[dict[str, tuple[int, list[str], list[str]]], dict[str, Outcome]]:
        passwords = {step.name: in_order(run(step, release, f"127.0.0.1:{port}", tmp_path)) for step in PASSWORDS}
        return passwords, Tokens(release, f"127.0.0.1:{login}", tmp_path).outcomes

    with Kafka("3.9", port=port, settings={**SETTINGS, **LOGIN, "listeners": listeners}, heap="512m"):
        expected = session()
    broker = KafkadProcess(tmp_path / "kafkad", {**SETTINGS, **LOGIN})
    broker.port = port
    broker.settings["listeners"] = listeners
    with broker:
        found = session()
    assert found[0] == expected[0]
    assert found[1] == expected[1]
    assert "Created delegation token" in found[1]["create"].stdout
    assert "SCRAM-SHA-256=iterations=8192" in " ".join(found[0]["describe a user"][1])
