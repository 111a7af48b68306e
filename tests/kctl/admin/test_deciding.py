"""The ACL and the quota that decide, and the stored form of passwords."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from kafkad.errors import ErrorCode
from kafkad.names import TopicPartition
from kafkad.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from kctl.acls.bindings import Binding, Resource, adding, decide, operation_named, removing
from kctl.acls.check import _authorizer
from kctl.errors import KctlError
from kctl.quotas.entities import Quota, applying, entity_of
from kctl.tokens.asking import token_failure
from kctl.txns.asking import Producer, Transaction
from kctl.txns.hanging import is_candidate, why_hanging
from kctl.users.credentials import salted_password
from tests.kctl.conftest import session_of
from tests.work import is_linear

ORDERS = Resource("topic", "orders")


def binding(
    operation: str = "Write",
    resource: Resource = ORDERS,
    *,
    permission: str = "allow",
    principal: str = "User:alice",
    host: str = "*",
) -> Binding:
    return Binding(principal, host, operation, resource, permission)


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([binding()], "Write", True),
        ([binding()], "Read", False),
        ([binding("All")], "Read", True),
        ([binding()], "Describe", True),
        ([binding("Create")], "Describe", False),
        ([binding("AlterConfigs")], "DescribeConfigs", True),
        ([binding(), binding(permission="deny")], "Write", False),
        ([binding(), binding("All", permission="deny")], "Describe", False),
        ([binding(), binding(permission="deny")], "Describe", True),  # a denied Write is no denied Describe
        ([binding(principal="User:*")], "Write", True),
        ([binding(principal="User:bob")], "Write", False),
        ([binding(host="10.0.0.1")], "Write", True),
        ([binding(host="10.0.0.2")], "Write", False),
        ([binding(resource=Resource("topic", "ord", "prefixed"))], "Write", True),
        ([binding(resource=Resource("topic", "ord", "literal"))], "Write", False),
        ([binding(resource=Resource("topic", "*"))], "Write", True),
        ([binding(resource=Resource("topic", "*", "prefixed"))], "Write", False),
        ([binding(resource=Resource("group", "orders"))], "Write", False),
    ],
)
def test_the_authorizer_decides(acls: list[Binding], operation: str, allowed: bool) -> None:
    assert decide(acls, "User:alice", "10.0.0.1", operation, ORDERS).allowed is allowed


def test_superusers_and_resources_without_acl() -> None:
    denied = [binding(permission="deny")]
    assert decide(denied, "User:alice", "*", "Write", ORDERS, superusers=["User:alice"]).allowed
    assert decide([], "User:alice", "*", "Write", ORDERS, allow_without_acl=True).allowed
    other = binding("Read", principal="User:bob")
    assert not decide([other], "User:alice", "*", "Write", ORDERS, allow_without_acl=True).allowed
    hidden = decide([], "User:alice", "*", "Write", ORDERS, allow_without_acl=None)
    assert hidden.allowed is None and "do not tell allow.everyone.if.no.acl.found" in hidden.why
    assert decide([other], "User:alice", "*", "Write", ORDERS, allow_without_acl=None).allowed is False


def test_superusers_that_are_hidden_are_excepted_from_a_no() -> None:
    no = decide([binding(permission="deny")], "User:admin", "*", "Write", ORDERS, superusers=None)
    assert (no.allowed, "unless User:admin is one of super.users" in no.why) == (False, True)
    assert "super.users" not in decide([binding()], "User:alice", "*", "Write", ORDERS, superusers=None).why
    assert "super.users" not in decide([], "User:alice", "*", "Write", ORDERS, superusers=[]).why


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.NONE])
def test_settings_that_may_not_be_read_are_not_known(monkeypatch: pytest.MonkeyPatch, code: ErrorCode) -> None:
    session = session_of(1)
    answer = DescribeConfigsResponse(results=[DescribeConfigsResult(error_code=code)])
    monkeypatch.setattr(session, "call", lambda request, broker: answer)
    hidden = {"super.users": None, "allow.everyone.if.no.acl.found": None}
    assert _authorizer(session) == (hidden if code else {}), "a broker without an authorizer may know no such settings"


@pytest.mark.parametrize("word", ["DescribeConfigs", "describe-configs", "DESCRIBE_CONFIGS", "describeconfigs"])
def test_operations_however_they_are_written(word: str) -> None:
    assert operation_named(word) == "DescribeConfigs"


def test_an_unknown_operation_is_told_with_what_it_looks_like() -> None:
    with pytest.raises(KctlError) as told:
        operation_named("Wriet")
    assert told.value.hints == ('did you mean "Write"?',)


QUOTAS = [
    Quota((("user", "alice"), ("client-id", "app")), "producer_byte_rate", 1),
    Quota((("user", "alice"), ("client-id", None)), "producer_byte_rate", 2),
    Quota((("user", "alice"),), "producer_byte_rate", 3),
    Quota((("user", None), ("client-id", "app")), "producer_byte_rate", 4),
    Quota((("user", None), ("client-id", None)), "producer_byte_rate", 5),
    Quota((("user", None),), "producer_byte_rate", 6),
    Quota((("client-id", "app"),), "producer_byte_rate", 7),
    Quota((("client-id", None),), "producer_byte_rate", 8),
]


@pytest.mark.parametrize("first", range(len(QUOTAS)))
def test_the_most_special_quota_applies(first: int) -> None:
    (found,) = applying(QUOTAS[first:], {"user": "alice", "client-id": "app"})
    assert found == QUOTAS[first]


def test_quotas_apply_each_for_itself() -> None:
    quotas = [*QUOTAS[2:3], Quota((("user", None),), "consumer_byte_rate", 9)]
    assert [quota.value for quota in applying(quotas, {"user": "alice"})] == [3, 9]
    assert applying(QUOTAS[6:7], {"user": "alice"}) == []


def test_entities() -> None:
    assert entity_of(["client=app", "user=<default>"]) == (("user", None), ("client-id", "app"))
    assert entity_of(["user=CN=alice,OU=it,client=app"]) == (("user", "CN=alice,OU=it"), ("client-id", "app"))
    with pytest.raises(KctlError, match="is not a user, client or ip"):
        entity_of(["usr=alice"])
    with pytest.raises(KctlError, match="for an ip, or for a user"):
        entity_of(["ip=1.2.3.4", "user=alice"])


def test_a_salted_password_is_that_of_rfc_7677() -> None:
    """The vector of the RFC's example: its server key follows from this."""
    import hashlib
    import hmac
    from base64 import b64decode

    salted = salted_password("SCRAM-SHA-256", "pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    message = (
        "n=user,r=rOprNGfwEbeRWgbNEkqO,"
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    server_key = hmac.digest(salted, b"Server Key", hashlib.sha256)
    signature = hmac.digest(server_key, message.encode(), hashlib.sha256)
    assert signature == b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


WHERE = TopicPartition("payments", 1)
OPEN = Producer(WHERE, 7, 3, 10, 1000, 0, 50)


def test_what_may_hang() -> None:
    assert is_candidate(OPEN, now_ms=2001, max_timeout_ms=1000)
    assert not is_candidate(OPEN, now_ms=2000, max_timeout_ms=1000)
    assert not is_candidate(OPEN._replace(start_offset=-1), now_ms=9999, max_timeout_ms=0)


def test_why_it_hangs() -> None:
    looked_after = Transaction("t", "Ongoing", 7, 3, 60000, 1000, (WHERE,))
    assert why_hanging(OPEN, looked_after) == ""
    assert why_hanging(OPEN, looked_after._replace(state="PrepareCommit")) == ""
    assert "no coordinator" in why_hanging(OPEN, None)
    assert "CompleteAbort" in why_hanging(OPEN, looked_after._replace(state="CompleteAbort"))
    assert "epoch 4" in why_hanging(OPEN, looked_after._replace(producer_epoch=4))
    assert "without this partition" in why_hanging(OPEN, looked_after._replace(partitions=()))


def of_many(count: int) -> list[Binding]:
    """Each of another user on another topic."""
    return [Binding(f"User:{n}", "*", "Read", Resource("topic", f"t{n}"), "allow") for n in range(count)]


def test_one_command_removes_acls_unless_it_would_remove_others() -> None:
    first, second = of_many(2)
    (both,) = removing([first, second], [])
    assert both == ("acls remove --allow User:0 --allow User:1 --host '*' --operation Read --topic t0 --topic t1")
    other = first._replace(resource=second.resource)
    assert len(removing([first, second], [other])) == 2
    assert removing([first, second], [other._replace(operation="Write")]) == [both]


@pytest.mark.parametrize("name", ["Pat O'Brien", "x'; touch pwned; echo '", "$(id)", "a b", '"'])
def test_whatever_an_acl_is_about_is_one_word_of_its_commands(name: str) -> None:
    for kind, option in (("topic", "--topic"), ("user", "--user-principal")):
        acl = Binding(f"User:CN={name}", name, "Read", Resource(kind, name), "deny")
        words = ["--deny", f"User:CN={name}", "--host", name, "--operation", "Read", option, name]
        assert shlex.split(adding(acl)) == ["acls", "add", *words]
        assert [shlex.split(command) for command in removing([acl], [])] == [["acls", "remove", *words]]


def test_the_command_that_removes_many_acls_is_not_compared_with_all_combinations_of_them() -> None:
    def commanding(count: int) -> Callable[[], object]:
        return lambda: removing(of_many(count), of_many(2 * count)[count:])

    assert is_linear(commanding)


def test_who_may_have_no_more_tokens_is_told_what_to_do() -> None:
    refused = token_failure(ErrorCode.POLICY_VIOLATION, "no token was created")
    assert "kafkad.max.delegation.tokens.per.owner" in refused.hints[0]
