"""Commands about users, rights and transactions at a kafkad without logins, and wrong command lines."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest

from kctl.errors import Exit
from kctl.quotas.set import _undo
from kctl.settings import Settings
from tests.broker import KafkadProcess
from tests.kctl.conftest import Kctl, Ran


def test_there_are_none(kctl: Kctl, tmp_path: Path) -> None:
    with KafkadProcess(tmp_path) as fresh:
        for noun in ("users", "quotas"):
            assert kctl("-b", fresh.bootstrap, noun, "list", "--no-headers") == (Exit.DONE, "", "")


def test_users_without_the_mechanism_are_told(on_broker: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    for user in ("hers", "theirs"):
        monkeypatch.setattr("sys.stdin", io.StringIO("sesame\n"))
        assert on_broker("users", "set-scram", user).code == Exit.DONE
    monkeypatch.setattr("sys.stdin", io.StringIO("sesame\n"))
    assert on_broker("users", "set-scram", "theirs", "--mechanism", "SCRAM-SHA-256").code == Exit.DONE
    delete = ("users", "delete", "--mechanism", "SCRAM-SHA-256", "-y")
    told = 'error: user "hers" has no SCRAM-SHA-256 credentials\n'
    assert on_broker(*delete, "hers") == (Exit.NOT_FOUND, "", told)
    ran = on_broker(*delete, "hers", "theirs")
    assert (ran.code, told in ran.err, "verified: 1 credential deleted" in ran.err) == (Exit.NOT_FOUND, True, True)
    assert on_broker("users", "delete", "hers", "theirs", "-y").code == Exit.DONE


def test_a_change_of_quotas_tells_the_way_back(on_broker: Kctl) -> None:
    whom = "user=CN=alice,OU=it"

    def values() -> dict[str, float]:
        items = json.loads(on_broker("quotas", "describe", whom, "-o", "json").out)["items"]
        return {item["quota"]: item["value"] for item in items}

    def undone(ran: Ran) -> None:
        assert ran.code == Exit.DONE, ran.err
        (undo,) = [line.removeprefix("undo: ") for line in ran.err.splitlines() if line.startswith("undo: ")]
        for command in undo.split("; "):
            assert on_broker(*shlex.split(command)[3:], "-y").code == Exit.DONE

    first = on_broker(
        "quotas", "set", whom, "producer_byte_rate=2000000000000000000", "controller_mutation_rate=2.5", "-y"
    )
    before = {"producer_byte_rate": 2 * 10**18, "controller_mutation_rate": 2.5}
    assert values() == before
    undone(on_broker("quotas", "set", whom, "producer_byte_rate=1", "consumer_byte_rate=2", "-y"))
    assert values() == before
    undone(on_broker("quotas", "unset", whom, "-y"))
    assert values() == before
    assert "undo" not in on_broker("quotas", "set", whom, "producer_byte_rate=2000000000000000000", "-y").err, (
        "as it was"
    )
    undone(first)
    assert on_broker("quotas", "describe", whom).code == Exit.NOT_FOUND
    assert on_broker("quotas", "set", whom, "producer_byte_rate=9223372036854775807", "-y").code == Exit.DONE
    undone(on_broker("quotas", "unset", whom, "-y"))
    assert values() == {"producer_byte_rate": 2**63}
    on_broker("quotas", "unset", whom, "-y")


def test_the_way_back_names_whom_no_terminal_shows() -> None:
    before = {"producer_byte_rate": 2.0**63, "request_percentage": 2.0**63}
    assert _undo(Settings(), (("user", "a\nb"),), before) == (
        "kctl quotas set $'user=a\\x0ab' producer_byte_rate=9223372036854775807 request_percentage=9223372036854775808"
    )


def test_tokens_are_for_those_who_log_in(on_broker: Kctl) -> None:
    ran = on_broker("tokens", "list")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in ran.err and "log in by SASL" in ran.err


def test_without_an_authorizer_there_are_no_acls(on_broker: Kctl) -> None:
    ran = on_broker("acls", "list")
    assert ran.code == Exit.FAILED
    assert "this cluster has no ACLs" in ran.err and "authorizer.class.name" in ran.err


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("acls add --topic t", "nobody is named"),
        ("acls add --allow a", "no resource is named"),
        ("acls add --allow a --consumer --topic t", "a consumer needs a group"),
        ("acls add --allow a --topic t --operation Raed", 'there is no operation "Raed"'),
        ("acls remove", "no ACLs are selected"),
        ("acls check alice Write thing/x", 'there is no kind of resource "thing"'),
        ("quotas set user=a producer_byte_rat=1", 'there is no quota "producer_byte_rat"'),
        ("quotas set user=a producer_byte_rate=0", "must be greater than 0"),
        ("quotas set user=a request_percentage=x", '"x" is not a valid request_percentage'),
        ("quotas set producer_byte_rate=1", "give an entity and quotas"),
        ("txns abort no-such-topic:0", "does not exist"),
        ("txns producers t:x", "is not a topic with partitions"),
    ],
)
def test_mistakes(on_broker: Kctl, command: str, told: str) -> None:
    ran = on_broker(*command.split())
    assert ran.code in (Exit.USAGE, Exit.NOT_FOUND)
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_who_writes_to_a_partition(on_broker: Kctl) -> None:
    topic = '{"topics": [{"name": "written", "num_partitions": 1, "replication_factor": 1}]}'
    assert on_broker("-y", "raw", "CreateTopics", topic).code == Exit.DONE
    assert on_broker("txns", "producers", "written", "--no-headers") == (Exit.DONE, "", "")
    assert on_broker("txns", "producers", "written:3").code == Exit.NOT_FOUND
    missing = on_broker("txns", "hanging", "--broker", "77")
    assert (missing.code, "broker 77 does not exist" in missing.err) == (Exit.NOT_FOUND, True)
