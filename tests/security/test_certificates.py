"""Names of certificates as Java writes them, rules that make users of them, and what is read of a certificate."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kafkad.security.certificates import Certificate, name_text, subject_of
from kafkad.security.principals import PrincipalMapping
from tests.certificates import DAY, Authority

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/security/names.json").read_text())


@pytest.mark.parametrize("case", GOLDEN["distinguished_names"], ids=lambda case: case["what"])
def test_names_are_written_as_java_does(case: dict[str, str]) -> None:
    assert name_text(bytes.fromhex(case["subject_der"])) == case["principal"]


@pytest.mark.parametrize("case", GOLDEN["principal_mapping"], ids=lambda case: case["rules"] or "none")
def test_rules_map_as_kafka_does(case: dict[str, Any]) -> None:
    if isinstance(case["name"], str):
        assert PrincipalMapping.of(case["rules"]).user_of(case["dn"]) == case["name"]
        return
    with pytest.raises(ValueError) as refused:
        PrincipalMapping.of(case["rules"]).user_of(case["dn"])
    assert str(refused.value) == case["name"]["error"].partition(": ")[2]


@pytest.mark.parametrize("pattern", ["(", r"\p{L}+", "[a&&[b]]", "(?<x>a)(?<x>b)"])
def test_patterns_that_python_reads_otherwise_than_java_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        PrincipalMapping.of(f"RULE:{pattern}/x/")


def test_groups_may_have_names_and_classes_are_those_of_ascii() -> None:
    mapping = PrincipalMapping.of(r"RULE:^CN=(?<user>\w+)$/$1/L")
    assert mapping.user_of("CN=Alice") == "alice"
    with pytest.raises(ValueError, match="No rules apply"):
        mapping.user_of("CN=Müller")


def test_names_and_dates_of_a_certificate() -> None:
    issued = Authority().issue("broker-1", names=("b1.example", "10.0.0.7", "::1"), until=40 * DAY)
    found = Certificate.of(issued.der)
    assert (found.subject, found.issuer) == ("CN=broker-1", "CN=Test CA")
    assert found.names == {"DNS:b1.example", "IP:10.0.0.7", "IP:::1"}
    assert abs((found.expires - datetime.now(UTC) - 40 * DAY).total_seconds()) < 60
    assert found.starts < datetime.now(UTC)
    assert subject_of(issued.der) == "CN=broker-1"


def test_a_certificate_without_alternative_names() -> None:
    assert Certificate.of(Authority().issue("alice", names=(), usages=()).der).names == frozenset()


def test_values_that_are_no_texts_stay_bytes_and_zeros_are_seen() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a\0b\r")])
    assert name_text(name.public_bytes()) == "CN=a\\00b\\\r"
    numeric = bytes.fromhex("300f310d300b06035504030c0434353637").replace(b"\x0c\x04", b"\x12\x04")
    assert name_text(numeric) == "CN=#120434353637"


@pytest.mark.parametrize(
    "damage", [lambda der: b"", lambda der: der[:40], lambda der: b"\x30\x80" + der, lambda der: b"0\0"]
)
def test_what_is_no_certificate_is_refused(damage: Any) -> None:
    with pytest.raises(ValueError, match="not a certificate"):
        Certificate.of(damage(Authority().issue().der))
