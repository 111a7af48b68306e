"""`kctl acls` and the doctor at a kafkad with an authorizer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kctl.errors import Exit
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkadProcess]:
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    with KafkadProcess(tmp_path_factory.mktemp("guarded"), settings) as process:
        yield process


def test_acls_are_added_listed_checked_and_removed(kctl: Kctl, guarded: KafkadProcess) -> None:
    run = partial(kctl, "-b", guarded.bootstrap)

    def listed() -> list[tuple[str, ...]]:
        rows = json.loads(run("acls", "list", "--principal", "alice", "-o", "json").out)["items"]
        return [(row["permission"], row["principal"], row["operation"], row["name"], row["pattern"]) for row in rows]

    assert run("acls", "add", "--allow", "alice", "--topic", "orders", "--operation", "Read").code == Exit.DONE
    prefixed = ("--topic", "ord", "--prefixed", "--operation", "Write")
    assert run("acls", "add", "--deny", "alice", *prefixed).code == Exit.DONE
    assert sorted(listed()) == [
        ("allow", "User:alice", "Read", "orders", "literal"),
        ("deny", "User:alice", "Write", "ord", "prefixed"),
    ]
    assert run("acls", "check", "alice", "Read", "orders").code == Exit.DONE
    assert run("acls", "check", "alice", "Write", "orders").code == Exit.FINDINGS
    assert run("doctor", "--only", "acls,unmatched-acls").code == Exit.DONE
    assert run("-y", "acls", "remove", "--deny", "alice", *prefixed).code == Exit.DONE
    assert [row[1:4] for row in listed()] == [("User:alice", "Read", "orders")]


def test_an_acl_that_could_never_match_is_refused(kctl: Kctl, guarded: KafkadProcess) -> None:
    wrong = ("--allow", "bob", "--topic", "t", "--operation", "Read", "--host", "10.0.0.0/8")
    ran = kctl("-b", guarded.bootstrap, "acls", "add", *wrong)
    assert ran.code == Exit.FAILED
    assert "would never match" in ran.err


def test_super_users_are_hidden_as_kafka_hides_them(kctl: Kctl, guarded: KafkadProcess) -> None:
    ran = kctl("-b", guarded.bootstrap, "configs", "describe", "broker/1", "--all", "-o", "json")
    assert "User:admin" not in ran.out
    ran = kctl("-b", guarded.bootstrap, "acls", "check", "admin", "Write", "x", "-o", "json")
    (row,) = json.loads(ran.out)["items"]
    assert row["allowed"] == "no" and "unless User:admin is one of super.users" in row["why"]


def test_acls_are_there_after_a_restart(kctl: Kctl, guarded: KafkadProcess) -> None:
    added = ("--allow", "carol", "--group", "g", "--operation", "Read")
    assert kctl("-b", guarded.bootstrap, "acls", "add", *added).code == Exit.DONE
    guarded.stop()
    guarded.start()
    assert kctl("-b", guarded.bootstrap, "acls", "check", "carol", "Read", "group/g").code == Exit.DONE


def test_an_authorizer_that_everybody_passes_is_found(kctl: Kctl, tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkadProcess(tmp_path, settings) as process:
        ran = kctl("-b", process.bootstrap, "doctor", "--only", "open-without-acls")
        assert ran.code == Exit.FINDINGS
        assert "there are no ACLs, so that everybody may do everything" in ran.out
