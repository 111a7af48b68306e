from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkad_etl.cluster.clusters import client_of
from kafkad_etl.cluster.handover import secrets_of, variables_of
from kctl.reach.access import Access, Secret, resolve
from kctl.settings import Settings


def received(variables: dict[str, str]) -> Access:
    return resolve(Settings(), {"XDG_CONFIG_HOME": "/no/such", **variables})


@pytest.mark.parametrize(
    "access",
    [
        Access(),
        Access(bootstrap=(("a", 1), ("::1", 2)), client_id="daily"),
        Access(security_protocol="SASL_SSL", mechanism="PLAIN", username="u", password=Secret("p"), ca="/ca.pem"),
        Access(
            security_protocol="SASL_PLAINTEXT",
            mechanism="SCRAM-SHA-512",
            username="id",
            password=Secret("hmac"),
            tokenauth=True,
        ),
        Access(
            security_protocol="SSL",
            certificate="/c.pem",
            key="/k.pem",
            key_password=Secret("k"),
            check_hostname=False,
            protected=True,
        ),
    ],
)
def test_a_program_gets_the_same_access(access: Access) -> None:
    assert received(variables_of(access, {"PATH": "/bin"})) == access


def test_nothing_is_left_of_another_access() -> None:
    before = {"KCTL_CONTEXT": "prod", "KCTL_PASSWORD_COMMAND": "pass prod", "KCTL_USERNAME": "u", "KCTL_TIMEOUT": "3s"}
    after = variables_of(Access(context="test"), before)
    assert {name: text for name, text in after.items() if name in before} == {"KCTL_TIMEOUT": "3s"}


def test_secrets_are_read_and_paths_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secret").write_text("sesame\n")
    pem = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
    access = Access(password=Secret(file="secret"), token=Secret(command="echo t"), ca="ca.pem", certificate=pem)
    found = variables_of(access, os.environ)
    assert (found["KCTL_PASSWORD"], found["KCTL_TOKEN"]) == ("sesame", "t")
    assert (found["KCTL_CA"], found["KCTL_CERTIFICATE"]) == (str(tmp_path / "ca.pem"), pem)


def test_what_is_secret() -> None:
    line = "x" * 64
    client = {"ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{line}\nshort\n-----END PRIVATE KEY-----\n"}
    assert secrets_of(Access(password=Secret("p"), key_password=Secret("k")), client) == {"p", "k", line}
    access = Access()
    assert secrets_of(access, client_of(access, "c")) == frozenset()
