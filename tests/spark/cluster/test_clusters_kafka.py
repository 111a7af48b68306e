"""The settings that Spark's Kafka client gets, tried with the Java client that it is, against a real Kafka."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkad_etl.cluster.clusters import client_of
from kctl.reach.access import Access, Secret
from tests.kctl.certificates import Authority, authority
from tests.kctl.secured import PASSWORD, ports
from tests.oracle.kafka import tool

pytestmark = [pytest.mark.slow, pytest.mark.java]


__all__ = ["authority", "ports"]


def lists_topics(access: Access, directory: Path) -> None:
    client = client_of(access, "etl-j")
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={_escaped(value)}\n" for name, value in client.items()))
    arguments = ("--bootstrap-server", client["bootstrap.servers"], "--command-config", str(file), "--list")
    done = subprocess.run(tool("3.9", "topics", *arguments), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done


def _escaped(value: str) -> str:
    """As a .properties file has it."""
    return "".join(f"\\u{ord(sign):04x}" if ord(sign) > 126 or sign in "\\\n\r" else sign for sign in value)


@pytest.mark.parametrize(
    ("listener", "fields"),
    [
        ("SSL", {}),
        ("SASL_SSL", {"mechanism": "PLAIN", "username": "alice", "password": Secret(PASSWORD)}),
        ("SASL_PLAINTEXT", {"mechanism": "SCRAM-SHA-512", "username": "carol", "password": Secret("sesame")}),
    ],
)
def test_the_java_client_gets_in(
    ports: Mapping[str, int], authority: Authority, tmp_path: Path, listener: str, fields: Mapping[str, object]
) -> None:
    ca = str(authority.certificate) if "SSL" in listener else ""
    access = Access(bootstrap=(("localhost", ports[listener]),), security_protocol=listener, ca=ca)
    lists_topics(access._replace(**fields), tmp_path)


@pytest.mark.parametrize("password", ["", "sesame"])
def test_the_java_client_shows_its_certificate(
    ports: Mapping[str, int], authority: Authority, tmp_path: Path, password: str
) -> None:
    alice = authority.issue(f"alice{password}", password=password)
    access = Access(
        bootstrap=(("localhost", ports["MUTUAL"]),),
        security_protocol="SSL",
        ca=str(authority.certificate),
        certificate=str(alice.certificate),
        key=str(alice.key),
        key_password=Secret(password),
    )
    lists_topics(access, tmp_path)
