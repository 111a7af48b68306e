"""`sasl.kerberos.principal.to.local.rules`: rules as Kafka 3.9 reads them."""

from __future__ import annotations

import pytest

from kafkad.config.local_names import LocalNames

REALM = "EXAMPLE.ORG"


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        ("DEFAULT", "alice@EXAMPLE.ORG", "alice"),
        ("DEFAULT", "kafka/host.example.org@EXAMPLE.ORG", "kafka"),
        ("RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//;DEFAULT", "bob@OTHER.ORG", "bob"),
        ("RULE:[1:$1@$0](.*@OTHER.ORG)s/@.*//;DEFAULT", "bob@EXAMPLE.ORG", "bob"),
        ("RULE:[2:$1-$2]", "a/b@OTHER.ORG", "a-b"),
        ("RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g;DEFAULT", "App.service@OTHER.ORG", "service"),
        ("RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g;DEFAULT", "App.service/host@OTHER.ORG", "service"),
        ("RULE:[1:$1]s/a/x/", "banana@OTHER.ORG", "bxnana"),
        ("RULE:[1:$1]s/a/x/g", "banana@OTHER.ORG", "bxnxnx"),
        ("RULE:[1:$1]/L", "Alice@OTHER.ORG", "alice"),
        ("RULE:[1:$1]U", "Alice@OTHER.ORG", "ALICE"),
        ("RULE:[1:$1]s/l/L/g/U", "Alice@OTHER.ORG", "ALICE"),
        ("RULE:[1:$1](b.*);RULE:[1:other]", "alice@OTHER.ORG", "other"),
    ],
)
def test_the_first_rule_that_fits_decides(rules: str, principal: str, user: str) -> None:
    assert LocalNames.of(rules.split(";"), REALM).user_of(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "why"),
    [
        ("DEFAULT", "alice@OTHER.ORG", "fits alice@OTHER.ORG"),
        ("RULE:[2:$1]", "alice@EXAMPLE.ORG", "fits alice@"),
        ("RULE:[1:$1@$0]", "alice@EXAMPLE.ORG", "no simple name"),
        ("RULE:[2:$1/$2]", "a/b@EXAMPLE.ORG", "no simple name"),
        ("RULE:[1:$1]s/.*//", "alice@EXAMPLE.ORG", "no simple name"),
        ("DEFAULT", "a/b/c@EXAMPLE.ORG", "is no principal"),
        ("DEFAULT", "admin\\@EXAMPLE.ORG@OTHER.ORG", "is no principal"),
        ("DEFAULT", "alice", "is no principal"),
    ],
)
def test_who_has_no_name_here(rules: str, principal: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LocalNames.of([rules], REALM).user_of(principal)


@pytest.mark.parametrize(
    "rule", ["default", "RULE:", "RULE:[x:$1]", "RULE:[1:$2]", "RULE:[1:$]", "RULE:[1:$1](", "RULE:[1:$1](\\p{L})"]
)
def test_rules_that_are_none(rule: str) -> None:
    with pytest.raises(ValueError, match=r"nvalid rule|cannot be read"):
        LocalNames.of([rule], REALM)
